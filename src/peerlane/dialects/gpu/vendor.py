"""What one vendor of GPUs has of its own: codes, names of calls, and policies; why a call is refused is common."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from peerlane import Device
from peerlane.dialects._shared.call import Refusal
from peerlane.errors import BadArgument, Error, Fault, InvalidValue
from peerlane.support.records import dataclass
from peerlane.support.spelling import did_you_mean


class Reason(enum.Enum):
    """Why a call is refused: in words, with the fault whose code answers where a vendor has none for the reason."""

    INVALID_VALUE = "an argument that no call takes", Fault.INVALID_VALUE
    INVALID_PITCH = "rows that are longer than their pitch", Fault.INVALID_VALUE
    INVALID_POINTER = "an address that the call cannot use", Fault.INVALID_VALUE
    NO_ALLOCATION = "an address that is in no allocation", Fault.INVALID_VALUE
    UNKNOWN_MEMORY = "memory that the vendor does not know", Fault.INVALID_VALUE
    NOT_INITIALIZED = "a process that did not begin to use the vendor's driver, or cannot", Fault.FORKED
    NO_DEVICE = "no device is visible", Fault.INVALID_DEVICE
    INVALID_DEVICE = "a number that no device has", Fault.INVALID_DEVICE
    NO_CONTEXT = "a thread without a current context", Fault.INVALID_VALUE
    INVALID_CONTEXT = "a number that no context has", Fault.INVALID_VALUE
    DEVICE_RESET = "a device that was reset during the call", Fault.CLOSED
    INVALID_HANDLE = "a number that the call cannot use", Fault.INVALID_VALUE
    IN_HOST_FUNCTION = "a call that a host function makes", Fault.DEADLOCK
    NOT_A_STREAM = "a number that no stream has", Fault.CLOSED
    NOT_AN_EVENT = "a number that no event has", Fault.CLOSED
    OTHER_DEVICE = "an event and a stream, or two events, of different devices", Fault.INVALID_VALUE
    NOT_RECORDED = "an event that was never recorded", Fault.NOT_RECORDED
    NOT_TIMED = "an event that was made without times", Fault.NOT_RECORDED
    ILLEGAL_ADDRESS = "queued work that used memory which it could not", Fault.DEVICE_FAULT
    NOT_READY = "work that is not over", Fault.NOT_READY
    OUT_OF_MEMORY = "more memory than there is", Fault.OUT_OF_MEMORY
    UNSUPPORTED = "what virtual devices do not have", Fault.UNSUPPORTED
    UNSUPPORTED_LIMIT = "a limit that no device has", Fault.INVALID_VALUE
    FILE_NOT_WRITTEN = "a file that cannot be written", Fault.INVALID_VALUE
    PEER_SELF = "a device as its own peer", Fault.PEER_SELF
    PEER_UNREACHABLE = "a device that another one cannot reach", Fault.PEER_UNREACHABLE
    PEER_ENABLED = "access that is enabled already", Fault.INVALID_VALUE
    PEER_NOT_ENABLED = "access that is not enabled", Fault.PEER_NOT_ENABLED
    REGISTERED = "memory that the vendor's calls know already", Fault.INVALID_VALUE
    NOT_REGISTERED = "memory that is not registered", Fault.INVALID_VALUE
    WITHIN_REGISTERED = "an address within registered memory in place of its first", Fault.INVALID_VALUE
    NOT_INTERPROCESS = "an event that was made for one process", Fault.INVALID_VALUE
    EVENT_NOT_OPENED = "a handle of which no event can be opened", Fault.BAD_HANDLE
    MEMORY_NOT_OPENED = "a handle of which no memory can be opened", Fault.BAD_HANDLE
    POOL_NOT_OPENED = "a descriptor of which no pool can be opened", Fault.BAD_DESCRIPTOR
    ILLEGAL_STATE = "a stream that is captured, or one that is not", Fault.INVALID_VALUE
    CAPTURE_UNSUPPORTED = "what no capture can record", Fault.INVALID_VALUE
    CAPTURE_INVALIDATED = "a capture that an earlier call made invalid", Fault.INVALID_VALUE
    CAPTURE_MERGE = "a dependency between two captures", Fault.INVALID_VALUE
    CAPTURE_UNMATCHED = "a capture that began on another stream", Fault.INVALID_VALUE
    CAPTURE_UNJOINED = "a forked stream that was not joined", Fault.INVALID_VALUE
    CAPTURE_ISOLATION = "a dependency on work outside the capture", Fault.INVALID_VALUE
    CAPTURE_IMPLICIT = "the null stream during the capture of a blocking stream", Fault.INVALID_VALUE
    CAPTURED_EVENT = "an event whose last record was captured", Fault.INVALID_VALUE
    CAPTURE_WRONG_THREAD = "a capture that another thread began", Fault.INVALID_VALUE
    UPDATE_FAILED = "a graph that does not fit the executable one", Fault.INVALID_VALUE

    def __init__(self, text: str, fault: Fault) -> None:
        self.text = text
        self.fault = fault


class Policy:
    """The rules in which vendors differ, each by its name; a vendor's own may have more.

    Of each rule the first value is the default.

    Attributes
    ----------
    needs_context : {False, True}
        A thread has the first device; or it has none before it makes a context current.
    own_contexts : {False, True}
        A context that the program makes is the primary one of its device; or one of its own.
    peer_copies : {"pass", "strict"}
        A copy between two devices does not ask for peer access; or it fails without it.
    memcpy_peer : {"both", "current"}
        A copy that names the devices of both ends follows earlier work of both, or of the current one alone.
    peer_current : {False, True}
        Where such a copy follows the work of both devices, that of the current one does not count; or it does, too.
    cross_device : {"current", "both"}
        Any other copy between two devices at once follows earlier work of the current device alone, or of both.
    peer_streams : {"blocking", "all"}
        The work of a device that a copy between two devices follows, and that follows it, is that of its blocking
        streams; or of all.
    host_copies : {"queued", "waits"}
        A copy on a stream between two ends in pinned memory of the host is queued; or it is complete on return.
    pool_access : {"peers", "own"}
        Devices reach the memory of pools by peer access, too; or by the access to the pool alone.
    pool_import : {"kept", "none"}
        An imported pool has the access that was set before its export; or none but that of its own device.
    pool_pointers : {"any", "shareable"}
        All memory has a handle for processes that import pools; or only memory of a pool that can be exported, or was
        imported.
    register_again : {"kept", "refused"}
        Host memory that is registered keeps its first size and flags; or a second registration of any of its bytes is
        ``REGISTERED``.
    free_kind : {"any", "own"}
        A call that frees memory frees that of devices and of the host; or only the kind that it is for.
    free_of_pools : {"waits", "returns"}
        The plain free of a pool's memory waits for its device; or it returns at once.
    stream_destroy : {"waits", "returns"}
        The end of a stream waits for its work; or it returns at once, and the stream ends with its work.
    pool_size : {"high", "used"}
        The largest size of a pool bounds all that it ever had since its high mark was reset; or what is in use.
    """

    CHOICES: ClassVar[Mapping[str, tuple[bool | str, ...]]] = MappingProxyType(
        {
            "needs_context": (False, True),
            "own_contexts": (False, True),
            "peer_copies": ("pass", "strict"),
            "memcpy_peer": ("both", "current"),
            "peer_current": (False, True),
            "cross_device": ("current", "both"),
            "peer_streams": ("blocking", "all"),
            "host_copies": ("queued", "waits"),
            "pool_access": ("peers", "own"),
            "pool_import": ("kept", "none"),
            "pool_pointers": ("any", "shareable"),
            "register_again": ("kept", "refused"),
            "free_kind": ("any", "own"),
            "free_of_pools": ("waits", "returns"),
            "stream_destroy": ("waits", "returns"),
            "pool_size": ("high", "used"),
        }
    )

    needs_context: bool
    own_contexts: bool
    peer_copies: str
    memcpy_peer: str
    peer_current: bool
    cross_device: str
    peer_streams: str
    host_copies: str
    pool_access: str
    pool_import: str
    pool_pointers: str
    register_again: str
    free_kind: str
    free_of_pools: str
    stream_destroy: str
    pool_size: str

    def __init__(self, **rules: bool | str) -> None:
        for name, value in rules.items():
            choices = self.CHOICES.get(name)
            if choices is None:
                raise _no_choice(
                    f"there is no policy {name!r}{did_you_mean(name, self.CHOICES)}", name, self.CHOICES
                )
            if value not in choices:
                raise _no_choice(f"{name} is {value!r}", name, choices, value)
        vars(self).update({name: choices[0] for name, choices in self.CHOICES.items()}, **rules)


def _no_choice(text: str, name: str, choices: Iterable[bool | str], value: object = None) -> InvalidValue:
    valid = tuple(choices)
    detail = BadArgument(name, value, choices=valid)
    return InvalidValue(f"{text}; valid are {', '.join(map(str, valid))}", detail=detail)


class CallNames(dict[str, str]):
    """The vendor's calls by what they do; of one that it does not have, what it would do."""

    def __missing__(self, does: str) -> str:
        return f"the call for {does.replace('_', ' ')}"


