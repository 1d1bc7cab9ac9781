"""``acl.mdl``: models.  Every call refuses, in its own shape: see ``docs/reference/acl.md``."""

from peerlane.dialects.acl._elsewhere import calls_of as _calls_of
from peerlane.dialects.acl._state import acl as _acl

__getattr__ = _calls_of("acl.mdl")
__dir__ = _acl.names("acl.mdl")
