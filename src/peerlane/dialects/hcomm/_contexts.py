"""``hcomm``: contexts of engines, memory in which an operator keeps what its kernels need (facts/hcomm 2.6)."""

from __future__ import annotations

from peerlane import Buffer, Host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._arguments import CText, Enum, Handle, Pointer, UInt64, given
from peerlane.dialects.hcomm._codes import NOT_FOUND, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import Comm, comm_of
from peerlane.dialects.hcomm._enums import CommEngine
from peerlane.dialects.hcomm._regions import refuse_null
from peerlane.dialects.hcomm._state import hcomm
from peerlane.memory import raw

_LONGEST_TAG = 255
_OF_HOST = (CommEngine.COMM_ENGINE_CPU, CommEngine.COMM_ENGINE_CPU_TS, CommEngine.COMM_ENGINE_CCU)
_OF_DEVICE = (CommEngine.COMM_ENGINE_AICPU, CommEngine.COMM_ENGINE_AICPU_TS)


def _key(tag: str | None, engine: int) -> tuple[str, int]:
    """Return the key of a context: HCCL_E_PTR, HCCL_E_PARA, HCCL_E_NOT_SUPPORT."""
    name = given("ctxTag", tag)
    if len(name) > _LONGEST_TAG:
        raise Refusal(
            PARA,
            f"the tag has {len(name):,} characters; valid are up to {_LONGEST_TAG}",
            "choose another tag",
        )
    if engine not in CommEngine.__members__.values() or engine == CommEngine.COMM_ENGINE_RESERVED:
        raise Refusal(PARA, f"{engine} is no engine", "pass COMM_ENGINE_CPU_TS")
    if engine not in _OF_HOST + _OF_DEVICE:
        raise Refusal(
            NOT_SUPPORT, f"{CommEngine(engine).name} has no contexts", "pass COMM_ENGINE_CPU_TS or _AICPU_TS"
        )
    return name, engine


def _found(comm: Comm, key: tuple[str, int], code: int) -> Buffer:
    """Return a context; refuse with ``code`` where there is none."""
    found = comm.contexts.get(key)
    if found is None:
        tag, engine = key
        raise Refusal(
            code,
            f"{comm} has no context with the tag {tag!r} of {CommEngine(engine).name}",
            "call HcclEngineCtxCreate first",
        )
    return found


@hcomm.call("hcomm.HcclEngineCtxCreate", out=1)
def HcclEngineCtxCreate(comm: Handle, ctxTag: CText, engine: Enum, size: UInt64) -> int:
    """Make the context of a tag and an engine: memory, all 0, that lives until it or the communicator is destroyed.

    Of engines CPU, CPU_TS and CCU it is host memory that the program may touch; of AICPU and AICPU_TS it is the
    device's.

    Gives: address
    Refuses: 2 NULL; 6 the communicator; 1 `size` 0, above 255 characters, no engine, the tag is taken; 5 engine AIV;
        24 no room
    Basis: D, S; C for `size` 0, and for AIV
    """
    owner = comm_of(comm)
    key = _key(ctxTag, engine)
    if not size:
        raise Refusal(PARA, "size is 0", "pass the bytes of the context")
    with owner.guard:
        if key in owner.contexts:
            raise Refusal(
                PARA,
                f"{owner} has a context with the tag {key[0]!r} of {CommEngine(engine).name}",
                "call HcclEngineCtxGet, or choose another tag",
            )
        made = (Host() if engine in _OF_HOST else owner.group.device).allocate(size)
        made.fill(0)
        owner.contexts[key] = made
    return made.address


@hcomm.call("hcomm.HcclEngineCtxGet", out=2)
def HcclEngineCtxGet(comm: Handle, ctxTag: CText, engine: Enum) -> tuple[int, int]:
    """Return where the context of a tag and an engine is, and its bytes.

    Gives: address, bytes
    Refuses: 2 NULL; 6 the communicator, no such context; 1 above 255 characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV
    """
    owner = comm_of(comm)
    with owner.guard:
        found = _found(owner, _key(ctxTag, engine), NOT_FOUND)
        return found.address, found.size


@hcomm.call("hcomm.HcclEngineCtxCopy")
def HcclEngineCtxCopy(
    comm: Handle, engine: Enum, ctxTag: CText, srcCtx: Pointer, size: UInt64, dstCtxOffset: UInt64
) -> None:
    """Copy ``size`` bytes of the host at ``srcCtx`` to byte ``dstCtxOffset`` of a context; complete on return.

    Refuses: 2 NULL; 6 the communicator, no such context, `srcCtx` is no memory; 1 beyond the context, above 255
        characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV, and for `srcCtx`
    """
    owner = comm_of(comm)
    key = _key(ctxTag, engine)
    refuse_null(srcCtx=srcCtx)
    with owner.guard:
        found = _found(owner, key, NOT_FOUND)
        if dstCtxOffset + size > found.size:
            raise Refusal(
                PARA,
                f"{size:,} bytes from byte {dstCtxOffset:,} on end beyond the context, which has {found.size:,}",
                "create the context large enough",
            )
        raw.copy(found.address + dstCtxOffset, srcCtx, size)


@hcomm.call("hcomm.HcclEngineCtxDestroy")
def HcclEngineCtxDestroy(comm: Handle, ctxTag: CText, engine: Enum) -> None:
    """End a context: its memory goes back, and its tag is free again.

    Refuses: 2 NULL; 6 the communicator; 1 no such context, above 255 characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV
    """
    owner = comm_of(comm)
    key = _key(ctxTag, engine)
    with owner.guard:
        found = _found(owner, key, PARA)
        del owner.contexts[key]
    found.close()
