"""``acl``: pyACL on virtual devices.  See ``docs/reference/acl.md`` for what works, refuses and is absent."""

from peerlane.dialects.acl import _absent as _absent
from peerlane.dialects.acl import _system as _system
from peerlane.dialects.acl import rt as rt
from peerlane.dialects.acl import util as util
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl"))
