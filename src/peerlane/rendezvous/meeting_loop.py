"""The serving thread of a rendezvous: what requests do, of processes of this machine and of others."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from selectors import EVENT_READ

from peerlane.rendezvous.frames import (
    MAX_VALUE,
    BadFrame,
    Operation,
    Request,
    Status,
    decode_entries,
    decode_keys,
    decode_source,
)
from peerlane.rendezvous.hangs import Hangs
from peerlane.rendezvous.loop import Connection, Timed, no_room
from peerlane.rendezvous.machines import Elsewhere, Machine, Relayed, ServingMachines
from peerlane.rendezvous.meeting import Meeting, cost
from peerlane.rendezvous.strangers import to_give_up
from peerlane.rendezvous.wait_reports import decode_report, encode_reply

MOST_STRANGERS = 64  # connections whose other end has not proved yet that it knows the secret
log = logging.getLogger("peerlane.rendezvous")


class MeetingLoop(ServingMachines):
    """Serves a rendezvous.

    ``listener``, ``size``: as `Loop` has them.
    ``follow``: count a rank as lost if its process ends with a rendezvous open.
    """

    def __init__(self, listener: socket.socket, size: int, *, follow: bool) -> None:
        super().__init__(listener, size)
        self.meeting = Meeting(size)
        self.hangs = Hangs(self.meeting, self._requests_of)
        self.machines: set[Machine] = set()
        self.relayed: set[Relayed] = set()
        #: Called with the name of a machine that is lost, and the reason.
        self.on_lost_machine: Callable[[str, str], None] | None = None
        self._follow = follow
        self._name = os.urandom(16).hex().encode()  # for event logs: relays have addresses of their own
        self._members: dict[
            int | Elsewhere, Counter[int]
        ] = {}  # by process: how many it has open as each rank
        self._links: socket.socket | None = None

    def listen_for_machines(self, listener: socket.socket, secret: bytes, unreachable: float) -> None:
        """Serve relays that connect to a listening socket, which becomes the loop's; before `serve`."""
        listener.setblocking(False)
        self._links = listener
        self.listen_to(listener, EVENT_READ, lambda: self._accept_machine(listener, secret, unreachable))

    def _accept_machine(self, listener: socket.socket, secret: bytes, unreachable: float) -> None:
        if (incoming := self.accepted(listener)) is None:
            return
        accepted, address = incoming
        strangers = [each for each in self.machines if not each.is_open]
        if len(strangers) >= MOST_STRANGERS:
            strangers.sort(key=lambda each: each.began)
            dropped = to_give_up(strangers, lambda each: each.address, address[0])
            log.warning(
                "gave up a connection from %s: %d have not proved anything yet",
                dropped.address,
                len(strangers),
            )
            dropped.leave()
        self.machines.add(Machine(accepted, address[0], self, secret, unreachable))

    def timed(self) -> Iterable[Timed]:
        return *self.connections, *self.machines, *self.relayed

    def release(self) -> None:
        for machine in list(self.machines):
            machine.leave()
        super().release()
        if self._links is not None:
            self._links.close()

    def when_left(self, callback: Callable[[], None]) -> None:
        self.meeting.when_left(callback)

    def withdraw(self, connection: Connection | Relayed) -> None:
        self.meeting.withdraw(connection)

    def why_waiting(self, connection: Connection | Relayed) -> tuple[str, list[int]]:
        return self.meeting.missing(connection), self.meeting.awaited(connection)

    def reserve(self, request: Request) -> int | None:
        if request.operation not in (Operation.PUT, Operation.PUT_ALL, Operation.GATHER):
            return 0
        nbytes = cost("", request.value_bytes) + request.key_bytes
        return nbytes if self.meeting.charge(request.rank, nbytes) else None

    def give_back(self, rank: int, nbytes: int) -> None:
        self.meeting.charge(rank, -nbytes)

    def handle(self, connection: Connection) -> None:
        self.hangs.note(connection.rank, connection.pid)
        if connection.operation is Operation.REPORT:
            self._hear_report(connection)
        else:
            self.carry_out(connection)

    def carry_out(self, connection: Connection | Relayed) -> None:
        operation, rank = connection.operation, connection.rank
        if operation is Operation.PUT:
            self.meeting.put(rank, connection.key, connection.value, _machine_of(connection))
            connection.answer(Status.OK, [])
        elif operation is Operation.PUT_ALL:
            self._put_all(connection)
        elif operation is Operation.GET:
            self._get(connection)
        elif operation is Operation.GET_PRESENT:
            if (keys := _keys_of(connection)) is not None:
                connection.answer(Status.OK, self.meeting.present(keys, MAX_VALUE))
        elif operation is Operation.DELETE:
            if (keys := _keys_of(connection)) is not None:
                for key in keys:
                    self.meeting.delete(key)
                connection.answer(Status.OK, [])
        elif operation is Operation.CLEAR:
            self.meeting.clear(connection.key)
            connection.answer(Status.OK, [])
        elif operation is Operation.CLOSE:
            self._leave(connection.pid, rank)
            connection.answer(Status.OK, [])
        elif operation is Operation.OPEN:
            self._open(connection)
        else:
            self.meeting.meet(connection)

    def _get(self, connection: Connection | Relayed) -> None:
        try:
            source = decode_source(connection.value, self.size)
        except BadFrame as error:
            connection.answer(Status.INVALID, [str(error).encode()])
            return
        self.meeting.get(connection, source)

    def _put_all(self, connection: Connection | Relayed) -> None:
        rank, nbytes = connection.rank, len(connection.value)
        charged = cost(connection.key, nbytes)
        try:
            entries = decode_entries(connection.value)
        except BadFrame as error:
            self.give_back(rank, charged)
            connection.answer(Status.INVALID, [str(error).encode()])
            return
        if self.meeting.put_all(rank, entries, charged, _machine_of(connection)):
            connection.answer(Status.OK, [])
        else:
            self.give_back(rank, charged)
            connection.answer(Status.FULL, [no_room(rank, nbytes).encode()])

    def _requests_of(self, pid: int) -> list[Connection]:
        of_process = [it for it in self.connections if it.pid == pid and it.is_waiting]
        return [it for it in of_process if it.operation is not Operation.REPORT]

    def _hear_report(self, connection: Connection) -> None:
        try:
            report = decode_report(connection.value)
        except BadFrame as error:
            connection.answer(Status.INVALID, [str(error).encode()])
            return
        reply = self.hangs.hear(connection.rank, connection.pid, report, time.monotonic_ns())
        connection.answer(Status.OK, [encode_reply(reply)])

    def _open(self, connection: Connection | Relayed) -> None:
        if refusal := self.meeting.open(connection.rank):
            connection.answer(Status.LOST, [refusal.encode()])
            return
        if self._follow:
            try:
                self._join(connection)
            except OSError:  # the process has ended already, or no descriptor is left
                connection.close()
                return
        connection.answer(Status.OK, [self._name])

    def _join(self, connection: Connection | Relayed) -> None:
        if connection.pid not in self._members:
            if isinstance(connection, Connection):  # of others the relay watches the process
                self.watch(connection.pid, connection.open_pidfd())
            self._members[connection.pid] = Counter()
        self._members[connection.pid][connection.rank] += 1

    def _leave(self, pid: int | Elsewhere, rank: int) -> None:
        if pid in self._members:
            self._members[pid][rank] -= 1
            if not any(opened[rank] > 0 for opened in self._members.values()):
                self.meeting.leave(rank)

    def on_death(self, pid: int | Elsewhere) -> None:
        for rank, opened in self._members.pop(pid, {}).items():
            who = f"rank {rank} (pid {pid})"
            if opened > 0:
                self.meeting.lose(rank, f"{who} ended without closing its rendezvous")
            elif all(rank not in others for others in self._members.values()):
                self.meeting.end(rank, f"{who} has ended")

    def lose_machine(self, machine: Machine, why: str) -> None:
        pids = [pid for pid in self._members if isinstance(pid, Elsewhere) and pid.machine is machine]
        lost = [(rank, pid) for pid in pids for rank, opened in self._members.pop(pid).items() if opened > 0]
        # Who waits is told of the first one: the lowest rank runs the relay, whose end the others share.
        for rank, pid in sorted(lost, key=lambda each: each[0]):
            self.meeting.lose(rank, f"rank {rank} (pid {pid}) is lost: {why}")
        if self.on_lost_machine is not None and machine.has_joined:
            self.on_lost_machine(machine.name, why)


def _machine_of(connection: Connection | Relayed) -> str:
    """Return the name of the machine that a request comes from, empty for this one."""
    pid = connection.pid
    return pid.machine.name if isinstance(pid, Elsewhere) else ""


def _keys_of(connection: Connection | Relayed) -> list[str] | None:
    """Return the keys that a request holds; refuse it, and return None, if it holds none."""
    try:
        return decode_keys(connection.value)
    except BadFrame as error:
        connection.answer(Status.INVALID, [str(error).encode()])
        return None
