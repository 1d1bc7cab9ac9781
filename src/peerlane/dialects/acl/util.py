"""``acl.util``: pointers to host objects, host objects from pointers, and threads."""

from peerlane.dialects.acl import _host as _host
from peerlane.dialects.acl import _thread as _thread
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl.util"))
__getattr__ = _acl.missing("acl.util")
__dir__ = _acl.names("acl.util")
