"""What the rest of peerlane knows of pyACL; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {
    "acl": "peerlane.dialects.acl",
    "acl.rt": "peerlane.dialects.acl.rt",
    "acl.util": "peerlane.dialects.acl.util",
    "acl.blas": "peerlane.dialects.acl.blas",
    "acl.fv": "peerlane.dialects.acl.fv",
    "acl.himpi": "peerlane.dialects.acl.himpi",
    "acl.mdl": "peerlane.dialects.acl.mdl",
    "acl.media": "peerlane.dialects.acl.media",
    "acl.op": "peerlane.dialects.acl.op",
    "acl.prof": "peerlane.dialects.acl.prof",
}
# os._exit: the vendor's own shutdown must not decide the answer
PROBE = """
import os, acl
acl.init()
count, ret = acl.rt.get_device_count()
os._exit(0 if ret == 0 and count > 0 else 1)
"""
VARIABLES = ("ASCEND_RT_VISIBLE_DEVICES",)
ANEW = "peerlane.dialects.acl._system:begin_anew"
EXPLAIN = "peerlane.dialects.acl._state:messages.take_own"
REMEDY = (
    "Memory of acl.rt.malloc ends with acl.rt.free, or when its device was reset as often as it was set;\n"
    "streams, events and notifies with their destroy calls, or with that reset. Contexts, host memory,\n"
    "physical memory and reserved addresses have calls of their own, and no reset ends them."
)
ORDERS = {
    "wait": "acl.rt.wait_and_reset_notify",
    "record": "acl.rt.record_notify",
    "own_record": "acl.rt.record_notify",
    "own_wait": "acl.rt.wait_and_reset_notify",
    "fifo": "",
    "barrier": "",
    "sync": "acl.rt.synchronize_stream",
    "event": "acl.rt.stream_wait_event",
}
LIBRARIES = {
    "ascendcl": "acl",
    "acl_rt": "acl",
}  # newer programs link the second, which has the runtime alone
PREFIX = "acl."
