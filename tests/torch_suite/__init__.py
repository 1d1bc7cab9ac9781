"""PyTorch's own tests of its distributed back-ends, on gloo and on peerlane: ``make test-torch``."""
