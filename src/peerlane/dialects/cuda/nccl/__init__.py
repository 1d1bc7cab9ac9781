"""NCCL on groups and channels: ``libnccl.so.2``, for nccl4py and for programs in C.

``nccl.h.txt`` is the vendor's header.  Each communicator has a :class:`peerlane.Group`; streams and memory are those
of the driver.  ``codes.py`` has the codes, ``state.py`` the table of calls, and ``c_library.py`` what C calls.
"""
