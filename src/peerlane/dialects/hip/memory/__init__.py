"""Memory: allocations, registered and managed memory, pools, virtual memory; ``hipMalloc``, ``hipMemMap``."""

from peerlane.dialects.hip.memory import (  # noqa: F401 - they declare calls
    allocations,
    attributes,
    managed,
    physical,
    pools,
    registered,
    virtual,
)
