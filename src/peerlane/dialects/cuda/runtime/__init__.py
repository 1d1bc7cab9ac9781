"""CUDA's runtime, of the versions 12 and 13, over the driver's calls (facts/cuda 1.3, 2.2)."""
