"""``hcomm``: channels and threads without a communicator (facts/hcomm 2.1).

Each channel is a group of two ranks: the end that listens is rank 0, the end that connects is rank 1.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from typing import Annotated, Any

from peerlane import Buffer
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm import _meeting
from peerlane.dialects.hcomm._appointments import Appointment
from peerlane.dialects.hcomm._arguments import (
    Handles,
    HcommChannelDescs,
    UInt32,
    UInt32s,
    field,
    part,
    required,
    within,
    zero,
)
from peerlane.dialects.hcomm._basic import EndpointHandle, HcommEndpoint, memory_of
from peerlane.dialects.hcomm._basic import _lock as lock
from peerlane.dialects.hcomm._codes import AGAIN, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import (
    HcommChannel,
    HcommThread,
    channel_of,
    current_context,
    keep,
    thread_of,
)
from peerlane.dialects.hcomm._header import CONSTANTS, EndpointLocType, HcommSocketRole
from peerlane.dialects.hcomm._settings import settings_of
from peerlane.dialects.hcomm._state import hcomm
from peerlane.dialects.hcomm._threads import AnyEngine
from peerlane.errors import Error, WaitTimeout

_READY, _CONNECTING, _FAILED, _TIMED_OUT = 0, 1, 2, 3
_MOST_NOTIFIES = 64
_MOST_THREADS = 200
_SERVER, _CLIENT = (
    int(HcommSocketRole.HCOMM_SOCKET_ROLE_SERVER),
    int(HcommSocketRole.HCOMM_SOCKET_ROLE_CLIENT),
)


class BasicChannel:
    """A channel without a communicator, with its group and its endpoint.

    ``appointment``: the appointment with the other end.
    """

    def __init__(self, channel: HcommChannel, endpoint: HcommEndpoint, appointment: Appointment) -> None:
        self.channel, self.endpoint, self.appointment = channel, endpoint, appointment
        self.status = _CONNECTING
        self._meeting: _meeting.Meeting | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def connect(
        self, meet: Callable[[], _meeting.Meeting], memories: dict[str, Buffer], notifies: int
    ) -> None:
        """Meet the other end; this runs in a thread of its own."""
        try:
            meeting = meet()
            with self._lock:
                self._meeting = meeting
                is_closed = self._is_closed
            if is_closed:
                meeting.close()
                return
            self.endpoint.offer(meeting.group, memories)
            peer = 1 - meeting.group.rank
            self.channel.connect(meeting.group.channels([peer], notifies=notifies)[0])
            self.status = _READY
        except (Error, Refusal) as error:
            self.status = _TIMED_OUT if isinstance(error, WaitTimeout) else _FAILED
            self.channel.why = f"could not connect: {error}"

    def close(self) -> None:
        """End this end."""
        with self._lock:
            self._is_closed = True
            meeting = self._meeting
        self.appointment.cancel()
        self.channel.abandon()
        if meeting is not None:
            with contextlib.suppress(Error):
                meeting.group.close()
            with contextlib.suppress(Error):
                meeting.close()


_basic: dict[int, BasicChannel] = {}
_Threads = Annotated[UInt32, within(1, _MOST_THREADS, "ask for fewer")]
_Channels = Annotated[UInt32, zero(remedy="pass the number of descriptors")]


@hcomm.call("hcomm.HcommChannelDescInit")
def HcommChannelDescInit(channelDesc: HcommChannelDescs, descNum: UInt32) -> None:
    """Fill descriptors: every bit set, then the header, no notifies, memory, socket, role, port and name.

    Refuses: 2 NULL; 1 fewer than announced
    Basis: S
    """
    if not descNum:
        return
    for each in required("channelDesc", channelDesc, descNum):
        header.fill(each)
        each.header = header.abi_header(header.HcommChannelDesc)
        each.notifyNum = each.memHandleNum = each.port = 0
        each.exchangeAllMems = False
        each.memHandles = each.socket = each.channelName = each.roceAttr.srcPortList = None
        each.role = int(HcommSocketRole.HCOMM_SOCKET_ROLE_RESERVED)
        header.reset_endpoint(each.remoteEndpoint)


@hcomm.call("hcomm.HcommChannelCreate", out=1, blank=lambda *_: ([],))
def HcommChannelCreate(
    endpointHandle: EndpointHandle, engine: AnyEngine, channelDescs: HcommChannelDescs, channelNum: _Channels
) -> list[int]:
    """Begin to make channels, and return at once; ``HcommChannelGetStatus`` tells when they are ready.

    The two ends name one another's endpoints, one is SERVER and one CLIENT, and port and channelName are the same.

    Gives: list of channel
    Refuses: 2 NULL; 6 the endpoint, a memory handle; 1 `channelNum` 0, fewer descriptors, not initialised, role,
        above 64 notifies, name, no engine; 5 engines AIV and CCU, sockets
    Basis: D; C for the codes
    """
    wanted = [_checked(endpointHandle, each) for each in required("channelDescs", channelDescs, channelNum)]
    return [_begin(endpointHandle, engine, *each) for each in wanted]


def _checked(
    endpoint: HcommEndpoint, desc: header.HcommChannelDesc
) -> tuple[bool, str, dict[str, Buffer], int]:
    """Return whether this end listens, the key of the appointment, the memory to exchange, and how many notifies."""
    if not header.is_initialised(desc, header.HcommChannelDesc):
        raise PARA.refusal("a descriptor is not initialised", "call HcommChannelDescInit first")
    role, count, port = field(desc, "role", signed=True), field(desc, "notifyNum"), field(desc, "port")
    if role not in (_SERVER, _CLIENT):
        raise PARA.refusal(f"role is {role}", "set HCOMM_SOCKET_ROLE_SERVER at one end, _CLIENT at the other")
    if count > _MOST_NOTIFIES or port >> 16:
        raise PARA.refusal(f"notifyNum is {count:,}, port {port:,}", f"ask for {_MOST_NOTIFIES} at most")
    if desc.socket is not None:
        raise NOT_SUPPORT.refusal("socket is set", "leave it NULL: the two ends find one another")
    name = desc.channelName or ""
    if not isinstance(name, str) or len(name) > CONSTANTS["HCOMM_CHANNEL_NAME_MAX_LEN"]:
        raise PARA.refusal(f"channelName is {str(name)[:40]!r}", "use a str of up to 191 characters")
    ends = [_words(endpoint.desc), _words(part(desc, "remoteEndpoint", header.EndpointDesc))]
    server, client = ends if role == _SERVER else ends[::-1]
    node = endpoint.context.device.backend.node_hash
    key = hashlib.sha256(repr((node, server, client, port, name)).encode()).hexdigest()[:32]
    if desc.exchangeAllMems:
        memories = {tag: memory for tag, memory, _ in endpoint.memories.values()}
    else:
        listed: object = desc.memHandles or []
        if not isinstance(listed, list | tuple):
            raise PARA.refusal(
                f"memHandles is {listed!r:.60}, not a list", "set memHandles to a list of handles"
            )
        handles = [each or 0 for each in listed[: field(desc, "memHandleNum")]]
        memories = {tag: memory for tag, memory, _ in (memory_of(endpoint, each) for each in handles)}
    return role == _SERVER, key, memories, count


def _words(desc: header.EndpointDesc) -> tuple[Any, ...]:
    address, location = part(desc, "commAddr", header.CommAddr), part(desc, "loc", header.EndpointLoc)
    kind = field(location, "locType", signed=True)
    if kind == EndpointLocType.ENDPOINT_LOC_TYPE_DEVICE:
        where = field(part(location, "device", header.EndpointLocDevice), "devPhyId")
    else:
        where = field(part(location, "host", header.EndpointLocHost), "id")
    addr: object = address.addr
    if not isinstance(addr, bytes | bytearray):
        raise PARA.refusal(
            f"addr of CommAddr is {addr!r:.60}, not bytes", "set addr to the bytes of an address"
        )
    return (kind, where, field(address, "type", signed=True), field(address, "id"), bytes(addr))


def _begin(
    endpoint: HcommEndpoint, engine: int, listens: bool, key: str, memories: dict[str, Buffer], notifies: int
) -> int:
    context, settings = endpoint.context, settings_of(None)
    protocol = field(endpoint.desc, "protocol", signed=True)
    channel = HcommChannel(context, None, engine, protocol, endpoint.own, endpoint.imported)
    handle = keep(channel)
    appointment = Appointment(key, 0 if listens else 1, spans=True)
    basic = BasicChannel(channel, endpoint, appointment)
    with lock:
        _basic[handle] = basic
        endpoint.users += 1

    def meet() -> _meeting.Meeting:
        return appointment.meet("HcommChannelCreate", 2, context.device, settings)

    threading.Thread(
        target=basic.connect, args=(meet, memories, notifies), name="hcomm-channel", daemon=True
    ).start()
    return handle


@hcomm.call("hcomm.HcommChannelGetStatus", out=1, blank=lambda *_: ([],))
def HcommChannelGetStatus(channelList: Handles, listNum: UInt32) -> list[int]:
    """Return how far channels are: 0 ready, 1 connecting, 2 failed, 3 timed out after HCCL_CONNECT_TIMEOUT.

    Gives: list of numbers
    Refuses: 2 NULL; 6 a channel; 1 fewer channels than announced
    Basis: D; C for the codes
    """
    channels = [channel_of(each) for each in required("channelList", channelList, listNum)]
    return [_basic[each.handle].status if each.handle in _basic else _READY for each in channels]


@hcomm.call("hcomm.HcommChannelDestroy")
def HcommChannelDestroy(channels: Handles, channelNum: UInt32) -> None:
    """End channels of ``HcommChannelCreate``, also those that are connecting; all of them or none.

    Refuses: 2 NULL; 6 a channel; 1 fewer channels than announced; 5 a communicator's
    Basis: D; C for the codes
    """
    destroyed = [channel_of(each) for each in required("channels", channels, channelNum)]
    for each in destroyed:
        if each.handle not in _basic:
            raise NOT_SUPPORT.refusal(f"{each} ends with its communicator", "call HcclCommDestroy")
    for each in destroyed:
        with lock:
            basic = _basic.pop(each.handle, None)
            if basic is None:
                continue
            basic.endpoint.users -= 1
            machine.drop(each, "HcommChannelDestroy")
        basic.close()


@hcomm.call("hcomm.HcommThreadAlloc", out=1, blank=lambda *_: ([],))
def HcommThreadAlloc(engine: AnyEngine, threadNum: _Threads, notifyNumPerThread: UInt32s) -> list[int]:
    """Return new threads on this thread's device, each with its number of notifies.

    Gives: list of thread
    Refuses: 2 NULL; 1 `threadNum` 0 or above 200, fewer numbers than threads, above 64 notifies, no engine; 5
        engines AIV and CCU; 15 no device is set
    Basis: D; C for the codes
    """
    counts = required("notifyNumPerThread", notifyNumPerThread, threadNum)
    if max(counts) > _MOST_NOTIFIES:
        raise PARA.refusal(f"a thread wants {max(counts):,} notifies", f"ask for {_MOST_NOTIFIES} at most")
    context = current_context()
    return [keep(HcommThread(context, None, engine, None, count)) for count in counts]


@hcomm.call("hcomm.HcommThreadFree")
def HcommThreadFree(threads: Handles, threadNum: UInt32) -> None:
    """End threads of ``HcommThreadAlloc``; all of them or none.

    Refuses: 2 NULL; 6 a thread; 1 fewer threads than announced; 5 a communicator's; 20 operations are under way
    Basis: D; C for the codes
    """
    freed = [thread_of(each) for each in required("threads", threads, threadNum)]
    for each in freed:
        if each.comm is not None:
            raise NOT_SUPPORT.refusal(f"{each} ends with its communicator", "call HcclCommDestroy")
        if each.is_busy:
            raise AGAIN.refusal(f"{each} has operations that are not over", "call HcommThreadJoin first")
    for each in freed:
        if machine.drop(each, "HcommThreadFree"):
            each.end()


def forget() -> None:
    """Close all channels, as a new process has none."""
    with lock:
        ended = list(_basic.values())
        _basic.clear()
    for each in ended:
        each.close()