#: What to do about a fault, with the vendor's calls in braces.
REMEDIES: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "correct the argument that the cause names",
        Fault.INVALID_DEVICE: (
            "pass an id below {device_count}(), or start the program with `peerlane run --devices N`"
        ),
        Fault.BAD_CONFIG: "correct PEERLANE_NODE, or start the program with `peerlane run --devices N`",
        Fault.OUT_OF_MEMORY: (
            "free memory with {free}, look at {memory_info}, or give the devices more: "
            "`peerlane run --node memory=32GiB`"
        ),
        Fault.OUT_OF_RESOURCES: "free what is not needed any more; the cause names what ran out",
        Fault.UNSUPPORTED: "do without it; {reference} lists what works",
        Fault.NULL_ADDRESS: "pass what {malloc} or {malloc_host} returned, or host memory",
        Fault.UNKNOWN_ADDRESS: "pass memory that {malloc} returned and that was not freed",
        Fault.FREED_ADDRESS: "use memory before {free}, and before {reset} of its device",
        Fault.OUT_OF_BOUNDS: "copy fewer bytes, or allocate more with {malloc}",
        Fault.HOST_FAULT: "pass host memory that lives, and keep the object",
        Fault.READ_ONLY: "write to memory that may be written",
        Fault.WRONG_DEVICE: "take all devices and addresses from the node that the process is in now",
        Fault.PEER_SELF: "pass two different devices",
        Fault.PEER_UNREACHABLE: "choose devices for which {can_access_peer} gives 1",
        Fault.PEER_NOT_ENABLED: "call {enable_peer} first",
        Fault.NO_ACCESS: "give the device access with {set_access}",
        Fault.CLOSED: "use it before it is destroyed, and before {reset}",
        Fault.FORKED: "start workers with multiprocessing's 'spawn', or fork before anything uses a device",
        Fault.PROCESS_ENDING: "use devices before the interpreter ends",
        Fault.BUSY: "end the other use first, then call again",
        Fault.CANCELLED: "find the first failure; this one follows from it",
        Fault.PEER_LOST: "look at why the other process ended, then start both again",
        Fault.WAIT_TIMEOUT: "look at why nothing came",
        Fault.BAD_HANDLE: "pass the 64 bytes that {export_memory} gave in this run, unchanged",
        Fault.HANDLE_VERSION: "use one version of peerlane in all processes",
        Fault.STALE_HANDLE: "keep the memory in the process that exported it until the others have opened it",
        Fault.WRONG_KIND: "open memory handles with {open_memory}, event handles with {open_event}",
        Fault.FALSE_CLAIM: "look at the other process; it is broken, or not the one meant",
        Fault.OWN_HANDLE: "use what was exported directly; open it in other processes",
        Fault.NOT_LISTED: "export it anew",
        Fault.PID_REUSED: "export it anew",
        Fault.LISTED_EARLY: "export it anew",
        Fault.OTHER_USER: "run both processes as one user",
        Fault.FOREIGN_NAMESPACE: "run both processes in one container",
        Fault.NODE_MISMATCH: "give all processes of the node the same description",
        Fault.DEVICE_FAULT: "give the system more memory, or allocate less",
        Fault.NOT_RECORDED: "record the event with {record} first",
        Fault.NOT_READY: "synchronize first",
        Fault.CALLBACK_FAILED: "look at what the callback raised",
        Fault.BAD_DESCRIPTOR: "write the descriptor anew",
        Fault.NOTIFY_DOUBLED: "wait between two records",
        Fault.NOTIFY_ORDER: "wait in the order of the records",
        Fault.NOTIFY_LEFT: "wait for each record",
        Fault.DEADLOCK: (
            "submit what the cause waits for, or drop that wait: `peerlane check` names a skipped one"
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Vendor:
    """A vendor of GPUs.

    Attributes
    ----------
    name : str
        In texts: ``"HIP"``.
    codes : mapping of Reason or Fault to int
        The codes of refusals.  A reason that is missing has the code of its fault, and a fault that is missing that
        of ``Fault.INVALID_VALUE``.
    calls : mapping of str to str
        The vendor's calls by what they do, for texts: ``{"malloc": "hipMalloc", ...}``.
    policy : Policy
        Asked at each call, as tests change it.
    visible : callable
        Returns the devices of the node that the program sees.
    hidden_by : str
        What a program corrects that sees no device: the names of the variables that hide devices.
    sticky : frozenset of Fault
        The failures of queued work after which every call of the context fails.
    code_name : callable
        Returns what messages call the code of a call, by the call's name and the code.
    address_types : frozenset of str
        The header's names of types that hold the address of device memory, besides pointers.
    """

    name: str
    codes: Mapping[Reason | Fault, int]
    calls: Mapping[str, str]
    policy: Policy
    visible: Callable[[Sequence[Device]], tuple[Device, ...]] = tuple
    hidden_by: str = "PEERLANE_NODE"
    sticky: frozenset[Fault] = frozenset()
    code_name: Callable[[str, int], str] = lambda call, code: str(code)
    address_types: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not isinstance(self.calls, CallNames):
            names = {"reference": f"the documentation of {self.name}'s dialect", **self.calls}
            object.__setattr__(self, "calls", CallNames(names))

    def code(self, reason: Reason | Fault) -> int:
        """Return the code of a refusal."""
        code = self.codes.get(reason)
        if code is None and isinstance(reason, Reason):
            code = self.codes.get(reason.fault)
        return self.codes[Fault.INVALID_VALUE] if code is None else code

    @property
    def fault_codes(self) -> Mapping[Fault, int]:
        """The code of each fault."""
        return {fault: self.code(fault) for fault in Fault}

    def words(self, text: str) -> str:
        """Return a text with the vendor's names for the calls in braces."""
        return text.format_map(self.calls)

    def refusal(self, reason: Reason, cause: str, remedy: str) -> Refusal:
        """Return the refusal of a call; ``remedy`` has the vendor's calls in braces."""
        return Refusal(self.code(reason), cause, self.words(remedy))

    def invalid(self, cause: str, remedy: str) -> Refusal:
        """Return the refusal of an argument; see :meth:`refusal`."""
        return self.refusal(Reason.INVALID_VALUE, cause, remedy)

    def explain(self, error: Error) -> tuple[str, str]:
        """Return the cause of an error and what to do about it, with the vendor's names."""
        return str(error), self.words(REMEDIES[error.fault])
