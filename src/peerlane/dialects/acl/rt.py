"""``acl.rt``: devices, contexts, memory and its sharing, copies, streams, events, notifies and callbacks."""

from peerlane.dialects.acl import _access as _access
from peerlane.dialects.acl import _allocator as _allocator
from peerlane.dialects.acl import _async as _async
from peerlane.dialects.acl import _attribute as _attribute
from peerlane.dialects.acl import _batch as _batch
from peerlane.dialects.acl import _callback as _callback
from peerlane.dialects.acl import _context as _context
from peerlane.dialects.acl import _copy as _copy
from peerlane.dialects.acl import _descriptor as _descriptor
from peerlane.dialects.acl import _device as _device
from peerlane.dialects.acl import _event as _event
from peerlane.dialects.acl import _failure as _failure
from peerlane.dialects.acl import _ipc as _ipc
from peerlane.dialects.acl import _kernels as _kernels
from peerlane.dialects.acl import _memory as _memory
from peerlane.dialects.acl import _notify as _notify
from peerlane.dialects.acl import _reduce as _reduce
from peerlane.dialects.acl import _register as _register
from peerlane.dialects.acl import _shareable as _shareable
from peerlane.dialects.acl import _specification as _specification
from peerlane.dialects.acl import _stream as _stream
from peerlane.dialects.acl import _value as _value
from peerlane.dialects.acl import _virtual as _virtual
from peerlane.dialects.acl._elsewhere import calls_of as _calls_of
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl.rt"))
__getattr__ = _calls_of("acl.rt")
__dir__ = _acl.names("acl.rt")
