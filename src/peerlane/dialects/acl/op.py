"""``acl.op``: operators.  Every call refuses: see ``docs/reference/acl.md``."""

from peerlane.dialects.acl._elsewhere import calls_of as _calls_of

__getattr__ = _calls_of("acl.op")
