"""``hip``: hip-python on virtual devices."""
