"""The message by which ranks find the rendezvous: the machine, the socket there, and a port."""

from __future__ import annotations

import json

from peerlane.errors import BadHandle, Fault, Refused
from peerlane.support.machine_identity import is_machine
from peerlane.support.records import dataclass

LONGEST = 8192  # bytes of a message
_MAGIC = b"peerlane rendezvous 2\n"
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a rendezvous is."""

    machine: str  #: the identity of the sender's machine
    address: str  #: the path of the socket on this machine; empty if the rank serves none
    port: int = 0  #: where a relay of another machine connects; 0 if none can

    def encode(self) -> bytes:
        return _MAGIC + json.dumps([self.machine, self.address, self.port]).encode()

    @classmethod
    def decode(cls, call: str, whose: str, content: object, *, serves: bool = True) -> Whereabouts:
        """Return a message, which may be any object; ``serves``: it must have an address.

        Raises BadHandle: ``HANDLE_VERSION``: it is not such a message.
        """
        fields: object = None
        if isinstance(content, (bytes, bytearray)) and bytes(content).startswith(_MAGIC):
            try:
                fields = json.loads(content[len(_MAGIC) : LONGEST])
            except (ValueError, RecursionError):
                fields = None
        match fields:
            case [str(machine), str(address), int(port)] if (
                is_machine(machine)
                and serves <= len(address) <= _LONGEST_PATH
                and "\0" not in address
                and port in range(1 << 16)
            ):
                return cls(machine, address, int(port))
        raise BadHandle(
            f"{call}: {whose}'s message is not the address of a rendezvous of this version of peerlane",
            fault=Fault.HANDLE_VERSION,
            call=call,
            detail=Refused(reason="no_address", whose=whose),
        )
