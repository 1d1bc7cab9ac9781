"""``hcomm``: symmetric windows: each rank has an address for the memory of every rank (facts/hcomm 2.3)."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Annotated

from peerlane import Buffer, Host
from peerlane.backend.ranks import Lent
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._arguments import HANDLE, Pointer, UInt32, UInt64, meaning
from peerlane.dialects.hcomm._arguments import Handle as Number
from peerlane.dialects.hcomm._codes import NOT_FOUND, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import ActiveComm, Comm, CommHandle, keep
from peerlane.dialects.hcomm._elements import memory
from peerlane.dialects.hcomm._state import HcommResource, drop, hcomm, object_of
from peerlane.ranks.lending import Loan, Terms, borrow

_FLAGS = (0, 1)
#: By key in the rendezvous: the memory that ranks of this process have in windows.
_offered: dict[str, Loan] = {}


class Window(HcommResource):
    """A symmetric window of a communicator: the memory of this rank, and that of peers that were asked for."""

    __slots__ = ("_opening", "_is_over", "_loan", "_lock", "_peers", "_reached", "comm", "memory", "tag")

    name = "symmetric window"
    ended_by = "HcclCommSymWinDeregister"

    def __init__(self, comm: Comm, key: str, whole: Buffer) -> None:
        super().__init__(comm.context)
        #: ``tag``: the same in all ranks; no other window has it.
        self.comm, self.tag, self.memory = comm, f"window/{comm.key}/{key}", whole
        self._peers: dict[int, tuple[Buffer, bool]] = {}  # by rank: its memory, and whether it was opened
        self._reached: set[int] = set()
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._loan = Loan(whole)
        self._is_over = False

    def offset_of(self, address: int, nbytes: int) -> int | None:
        """Return the offset of bytes in this rank's part; None if they are not inside it, or it was freed."""
        if self.memory.is_closed:
            return None
        first = address - self.memory.address
        return first if 0 <= first <= self.memory.size - nbytes else None

    def offer(self) -> None:
        """Announce the memory of this rank to the others: HCCL_E_NOT_SUPPORT for host memory."""
        if isinstance(self.memory.device, Host):
            raise NOT_SUPPORT.refusal(
                f"{self.memory!r} is memory of the host, which nothing lets other processes reach",
                "copy it to a device",
            )
        group = self.comm.group
        neighbours = self.comm.servers.ranks_with(group.rank)
        pids = {group.members[each].pid for each in neighbours} - {group.members[group.rank].pid}
        announcement: list[object] = [self.memory.size, "", None]
        if pids:
            handle, terms = self._loan.offer(sorted(pids))
            announcement[1:] = bytes(handle).decode(), terms and terms.encode()
        _offered[self._key(group.rank)] = self._loan
        self.comm.rendezvous.put(self._key(group.rank), json.dumps(announcement).encode())

    def _key(self, rank: int) -> str:
        return f"{self.tag}/{rank}"

    def of(self, rank: int) -> int:
        """Return the address at which this process has a rank's memory: HCCL_E_PARA if it has another size."""
        return self._part(rank).address

    def reach(self, rank: int) -> bool:
        """Let the channels to a rank reach its memory; return False if they did before."""
        theirs = self._part(rank)
        with self._lock:
            self._refuse_over()
            if rank in self._reached:
                return False
            if not self._reached:
                self.comm.regions.add(self.tag, self.memory)
            self._reached.add(rank)
            self.comm.reached(rank).add(self.tag, theirs)
        self.comm.rendezvous.put(f"{self._key(self.comm.group.rank)}/{rank}", b"1")
        return True

    def meet(self, rank: int) -> None:
        """Wait until a rank reaches the memory of this one: a window must not end while a peer opens it."""
        with self.comm.working():
            key = f"{self._key(rank)}/{self.comm.group.rank}"
            self.comm.rendezvous.get(key, timeout=self.comm.settings.connect_timeout)

    def _part(self, rank: int) -> Buffer:
        if rank == self.comm.group.rank:
            return self.memory
        if not self.comm.servers.are_one(rank, self.comm.group.rank):
            raise NOT_SUPPORT.refusal(
                f"rank {rank} is in another server, where this rank has no addresses for memory",
                "register the memory with HcclCommMemReg and use a channel; windows join ranks of a server, which "
                "HcclTeamGetLsaTeam has",
            )
        with self._opening:  # not the lock that end() takes: end() must not wait for another rank
            if rank not in self._peers:
                memory, is_opened = self._open_part(rank)
                with self._lock:
                    if self._is_over and is_opened:
                        memory.close()
                    self._refuse_over()
                    self._peers[rank] = memory, is_opened
            return self._peers[rank][0]

    def _refuse_over(self) -> None:
        if self._is_over:
            raise NOT_FOUND.refusal(
                f"{self} was ended meanwhile", "end a window when no rank uses it any more"
            )

    def _open_part(self, rank: int) -> tuple[Buffer, bool]:
        group, seconds = self.comm.group, self.comm.settings.connect_timeout
        with self.comm.working():
            announcement = self.comm.rendezvous.get(self._key(rank), timeout=seconds)
        size, text, agreed = json.loads(announcement)
        if size != self.memory.size:
            raise PARA.refusal(
                f"this window has {self.memory.size:,} bytes, and that of rank {rank} {size:,}",
                "register memory of one size in all ranks, in one order",
            )
        name = Lent(f"rank {rank}", f"window {self.tag}", f"{self.ended_by}, or HcclCommDestroy")
        if group.members[rank].pid == group.members[group.rank].pid:
            theirs = _offered.get(self._key(rank))
            if theirs is None:
                raise NOT_FOUND.refusal(
                    f"rank {rank} has ended this window", "end a window when no rank uses it any more"
                )
            return theirs.for_own_process(name), False
        opened, terms = Buffer.open(text, timeout=seconds), Terms.decode(agreed)
        if terms is not None:
            borrow("HcclSymWinGetPeerPointer", opened, terms, seconds, name=name)
        return opened, True

    def end(self) -> None:
        """Close the peers' memory, and take back the memory of this rank."""
        with self._lock:
            self._is_over = True
            peers, self._peers = self._peers, {}
            reached, self._reached = self._reached, set()
        _offered.pop(self._key(self.comm.group.rank), None)
        for rank in reached:
            self.comm.reached(rank).remove(self.tag)
        if reached:
            self.comm.regions.remove(self.tag)
        with contextlib.ExitStack() as ends:
            ends.callback(self._loan.take_back)
            for theirs, is_opened in peers.values():
                if is_opened:
                    ends.callback(theirs.close)


