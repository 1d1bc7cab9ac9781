"""``acl``: pyACL on virtual devices.  See ``docs/reference/acl.md`` for what works and what refuses."""

from peerlane.dialects.acl import _data_buffer as _data_buffer
from peerlane.dialects.acl import _specification as _specification
from peerlane.dialects.acl import _start_callbacks as _start_callbacks
from peerlane.dialects.acl import _system as _system
from peerlane.dialects.acl import _tensor as _tensor
from peerlane.dialects.acl import blas as blas
from peerlane.dialects.acl import fv as fv
from peerlane.dialects.acl import himpi as himpi
from peerlane.dialects.acl import mdl as mdl
from peerlane.dialects.acl import media as media
from peerlane.dialects.acl import op as op
from peerlane.dialects.acl import prof as prof
from peerlane.dialects.acl import rt as rt
from peerlane.dialects.acl import util as util
from peerlane.dialects.acl._elsewhere import calls_of as _calls_of
from peerlane.dialects.acl._state import acl as _acl

globals().update(_acl.functions("acl"))
__getattr__ = _calls_of("acl")
__dir__ = _acl.names("acl", "blas", "fv", "himpi", "mdl", "media", "op", "prof", "rt", "util")
