"""Other machines, as the server of a rendezvous sees them: by the connection of a relay there."""

from __future__ import annotations

import logging
import socket
import struct
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from peerlane.rendezvous import frames
from peerlane.rendezvous.frames import BadFrame, Operation, Request, Status
from peerlane.rendezvous.link import BadLink, Frame, Kind, Link
from peerlane.rendezvous.loop import NEVER, Connection, Loop, no_room
from peerlane.rendezvous.machine_connection import MachineConnection

PID = struct.Struct("<I")
SIZE = struct.Struct("<I")
MOST_NAME = 255  # bytes of a machine's name
_LONGEST = PID.size + frames.REQUEST_BYTES + frames.MAX_KEY + frames.MAX_VALUE
_MOST_AT_ONCE = 1 << 17  # requests of a machine: each of 65,536 ranks may wait twice
log = logging.getLogger("peerlane.rendezvous")


class ServingMachines(Loop):
    """A loop that serves processes of other machines too."""

    machines: set[Machine]
    relayed: set[Relayed]  #: the requests of other machines that have no answer yet

    @abstractmethod
    def carry_out(self, connection: Connection | Relayed) -> None:
        """Carry out a complete request of a process of any machine."""

    @abstractmethod
    def withdraw(self, connection: Connection | Relayed) -> None:
        """As `Loop` has it."""

    @abstractmethod
    def why_waiting(self, connection: Connection | Relayed) -> tuple[str, list[int]]:
        """As `Loop` has it."""

    @abstractmethod
    def on_death(self, pid: int | Elsewhere) -> None:
        """As `Loop` has it, or reported by a relay."""

    @abstractmethod
    def lose_machine(self, machine: Machine, why: str) -> None:
        """Count all ranks of a machine as lost that have a rendezvous open."""


class Elsewhere(NamedTuple):
    """A process of another machine."""

    machine: Machine
    pid: int

    def __str__(self) -> str:
        return f"{self.pid} on {self.machine.name}"


class Relayed:
    """A request of a process of another machine."""

    def __init__(
        self, machine: Machine, number: int, pid: int, request: Request, key: str, value: bytes
    ) -> None:
        self._machine, self._number = machine, number
        self.pid = Elsewhere(machine, pid)
        self.operation: Operation = request.operation
        self.rank, self.key, self.value = request.rank, key, value
        self.deadline = NEVER if request.timeout is None else time.monotonic() + request.timeout
        self.is_waiting = True

    def on_deadline(self) -> None:
        """Answer a wait that has timed out with what is missing."""
        loop = self._machine.loop
        text, awaited = loop.why_waiting(self)
        loop.withdraw(self)
        self.answer(Status.WAIT_TIMEOUT, [text.encode(), frames.encode_ranks(awaited)])

    def answer(self, status: Status, values: Sequence[bytes], lost: int | None = None) -> None:
        """Send an answer."""
        self._forget()
        self._machine.send(
            Kind.ANSWER, self._number, frames.encode_answer(status, values, lost) + b"".join(values)
        )

    def close(self) -> None:
        """End the wait without an answer."""
        if self.is_waiting:
            self._machine.loop.withdraw(self)
            self._forget()

    def _forget(self) -> None:
        self.is_waiting = False
        self._machine.waiting.pop(self._number, None)
        self._machine.loop.relayed.discard(self)


class Machine(MachineConnection):
    """The connection to a relay."""

    def __init__(
        self, accepted: socket.socket, address: str, loop: ServingMachines, secret: bytes, unreachable: float
    ) -> None:
        #: ``name``: what the relay calls its machine; before that, its address.
        #: ``address``: from where it has connected.
        self.loop, self.name, self.address = loop, address, address
        self.began = time.monotonic()  #: when, in seconds of the monotonic clock
        self.waiting: dict[int, Relayed] = {}  #: the requests that have no answer yet, by their numbers
        self.has_joined = False  #: whether the relay has sent the name of its machine
        link = Link(secret, is_hub=True, longest=_LONGEST)
        super().__init__(accepted, link, loop, unreachable)
        self._write(link.begin())

    def hear(self, frame: Frame) -> None:
        if frame.kind is Kind.JOIN and not self.has_joined and len(frame.body) <= MOST_NAME:
            self.has_joined = True
            self.name = frame.body.decode(errors="replace") or self.address
            self.send(Kind.WELCOME, 0, SIZE.pack(self.loop.size))
        elif not self.has_joined:
            raise BadLink("forged", f"it sends a frame of kind {frame.kind} before it has joined")
        elif frame.kind is Kind.REQUEST:
            self._ask(frame)
        elif frame.kind is Kind.WITHDRAW:
            if (request := self.waiting.get(frame.number)) is not None:
                request.close()
        elif frame.kind is Kind.DIED and len(frame.body) == PID.size:
            self.loop.on_death(Elsewhere(self, *PID.unpack(frame.body)))
        elif frame.kind is Kind.BYE:
            self._lose("the relay there has ended")
        elif frame.kind is not Kind.ALIVE:
            raise BadLink(
                "forged", f"a relay sends no frame of kind {frame.kind} with {len(frame.body)} bytes"
            )

    def _ask(self, frame: Frame) -> None:
        head, body = (
            frame.body[PID.size :][: frames.REQUEST_BYTES],
            frame.body[PID.size + frames.REQUEST_BYTES :],
        )
        try:
            request = frames.decode_request(head)
            key = body[: request.key_bytes].decode()
        except (BadFrame, struct.error, UnicodeDecodeError) as error:
            raise BadLink("forged", f"a request is none: {error}") from None
        if len(body) != request.key_bytes + request.value_bytes or request.operation is Operation.REPORT:
            raise BadLink("forged", f"a request has {len(body):,} bytes behind its head")
        if frame.number in self.waiting or len(self.waiting) >= _MOST_AT_ONCE:
            raise BadLink("forged", f"request {frame.number} is there already, or {_MOST_AT_ONCE:,} wait")
        (pid,) = PID.unpack(frame.body[: PID.size])
        relayed = Relayed(self, frame.number, pid, request, key, body[request.key_bytes :])
        self.waiting[frame.number] = relayed
        self.loop.relayed.add(relayed)
        if request.size != self.loop.size:
            text = f"this rank was told a size of {request.size}; it serves {self.loop.size}"
            relayed.answer(Status.INVALID, [text.encode()])
        elif self.loop.reserve(request) is None:
            relayed.answer(Status.FULL, [no_room(request.rank, request.value_bytes).encode()])
        else:
            self.loop.carry_out(relayed)

    def close(self) -> None:
        super().close()
        self.loop.machines.discard(self)
        for request in list(self.waiting.values()):
            request.close()

    def lost(self, why: str) -> None:
        if not self.has_joined:
            log.warning("refused a connection from %s: %s", self.address, why)
        self.loop.lose_machine(self, why)
