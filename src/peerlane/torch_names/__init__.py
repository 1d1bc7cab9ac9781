"""Names of vendors for torch's device: which there are, and what each changes in torch (``hook``)."""
