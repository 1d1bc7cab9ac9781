"""``acl.util``: pointers to host objects, and host objects from pointers."""

from peerlane.dialects.acl import _absent as _absent
from peerlane.dialects.acl import _host as _host
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl.util"))
