"""What the rest of peerlane knows of NIXL; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {
    f"{root}{part}": f"peerlane.dialects.nixl{part}"
    for root in ("nixl", "nixl_cu12", "nixl_cu13", "rixl")
    for part in ("", "._api", "._bindings", "._utils", ".logging")
}
ENTRY = "nixl._api"
# The package asks no device by itself, and also works without one.
PROBE = """
import ctypes, os, nixl
def devices(library, begin, count):
    try:
        loaded = ctypes.CDLL(library)
    except OSError:
        return 0
    found = ctypes.c_int(0)
    return 0 if loaded[begin](0) or loaded[count](ctypes.byref(found)) else found.value
found = devices("libcuda.so.1", "cuInit", "cuDeviceGetCount")
os._exit(0 if found or devices("libamdhip64.so", "hipInit", "hipGetDeviceCount") else 1)
"""
PACKAGES = {"nixl": "nixl"}
ANEW = "peerlane.dialects.nixl._agent:begin_anew"
REMEDY = (
    "Registered memory ends with deregister_memory, transfers and prepared lists with release, and all\n"
    "of an agent when the last reference to it goes. Device memory ends as it was allocated."
)
ORDERS = {
    "wait": "nixl_agent.check_remote_xfer_done",
    "record": "nixl_agent.transfer",
    "message": "nixl_agent.send_notif",
    "token": "notification",
    "fifo": "",
    "sync": "nixl_agent.check_xfer_state",
    "event": "nixl_agent.check_xfer_state",
    "done": "DONE",
}
