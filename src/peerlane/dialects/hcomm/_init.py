"""``hcomm``: making communicators, and ending them (facts/hcomm 2.2)."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _meeting, _rank_table, _suspend
from peerlane.dialects.hcomm._appointments import Appointment
from peerlane.dialects.hcomm._arguments import (
    Config,
    Int32s,
    RequiredBytes,
    RequiredConfig,
    RequiredText,
    UInt32,
    UInt32s,
    UInt64,
    required,
)
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._comm import (
    Comm,
    CommHandle,
    Promised,
    comm_of,
    comms,
    current_context,
    destroy,
    give,
    keep,
    refuse_busy,
    refuse_rank,
)
from peerlane.dialects.hcomm._grouping import kept
from peerlane.dialects.hcomm._header import HcclCommConfig, HcclCommStatePhase
from peerlane.dialects.hcomm._rendezvous import RendezvousAddress
from peerlane.dialects.hcomm._servers import Servers
from peerlane.dialects.hcomm._settings import Settings, settings_of
from peerlane.dialects.hcomm._state import hcomm
from peerlane.errors import Error, WaitTimeout


@hcomm.call("hcomm.HcclGetRootInfo", out=1, blank=(b"",))
def HcclGetRootInfo() -> bytes:
    """Return 4,108 bytes by which the ranks of a communicator find this process; the program sends them to all ranks.

    Gives: info, bytes
    Refuses: 15 no device is set
    Basis: D; C for 15
    """
    current_context()
    return _meeting.new_root_info()


@hcomm.call("hcomm.HcclCommInitRootInfo", out=1)
def HcclCommInitRootInfo(nRanks: UInt32, rootInfo: RequiredBytes, rank: UInt32) -> int:
    """Make a communicator of ``nRanks`` ranks; all call it, within HCCL_CONNECT_TIMEOUT.

    Ranks are processes, or threads of one, on one machine or on several; each machine is a server.  Other machines
    reach the root at the address of ``PEERLANE_INTERFACE``, else where the root reaches ``MASTER_ADDR``.  Who has the
    root info may join, so send it as a secret.

    Gives: comm
    Refuses: 2 NULL; 1 rank, size, no root info, used by this rank before, other ranks say other sizes or settings; 9
        a rank did not come; 15 no device is set; 21 a rank died; 19 another version, the root is on another machine
        and has no address
    Basis: D; C for the codes
    """
    return _by_root_info(nRanks, rootInfo, rank, None)


@hcomm.call("hcomm.HcclCommInitRootInfoConfig", out=1, first=("config",))
def HcclCommInitRootInfoConfig(
    nRanks: UInt32, rootInfo: RequiredBytes, rank: UInt32, config: RequiredConfig
) -> int:
    """As ``HcclCommInitRootInfo``, with a configuration.

    hcclBufferSize, hcclCommName and hcclExecTimeOut count; size, magicWord and version must be what
    ``HcclCommConfigInit`` sets; the other fields have no effect.

    Gives: comm
    Refuses: as `HcclCommInitRootInfo`; 1 a value in it
    Basis: D; C for the codes
    """
    return _by_root_info(nRanks, rootInfo, rank, config)


def _by_root_info(size: int, info: bytes, rank: int, config: HcclCommConfig | None) -> int:
    call = "HcclCommInitRootInfo"
    root = _meeting.root_info(info)
    refuse_rank(rank, size)
    settings = settings_of(config)
    context = current_context()

    def meet() -> _meeting.Meeting:
        with _meeting.using(root.token, rank):
            return _meeting.by_root_info(call, root, rank, size, context.device, settings)

    return _new_comm(call, context, settings, meet)


def _new_comm(
    call: str,
    context: Context,
    settings: Settings,
    meet: Callable[[], _meeting.Meeting],
    table_key: object = None,
    servers: Servers | None = None,
) -> int:
    """Return the handle of a new communicator; in a group, another thread meets the other ranks meanwhile."""
    group = kept(call, "communicators")
    if group is None:
        handle = give(context, meet(), settings, servers=servers)
        comm_of(handle).table_key = table_key
        return handle
    promised, met = Promised(context), Future[_meeting.Meeting]()
    keep(promised)

    def work() -> None:
        try:
            met.set_result(meet())
        except BaseException as error:  # noqa: BLE001 - the end of the group raises it
            met.set_exception(error)

    def finish() -> None:
        handle = give(context, met.result(), settings, promised, servers=servers)
        comm_of(handle).table_key = table_key

    def undo() -> None:
        if machine.drop(promised, "HcclGroupEnd"):
            met.add_done_callback(_leave)

    group.calls.append((call, finish))
    group.undo.append(undo)
    threading.Thread(target=work, name=f"peerlane-{call}", daemon=True).start()
    return promised.handle


def _leave(met: Future[_meeting.Meeting]) -> None:
    if met.exception() is None:
        with contextlib.suppress(Error):
            met.result().group.close()
        met.result().close()


@hcomm.call("hcomm.HcclCommInitClusterInfo", out=1)
def HcclCommInitClusterInfo(clusterInfo: RequiredText, rank: UInt32) -> int:
    """Make the communicator that a rank table describes, a JSON file that all ranks read (facts/hcomm 2.2).

    Its servers may be machines, or several of them one machine.  Ranks of several machines meet by the variables of
    their launcher, and have the table as the same bytes.

    Gives: comm
    Refuses: 2 NULL; 10 no file; 1 path, rank, table, another device than the table's is set, made and not destroyed,
        a server is on several machines; 9, 15, 19, 21 as `HcclCommInitRootInfo`
    Basis: D; C for the codes
    """
    return _by_table(clusterInfo, rank, None)


@hcomm.call("hcomm.HcclCommInitClusterInfoConfig", out=1, first=("config",))
def HcclCommInitClusterInfoConfig(clusterInfo: RequiredText, rank: UInt32, config: RequiredConfig) -> int:
    """As ``HcclCommInitClusterInfo``, with a configuration as ``HcclCommInitRootInfoConfig`` takes.

    Gives: comm
    Refuses: as `HcclCommInitClusterInfo`; 1 a value in it
    Basis: D; C for the codes
    """
    return _by_table(clusterInfo, rank, config)


def _by_table(path: str, rank: int, config: HcclCommConfig | None) -> int:
    table = _rank_table.read(path)
    refuse_rank(rank, len(table.devices))
    settings = settings_of(config)
    context = current_context()
    if context.device.ordinal != table.devices[rank]:
        raise PARA.refusal(
            f"the rank table says device {table.devices[rank]} for rank {rank}, and device {context.device.ordinal} "
            "is set",
            f"call acl.rt.set_device({table.devices[rank]}) first",
        )
    table_key = (table.digest, rank)
    if any(each.table_key == table_key for each in comms()):
        raise PARA.refusal(
            f"this process has made the communicator of rank {rank} of this table already",
            "destroy it before it is made anew, or use HcclCreateSubCommConfig",
        )
    call, size = "HcclCommInitClusterInfo", len(table.devices)

    def meet() -> _meeting.Meeting:
        appointment = Appointment(table.digest, rank, spans=len(table.servers.sizes) > 1)
        return appointment.meet(call, size, context.device, settings)

    return _new_comm(call, context, settings, meet, table_key, table.servers)


@hcomm.call("hcomm.HcclCommInitAll", out=1, blank=lambda *_: ([],))
def HcclCommInitAll(ndev: UInt32, devices: Int32s) -> list[int]:
    """Make a communicator of devices of this process; rank ``i`` is on ``devices[i]``.

    Each communicator is used by one thread, which sets its device.

    Gives: list of comm, in the order of ranks
    Refuses: 2 NULL; 1 `ndev`, a device twice, no such device; 15 in a forked child
    Basis: D; C for the codes
    """
    wanted = required("devices", devices, ndev)
    refuse_rank(0, ndev)
    present = len(machine.visible())
    wrong = next((each for each in wanted if not 0 <= each < present), None)
    if wrong is not None or len(set(wanted)) < len(wanted):
        what = f"there is no device {wrong}" if wrong is not None else f"a device is listed twice: {wanted}"
        raise PARA.refusal(
            f"{what}; this node has {present}", f"list each of 0 to {present - 1} once at most"
        )
    settings = settings_of(None)
    contexts = [_context_of(each) for each in wanted]
    call = "HcclCommInitAll"
    _, address, end = _meeting.serve(call, ndev, spans=False)
    key = os.urandom(16).hex()
    ends = [end, *(_meeting.nothing for _ in wanted[1:])]
    with contextlib.ExitStack() as undo, ThreadPoolExecutor(ndev) as pool:
        futures = [
            pool.submit(_meeting.meet, call, address, rank, ndev, key, context.device, settings, ends[rank])
            for rank, context in enumerate(contexts)
        ]
        meetings = [each.result() for each in futures]
        handles = []
        for context, meeting in zip(contexts, meetings, strict=True):
            handles.append(give(context, meeting, settings))
            undo.callback(_drop, handles[-1])
        undo.pop_all()
    return handles


def _context_of(ordinal: int) -> Context:
    """Return the context of a device that threads share; the current context of this thread stays."""
    before = machine.thread.context
    try:
        return machine.select(ordinal, share=True)
    finally:
        machine.thread.context = before


def _drop(handle: int) -> None:
    with contextlib.suppress(Refusal, Error):
        destroy(comm_of(handle), "HcclCommInitAll")


@hcomm.call("hcomm.HcclCreateSubCommConfig", out=1)
def HcclCreateSubCommConfig(
    comm: CommHandle,
    rankNum: UInt32,
    rankIds: UInt32s,
    subCommId: UInt64,
    subCommRankId: UInt32,
    config: Config,
) -> int:
    """Make a communicator of some ranks of another one; they all pass the same ``rankIds`` and ``subCommId``.

    A rank that is not among them may pass ``rankNum`` 0 and ``rankIds`` None, and gets 0.

    Gives: comm
    Refuses: 2 NULL; 6 the communicator; 1 `rankIds`, `subCommRankId`, a value in the configuration; 9, 21 as
        `HcclCommInitRootInfo`
    Basis: D; C for the codes, and for ranks that are not among them
    """
    if not rankNum and rankIds is None:
        return 0
    ids = required("rankIds", rankIds, rankNum)
    wanted = required("config", config)
    size = comm.group.size
    if not ids or len(set(ids)) < len(ids) or max(ids) >= size:
        raise PARA.refusal(
            f"rankIds is {ids[:16]}; valid are ranks below {size}, each once",
            "list the ranks of the communicator that belong to the new one",
        )
    if subCommRankId >= len(ids) or ids[subCommRankId] != comm.group.rank:
        raise PARA.refusal(
            f"subCommRankId is {subCommRankId}, and rank {comm.group.rank} is not at that place of {ids[:16]}",
            "pass the place of this rank in rankIds",
        )
    settings = settings_of(wanted)
    with comm.working():
        meeting = _of_some(comm, ids, subCommId, subCommRankId, settings)
    return give(comm.context, meeting, settings, servers=comm.servers.of(ids))


def _of_some(parent: Comm, ids: list[int], number: int, rank: int, settings: Settings) -> _meeting.Meeting:
    """Meet at an address that the first of the ranks publishes at the rendezvous of the parent communicator."""
    members = ".".join(map(str, ids)) if len(ids) < 32 else _meeting.digest_of(repr(ids).encode())
    where, size, device = f"{number}.{members}", len(ids), parent.group.device
    call = "HcclCreateSubCommConfig"
    if rank:
        key, address = _next_meeting(parent, where, settings)
        return _meeting.meet(call, address, rank, size, key, device, settings)
    key = _meeting.digest_of(f"{parent.key}.{where}.{_next(parent, where)}".encode())
    spans = not all(parent.group.members[each].is_here for each in ids)
    _, address, end = _meeting.serve(call, size, spans=spans)
    parent.rendezvous.put(f"sub/{key}", address.encode())
    try:
        return _meeting.meet(call, address, rank, size, key, device, settings, end)
    except BaseException:
        with contextlib.suppress(Error):
            parent.rendezvous.put(f"sub/{key}", b"")  # a late rank waits for the next meeting
        raise


def _next(parent: Comm, where: str) -> int:
    return _meeting.next_use(f"{parent.key}.{parent.group.rank}.{where}")


def _next_meeting(parent: Comm, where: str, settings: Settings) -> tuple[str, RendezvousAddress]:
    """Return the key and the address of the next meeting that the first of the ranks has not cancelled."""
    deadline = time.monotonic() + settings.connect_timeout
    while True:
        use = _next(parent, where)
        key = _meeting.digest_of(f"{parent.key}.{where}.{use}".encode())
        try:
            message = parent.rendezvous.get(f"sub/{key}", timeout=max(0.0, deadline - time.monotonic()))
        except WaitTimeout:
            _meeting.take_back(f"{parent.key}.{parent.group.rank}.{where}", use)
            raise
        if (address := RendezvousAddress.decode(message)) is not None:
            return key, address


@hcomm.call("hcomm.HcclCommDestroy")
def HcclCommDestroy(comm: CommHandle) -> None:
    """End a communicator with its threads, channels and HcclBuffer; memory that peers have mapped lives on with them.

    A communicator may be destroyed while another thread makes its channels: that thread's call fails at once.

    Refuses: 2 NULL; 6 destroyed; 1 in a group of other calls; 20 operations of its threads are under way; 4 strict
        notifies were recorded and not consumed; the communicator is destroyed all the same
    Basis: D
    """
    refuse_busy(comm)

    def end() -> None:
        _suspend.run_callbacks(comm, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_DESTROY_PRE)
        destroy(comm, "HcclCommDestroy")
        _suspend.run_callbacks(comm, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_DESTROY_POST)

    group = kept("HcclCommDestroy", "communicators")
    if group is None:
        end()
    else:
        group.calls.append(("HcclCommDestroy", end))
