"""NVIDIA's own tests of cuda.core, on peerlane's virtual devices."""
