"""The seam between the neutral API and the back-ends, which execute its operations."""
