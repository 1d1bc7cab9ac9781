"""The vendor's enums and exceptions (facts/nixl 2)."""

from __future__ import annotations

import enum

DEFAULT_COMM_PORT = 8888
NIXL_INIT_AGENT = ""  #: stands for an agent's name: the caller's own side of a transfer
HAVE_UCX_GPU_DEVICE_API = False


class _Enum(enum.IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class nixl_mem_t(_Enum):
    """Kinds of memory."""

    DRAM_SEG = 0
    VRAM_SEG = 1
    BLK_SEG = 2
    OBJ_SEG = 3
    FILE_SEG = 4


class nixl_xfer_op_t(_Enum):
    """What a transfer does."""

    NIXL_READ = 0
    NIXL_WRITE = 1


class nixl_status_t(_Enum):
    """The outcome of a call."""

    NIXL_IN_PROG = 1
    NIXL_SUCCESS = 0
    NIXL_ERR_NOT_POSTED = -1
    NIXL_ERR_INVALID_PARAM = -2
    NIXL_ERR_BACKEND = -3
    NIXL_ERR_NOT_FOUND = -4
    NIXL_ERR_MISMATCH = -5
    NIXL_ERR_NOT_ALLOWED = -6
    NIXL_ERR_REPOST_ACTIVE = -7
    NIXL_ERR_UNKNOWN = -8
    NIXL_ERR_NOT_SUPPORTED = -9


class nixl_thread_sync_t(_Enum):
    """Whether several threads may use one agent."""

    NIXL_THREAD_SYNC_NONE = 0
    NIXL_THREAD_SYNC_STRICT = 1
    NIXL_THREAD_SYNC_RW = 2
    NIXL_THREAD_SYNC_DEFAULT = 0


class nixl_cost_t(_Enum):
    """How a cost was estimated."""

    NIXL_COST_ANALYTICAL_BACKEND = 0


class Failure(Exception):
    """A failed call: the vendor's code, the cause, and what to do.

    Attributes
    ----------
    cause, remedy : str
    """

    code = ""

    def __init__(self, cause: str = "", remedy: str = "") -> None:
        self.cause, self.remedy = cause, remedy
        super().__init__(": ".join(filter(None, (self.code, "; ".join(filter(None, (cause, remedy)))))))

    def __reduce__(self) -> tuple[type[Failure], tuple[str, str]]:
        return type(self), (self.cause, self.remedy)


class nixlBackendError(Failure):
    """A back-end refused, or failed."""

    code = "NIXL_ERR_BACKEND"


class nixlCancelledError(Failure):
    """The transfer was cancelled."""

    code = "NIXL_ERR_CANCELED"


class nixlInvalidParamError(Failure):
    """An argument is impossible."""

    code = "NIXL_ERR_INVALID_PARAM"


class nixlMismatchError(Failure):
    """Bytes are not what they claim to be."""

    code = "NIXL_ERR_MISMATCH"


class nixlNoTelemetryError(Failure):
    """Telemetry is off."""

    code = "NIXL_ERR_NO_TELEMETRY"


class nixlNotAllowedError(Failure):
    """The state of the agent forbids it."""

    code = "NIXL_ERR_NOT_ALLOWED"


class nixlNotFoundError(Failure):
    """There is no such agent, memory or plugin."""

    code = "NIXL_ERR_NOT_FOUND"


class nixlNotPostedError(Failure):
    """The transfer was never posted."""

    code = "NIXL_ERR_NOT_POSTED"


class nixlNotSupportedError(Failure):
    """The back-end does not do this."""

    code = "NIXL_ERR_NOT_SUPPORTED"


class nixlRemoteDisconnectError(Failure):
    """The other agent's process has ended."""

    code = "NIXL_ERR_REMOTE_DISCONNECT"


class nixlRepostActiveError(Failure):
    """The transfer is still under way."""

    code = "NIXL_ERR_REPOST_ACTIVE"


class nixlUnknownError(Failure):
    """Anything else."""

    code = "NIXL_ERR_UNKNOWN"


ENUMS = (nixl_mem_t, nixl_xfer_op_t, nixl_status_t, nixl_thread_sync_t, nixl_cost_t)
EXCEPTIONS = tuple(Failure.__subclasses__())


def checked(call: str, name: str, value: object, *kinds: type) -> None:
    """Refuse an argument of another type, as the vendor's bindings do: TypeError."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{call}: {name} is {wanted}, not {type(value).__name__} ({value!r:.60})")
