"""``acl.media``: its memory is device memory; every other call refuses: see ``docs/reference/acl.md``."""

from peerlane.dialects.acl import _media as _media
from peerlane.dialects.acl._elsewhere import calls_of as _calls_of
from peerlane.dialects.acl._state import acl as _acl

__getattr__ = _calls_of("acl.media")
globals().update(_acl.functions("acl.media"))
__dir__ = _acl.names("acl.media")
