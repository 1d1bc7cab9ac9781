"""HCOMM, the communication library under HCCL, on virtual devices: ``import hcomm`` beside ``import acl``.

Names are C's; outputs come back as ``(value, ..., ret)``, ``ret`` alone where there is nothing else.
``docs/reference/hcomm.md`` lists each call.  :func:`explain` explains failed calls.
"""

from peerlane.dialects.hcomm import _basic as _basic
from peerlane.dialects.hcomm import _basic_channels as _basic_channels
from peerlane.dialects.hcomm import _batch as _batch
from peerlane.dialects.hcomm import _buffers as _buffers
from peerlane.dialects.hcomm import _collectives as _collectives
from peerlane.dialects.hcomm import _contexts as _contexts
from peerlane.dialects.hcomm import _fast_paths as _fast_paths
from peerlane.dialects.hcomm import _groups as _groups
from peerlane.dialects.hcomm import _init as _init
from peerlane.dialects.hcomm import _point_to_point as _point_to_point
from peerlane.dialects.hcomm import _probes as _probes
from peerlane.dialects.hcomm import _rank_graph as _rank_graph
from peerlane.dialects.hcomm import _remote as _remote
from peerlane.dialects.hcomm import _signals as _signals
from peerlane.dialects.hcomm import _suspend as _suspend
from peerlane.dialects.hcomm import _system as _system
from peerlane.dialects.hcomm import _teams as _teams
from peerlane.dialects.hcomm import _transfers as _transfers
from peerlane.dialects.hcomm import _windows as _windows
from peerlane.dialects.hcomm._header import CLASSES as _CLASSES
from peerlane.dialects.hcomm._header import CONSTANTS as _CONSTANTS
from peerlane.dialects.hcomm._header import ENUMS as _ENUMS
from peerlane.dialects.hcomm._state import explain as explain
from peerlane.dialects.hcomm._state import hcomm as _hcomm

globals().update(_CONSTANTS)
globals().update({kind.__name__: kind for kind in _ENUMS} | _CLASSES)
globals().update({name: member for kind in _ENUMS for name, member in kind.__members__.items()})
globals().update(_hcomm.functions("hcomm"))
globals().update(_probes.refusing_calls())
globals().update(_probes.probes())
__getattr__ = _hcomm.missing("hcomm")
