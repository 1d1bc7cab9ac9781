"""NVML: the devices of the node as ``libnvidia-ml.so.1`` shows them (facts/cuda 7).

``state`` has the table of calls and the devices' handles.  The bodies lie by concept: ``system``, ``devices``,
``processes``, ``topology``, ``links``, ``fields``, ``events``.  Every other call answers NOT_SUPPORTED.
"""
