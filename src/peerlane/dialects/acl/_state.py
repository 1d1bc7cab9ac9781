"""What the calls of this dialect share: the machine, the declaration of a call, and the text of a failure."""

from __future__ import annotations

import reprlib

from peerlane.dialects._call import Convention, Failure, Refusal
from peerlane.dialects._machine import Context, Machine, Messages
from peerlane.dialects.acl._codes import FAULTS, REMEDIES, SUCCESS, Code

_LIKE_AN_ADDRESS = 1 << 32


class AclMachine(Machine):
    """The machine, with the peer references of each direction (spec acl 4, "P2P")."""

    default_device: int | None = None  # of the configuration file: not the node's, so it outlives one

    def forget(self) -> None:
        """Drop all that belongs to the node."""
        super().forget()
        self.peer_references: dict[tuple[int, int], int] = {}

    def context(self) -> Context:
        """Return the context of this thread, or refuse with 107002 (spec acl 3 [S])."""
        found = self.current()
        if found is not None:
            return found
        if self.default_device is not None:
            return self.select(self.default_device, share=True)
        raise Refusal(
            Code.RT_CONTEXT_NULL,
            "this thread has no current device: none was set in it, its last reference was reset, or the process "
            "has entered another node",
            f"call acl.rt.set_device(id) in this thread first, id 0 to {len(self.devices()) - 1}",
        )


def _report(failure: Failure) -> None:
    messages.add(_text(failure))


def _text(failure: Failure) -> str:
    """Return the message in the vendor's layout: a code line, then indented lines (spec acl 4, "Error text")."""
    code = Code(failure.code)
    kind = "EE1001" if code < Code.API_NOT_SUPPORT else "E19999"
    if code is Code.RT_MEMORY_ALLOCATION:
        kind = "EL0004"
    given = ", ".join(f"{name}={_shown(value, is_address)}" for name, value, is_address in failure.arguments)
    return (
        f"{kind}: {failure.call} returned {code.value} (ACL_ERROR_{code.name}).\n"
        f"        Called with: {given or 'no arguments'}\n"
        f"        Possible Cause: {failure.cause}.\n"
        f"        Solution: {failure.remedy}."
    )


def _shown(value: object, is_address: bool | None) -> str:
    if not isinstance(value, int):
        return reprlib.repr(value)
    if is_address:
        return machine.describe(value)
    return hex(value) if is_address is None and abs(value) >= _LIKE_AN_ADDRESS else reprlib.repr(value)


machine = AclMachine()
messages = Messages()
acl = Convention(success=SUCCESS, codes=FAULTS, remedies=REMEDIES, report=_report)
