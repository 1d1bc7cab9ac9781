"""``nixl._bindings``: the vendor's native names."""

from peerlane.dialects.nixl._agent import nixlAgent as nixlAgent
from peerlane.dialects.nixl._agent import nixlAgentConfig as nixlAgentConfig
from peerlane.dialects.nixl._agent import nixlXferTelemetry as nixlXferTelemetry
from peerlane.dialects.nixl._descs import nixlRegDList as nixlRegDList
from peerlane.dialects.nixl._descs import nixlRemoteDList as nixlRemoteDList
from peerlane.dialects.nixl._descs import nixlXferDList as nixlXferDList
from peerlane.dialects.nixl._status import DEFAULT_COMM_PORT as DEFAULT_COMM_PORT
from peerlane.dialects.nixl._status import ENUMS as _ENUMS
from peerlane.dialects.nixl._status import EXCEPTIONS as _EXCEPTIONS
from peerlane.dialects.nixl._status import HAVE_UCX_GPU_DEVICE_API as HAVE_UCX_GPU_DEVICE_API
from peerlane.dialects.nixl._status import NIXL_INIT_AGENT as NIXL_INIT_AGENT

globals().update({_kind.__name__: _kind for _kind in _ENUMS})
globals().update({_kind.__name__: _kind for _kind in _EXCEPTIONS})
globals().update({name: member for kind in _ENUMS for name, member in kind.__members__.items()})
