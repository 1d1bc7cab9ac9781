"""What the site of the documentation needs beyond mkdocs: pages of sources, docstrings, plots."""
