"""The table of calls of this dialect, and the texts of failures.

Communicators, threads and channels are objects of acl's machine, in the contexts of ``acl``.  Streams, memory and
notifies are those of ``acl``.
"""

from __future__ import annotations

import contextlib
import reprlib
from typing import TypeVar

from peerlane.dialects._shared.call import Convention, Failure
from peerlane.dialects._shared.machine import Resource, with_article
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects.acl._state import laid_out, machine
from peerlane.dialects.acl._state import messages as acl_messages
from peerlane.dialects.hcomm._codes import FAULTS, NOT_FOUND, PTR, REMEDIES, RUNTIME, SUCCESS
from peerlane.dialects.hcomm._header import HcclResult
from peerlane.errors import Error


class HcommResource(Resource):
    """An object of HCOMM that a program holds by its handle."""

    __slots__ = ()

    is_counted = False

    def abandon(self) -> None:
        """As :meth:`end`, without errors."""
        with contextlib.suppress(Error):
            self.end()


_Kind = TypeVar("_Kind", bound=Resource)
_LIKE_AN_ADDRESS = 1 << 32
_HANDLES = frozenset(
    [
        *("comm", "thread", "channel", "stream", "dstThread", "endpointHandle", "memHandle", "winHandle"),
        *("worldTeam", "team", "window"),
    ]
)
_MAKERS = {
    "communicator": "HcclCommInitRootInfo",
    "communication thread": "HcclThreadAcquire or HcclThreadAcquireWithStream",
    "channel": "HcclChannelAcquire",
    "endpoint": "HcommEndpointCreate",
    "symmetric window": "HcclCommSymWinRegister",
    "team": "HcclWorldTeamCreate, HcclSubTeamCreate or HcclTeamCreate",
    "team window": "HcclTeamWindowRegister",
}


def object_of(kind: type[_Kind], handle: int) -> _Kind:
    """Return the object of a handle: HCCL_E_PTR for 0, HCCL_E_NOT_FOUND for one that was destroyed or is unknown."""
    resource = machine.resources.get(handle)
    if type(resource) is kind and resource.context.is_live:
        return resource
    name = kind.name
    remedy = f"pass what {_MAKERS.get(name, 'its maker')} returned, before it is destroyed"
    if not handle:
        raise PTR.refusal(f"the {name} is NULL (0)", remedy)
    machine.devices()
    resource, ended = machine.resources.get(handle), machine.ended(handle)
    if resource is not None:
        cause = f"{handle:#x} is {with_article(resource.name)}, not {with_article(name)}"
    elif ended:
        cause = f"{handle:#x} was {ended}"
    else:
        cause = f"{handle:#x} is not {with_article(name)} of this process"
    raise NOT_FOUND.refusal(cause, remedy)


def drop(resource: Resource, call: str) -> None:
    """Take an object out of the table: HCCL_E_NOT_FOUND if another thread did it first."""
    if not machine.drop(resource, call):
        object_of(type(resource), resource.handle)


def explain() -> str:
    """Explain the failed calls of this thread, newest first, and forget them.

    Returns for each its name, code and arguments, the cause, and what to do; empty if none failed.
    """
    return messages.take()


def _report(failure: Failure) -> None:
    acl_messages.add(messages.record(failure))


def _layout(message: Message) -> str:
    head = f"{message.call} returned {message.code} ({HcclResult(message.code).name})"
    return laid_out(head, message.cause, message.remedy, arguments=message.arguments)


def _argument_text(name: str, value: object, is_address: bool | None) -> object:
    if type(value) is not int:
        return reprlib.repr(value)
    if is_address and name not in _HANDLES and 0 <= value < 1 << 64:
        return machine.look(value)
    return hex(value) if abs(value) >= _LIKE_AN_ADDRESS else value


def _explain(error: Error) -> tuple[str, str]:
    return str(error), REMEDIES[error.fault]


messages = Messages("hcomm", _argument_text, _layout)
hcomm = Convention(success=SUCCESS, codes=FAULTS, explain=_explain, report=_report, late=lambda call: RUNTIME)