def windows_of(comm: Comm) -> list[Window]:
    """Return the windows of a communicator, without those of its teams."""
    return [each for each in comm.parts if type(each) is Window]


@hcomm.call("hcomm.HcclCommSymWinRegister", out=1)
def HcclCommSymWinRegister(comm: ActiveComm, addr: Pointer, size: UInt64, flag: UInt32) -> int:
    """Make memory of this rank its part of a symmetric window; all ranks do it in one order, with one size.

    The parts of the peers are opened when they are asked for.  A window ends with its communicator at the latest.

    Gives: window
    Refuses: 2 NULL; 6 the communicator, memory that acl has not given out; 1 `size` 0, `flag` above 1, memory of
        another device; 5 memory of several blocks, or of the host; 20 a host view of it lives; 22 suspended
    Basis: D; C for the codes
    """
    if not size or flag not in _FLAGS:
        raise PARA.refusal(
            f"size is {size:,}, flag {flag}", "pass bytes from 1, and HCCL_WIN_COLL_SYMMETRIC or 0"
        )
    whole = memory(comm, "addr", addr, size)
    with comm.guard:
        window = Window(comm, str(comm.next_window), whole)
        window.offer()
        handle = keep(window)
        comm.next_window += 1
        comm.parts.append(window)
    return handle


@hcomm.call("hcomm.HcclCommSymWinDeregister")
def HcclCommSymWinDeregister(winHandle: Annotated[Window, HANDLE, meaning(Window)]) -> None:
    """End a window in this rank: its addresses of the peers' memory are not valid any more.

    Refuses: 2 NULL; 6 no window
    Basis: D
    """
    with winHandle.comm.guard:
        drop(winHandle, "HcclCommSymWinDeregister")
        winHandle.comm.parts.remove(winHandle)
    winHandle.end()


@hcomm.call("hcomm.HcclCommSymWinGet", out=2)
def HcclCommSymWinGet(comm: CommHandle, ptr: Pointer, size: UInt64) -> tuple[int, int]:
    """Return the window in which bytes of this rank lie as a whole, and their first byte there.

    Gives: window, offset
    Refuses: 2 NULL; 6 the communicator, the bytes lie in no window
    Basis: D; C for the codes
    """
    with comm.guard:
        for each in windows_of(comm):
            first = each.offset_of(ptr, size) if ptr else None
            if first is not None:
                return each.handle, first
    raise NOT_FOUND.refusal(
        f"{size:,} bytes at {ptr:#x} lie in no window of {comm}", "register them in all ranks"
    )


@hcomm.call("hcomm.HcclSymWinGetPeerPointer", out=1)
def HcclSymWinGetPeerPointer(winHandle: Number, offset: UInt64, peerRank: UInt32) -> int:
    """Return the address of a byte in a rank's part of a window; wait until that rank has registered it.

    A window of a team is taken too, for the ranks that its channels reach.

    Gives: address
    Refuses: 2 NULL; 6 the window, that rank has ended it; 1 the rank, `offset` beyond the window, another size there;
        5 a rank of another server; 9 the rank did not register it within HCCL_CONNECT_TIMEOUT; 21 it died; 19 it
        cannot be opened; 20 a team's, and HcclTeamChannelsCreate was not called since it was registered
    Basis: D; C for the codes, for the wait, and for teams
    """
    window = machine.resources.get(winHandle)
    window = object_of(type(window) if isinstance(window, Window) else Window, winHandle)
    size = window.comm.group.size
    if peerRank >= size or offset >= window.memory.size:
        raise PARA.refusal(
            f"peerRank is {peerRank:,} of {size}, offset {offset:,} of {window.memory.size:,}",
            "pass a rank of the communicator, and an offset inside the window",
        )
    return window.of(peerRank) + offset
