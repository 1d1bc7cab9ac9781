"""``acl.rt``: allocators that the program describes and reads back; no allocation uses them (facts/acl 6)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects._shared.call import Address, Object
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.acl._checks import null
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine

_CREATE = "acl.rt.allocator_create_desc"
_OBJECT, _ADVISE = "obj", "alloc_advise_func"
#: The parts of a description, in the order in which ``aclrtAllocatorGetByStream`` gives them.
_PARTS = (_OBJECT, "alloc_func", "free_func", _ADVISE, "get_addr_from_block_func")


class AclAllocatorDesc(Resource):
    """A description of an allocator."""

    __slots__ = ("parts",)

    name = "allocator description"
    needs_device = False

    def __init__(self) -> None:
        super().__init__(machine.process())
        self.parts: dict[str, object] = {}  #: by their names: the object and the functions that were set


@acl.value(_CREATE, failed=lambda _: 0)
def create_desc() -> int:
    """Return the handle of a new description; it needs no device, and outlives resets.

    Gives: bare int, 0 in a forked child
    Basis: S
    """
    machine.devices()
    return machine.issue(AclAllocatorDesc())


@acl.call("acl.rt.allocator_destroy_desc")
def destroy_desc(allocator_desc: Address) -> None:
    """Destroy a description; streams for which it is registered keep its parts.

    Refuses: 100000 no description, or destroyed
    Basis: S; C for one that was destroyed
    """
    machine.end_deviceless(allocator_desc, AclAllocatorDesc, _CREATE, "acl.rt.allocator_destroy_desc")


def _setter(part: str) -> Callable[[int, object], None]:
    def set_part(allocator_desc: Address, value: Object) -> None:
        description = machine.deviceless(allocator_desc, AclAllocatorDesc, _CREATE)
        null("value")(value)
        description.parts[part] = value

    set_part.__doc__ = f"""Set ``{part}`` of a description.

    Refuses: 100000 no description, or destroyed; NULL
    Basis: S; C for one that was destroyed
    """
    return set_part


for _part in _PARTS:
    acl.call(f"acl.rt.allocator_set_{_part}_to_desc")(_setter(_part))


@acl.call("acl.rt.allocator_register", checks=[null("stream")])
def register(stream: Address, allocator_desc: Address) -> None:
    """Register the parts of a description for a stream, in place of earlier ones; the stream is not checked.

    Refuses: 100000 NULL, no description, a part that is not set, but for the one that takes advice
    Basis: S; C for one that was destroyed
    """
    description = machine.deviceless(allocator_desc, AclAllocatorDesc, _CREATE)
    for part in _PARTS:
        if part not in description.parts and part != _ADVISE:
            raise Code.INVALID_PARAM.refusal(
                f"{part} of the description is not set", f"call acl.rt.allocator_set_{part}_to_desc first"
            )
    machine.allocators[stream] = allocator_desc, dict(description.parts)


@acl.call("aclrtAllocatorGetByStream", out=6, checks=[null("stream")])
def get_by_stream(stream: Address) -> tuple[int, object, object, object, object, object]:
    """Return the parts that ``allocator_register`` registered for a stream; 0 for parts that are not set.

    Gives: description, obj, alloc_func, free_func, alloc_advise_func, get_addr_from_block_func
    Refuses: 100000 NULL, nothing kept
    Basis: S
    """
    registered = machine.allocators.get(stream)
    if registered is None:
        raise Code.INVALID_PARAM.refusal(
            f"no allocator is registered for stream {stream:#x}", "call acl.rt.allocator_register first"
        )
    number, parts = registered
    one, two, three, four, five = (parts.get(part, 0) for part in _PARTS)
    return number, one, two, three, four, five


@acl.call("acl.rt.allocator_unregister", checks=[null("stream")])
def unregister(stream: Address) -> None:
    """Drop the parts that are registered for a stream, if there are any.

    Refuses: 100000 NULL
    Basis: S
    """
    machine.allocators.pop(stream, None)
