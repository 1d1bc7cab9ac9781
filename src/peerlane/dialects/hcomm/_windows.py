"""``hcomm``: symmetric windows, memory of all ranks that each of them has an address of (spec hcomm 2.3)."""

from __future__ import annotations

import contextlib
import json
import threading

from peerlane import Buffer, Handle
from peerlane.dialects._call import Refusal
from peerlane.dialects._machine import Thing
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._arguments import Handle as Number
from peerlane.dialects.hcomm._arguments import Pointer, UInt32, UInt64
from peerlane.dialects.hcomm._codes import NOT_FOUND, PARA
from peerlane.dialects.hcomm._comm import Comm, comm_of, keep, refuse_suspended
from peerlane.dialects.hcomm._elements import memory
from peerlane.dialects.hcomm._state import hcomm, thing
from peerlane.errors import Error

_FLAGS = (0, 1)


class Window(Thing):
    """A symmetric window of a communicator: this rank's memory, and what was asked for of the others'.

    Attributes
    ----------
    comm : Comm
    number : int
        The n-th window of a rank is one with the n-th of the others.
    memory : Buffer
    """

    __slots__ = ("_handle", "_lock", "_peers", "comm", "memory", "number")

    name = "symmetric window"
    is_counted = False

    def __init__(self, comm: Comm, number: int, whole: Buffer) -> None:
        super().__init__(comm.context)
        self.comm, self.number, self.memory = comm, number, whole
        self._peers: dict[int, tuple[int, Buffer | None]] = {}  # address, and what it was opened as
        self._lock = threading.Lock()
        self._handle: Handle | None = None

    def offer(self) -> None:
        """Let the other ranks find this one's memory."""
        group = self.comm.group
        pids = {member.pid for member in group.members} - {group.members[group.rank].pid}
        text = ""
        if pids:
            self._handle = self.memory.export(allow=sorted(pids))
            text = bytes(self._handle).decode()
        self.comm.line.put(
            self._key(group.rank), json.dumps([self.memory.address, self.memory.size, text]).encode()
        )

    def _key(self, rank: int) -> str:
        return f"window/{self.comm.key}/{self.number}/{rank}"

    def of(self, rank: int) -> int:
        """Return the address at which this process has a rank's memory: HCCL_E_PARA if it has another size."""
        group = self.comm.group
        if rank == group.rank:
            return self.memory.address
        with self._lock:
            if rank not in self._peers:
                self._peers[rank] = self._found(rank)
            return self._peers[rank][0]

    def _found(self, rank: int) -> tuple[int, Buffer | None]:
        group, seconds = self.comm.group, self.comm.settings.connect_timeout
        with self.comm.working():
            said = self.comm.line.get(self._key(rank), timeout=seconds)
        address, size, text = json.loads(said)
        if size != self.memory.size:
            raise Refusal(
                PARA,
                f"this window has {self.memory.size:,} bytes, and that of rank {rank} {size:,}",
                "register memory of one size in all ranks, in one order",
            )
        if group.members[rank].pid == group.members[group.rank].pid:
            return int(address), None
        opened = Buffer.open(text, timeout=seconds)
        return opened.address, opened

    def end(self) -> None:
        """Let go of the others' memory; theirs of this one's lives until they let go."""
        peers, self._peers = self._peers, {}
        with contextlib.ExitStack() as ends:
            if self._handle is not None:
                ends.callback(self._handle.close)
            for _, opened in peers.values():
                if opened is not None:
                    ends.callback(opened.close)

    def abandon(self) -> None:
        """As :meth:`end`; nobody is told of failures."""
        with contextlib.suppress(Error):
            self.end()


@hcomm.call("hcomm.HcclCommSymWinRegister", out=1)
def HcclCommSymWinRegister(comm: Number, addr: Pointer, size: UInt64, flag: UInt32) -> int:
    """Make memory of this rank its part of a symmetric window; all ranks do it in one order, with one size.

    The others' parts are looked for when they are asked for.  It ends with the communicator at the latest.

    Gives: window
    Refuses: 2 NULL; 6 the communicator, memory that acl has not given out; 1 `size` 0, `flag` above 1, memory of
        another device; 5 memory of several blocks; 20 a host view of it lives; 22 suspended
    Basis: D; C for the codes
    """
    found = comm_of(comm)
    refuse_suspended(found)
    if not size or flag not in _FLAGS:
        raise Refusal(
            PARA, f"size is {size:,}, flag {flag}", "pass bytes from 1, and HCCL_WIN_COLL_SYMMETRIC or 0"
        )
    whole = memory(found, "addr", addr, size)
    with found.guard:
        made = Window(found, found.next_window, whole)
        made.offer()
        handle = keep(made)
        found.next_window += 1
        found.windows.append(made)
    return handle


@hcomm.call("hcomm.HcclCommSymWinDeregister")
def HcclCommSymWinDeregister(winHandle: Number) -> None:
    """End this rank's hold on a window: what it asked for of the others' memory is no address any more.

    Refuses: 2 NULL; 6 no window
    Basis: D
    """
    found = thing(winHandle, Window)
    with found.comm.guard:
        if not machine.drop(found, "HcclCommSymWinDeregister"):
            thing(winHandle, Window)  # somebody else was quicker
        found.comm.windows.remove(found)
    found.end()


@hcomm.call("hcomm.HcclCommSymWinGet", out=2)
def HcclCommSymWinGet(comm: Number, ptr: Pointer, size: UInt64) -> tuple[int, int]:
    """Return the window in which bytes of this rank lie as a whole, and their first byte there.

    Gives: window, offset
    Refuses: 2 NULL; 6 the communicator, they lie in none
    Basis: D; C for the codes
    """
    found = comm_of(comm)
    with found.guard:
        for each in found.windows:
            first = ptr - each.memory.address
            if ptr and 0 <= first <= each.memory.size - size:
                return each.handle, first
    raise Refusal(
        NOT_FOUND, f"{size:,} bytes at {ptr:#x} lie in no window of {found}", "register them in all ranks"
    )


@hcomm.call("hcomm.HcclSymWinGetPeerPointer", out=1)
def HcclSymWinGetPeerPointer(winHandle: Number, offset: UInt64, peerRank: UInt32) -> int:
    """Return where this process has a byte of a rank's part of a window; it waits until that rank has registered it.

    Gives: address
    Refuses: 2 NULL; 6 no window; 1 no rank, `offset` beyond the window, another size there; 9 the rank did not
        register it within HCCL_CONNECT_TIMEOUT; 21 it died; 19 it cannot be opened
    Basis: D; C for the codes, and for the wait
    """
    found = thing(winHandle, Window)
    size = found.comm.group.size
    if peerRank >= size or offset >= found.memory.size:
        raise Refusal(
            PARA,
            f"peerRank is {peerRank:,} of {size}, offset {offset:,} of {found.memory.size:,}",
            "pass a rank of the communicator, and an offset inside the window",
        )
    return found.of(peerRank) + offset
