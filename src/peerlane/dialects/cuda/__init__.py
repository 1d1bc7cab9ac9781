"""CUDA's driver on virtual devices: ``libcuda.so.1``, for NVIDIA's own wheels and for programs in C.

There is no module for Python: programs import ``cuda.core``, ``cuda.bindings``, CuPy or numba, which call the
library.  ``cuda.h.txt`` is the vendor's header.  A call is in the module of its concept; one without a body is
refused by name.
``state.py`` has the machine and the table of calls.
"""
