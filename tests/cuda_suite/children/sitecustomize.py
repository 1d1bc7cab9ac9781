"""Runs in the processes that NVIDIA's tests start: the names of `moved_names` are there, too."""

import os

if "PEERLANE_DIALECTS" in os.environ:
    import cuda_suite.moved_names  # noqa: F401
