"""``acl.rt``: devices, peer access, memory and copies."""

from peerlane.dialects.acl import _absent as _absent
from peerlane.dialects.acl import _copy as _copy
from peerlane.dialects.acl import _device as _device
from peerlane.dialects.acl import _memory as _memory
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl.rt"))
