"""``hcomm``: contexts of engines: memory in which an operator keeps the data of its kernels (facts/hcomm 2.6)."""

from __future__ import annotations

from typing import Annotated

from peerlane import Buffer, Host
from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._arguments import Enum, NotNull, RequiredText, UInt64, zero
from peerlane.dialects.hcomm._codes import NOT_FOUND, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import Comm, CommHandle
from peerlane.dialects.hcomm._header import CommEngine
from peerlane.dialects.hcomm._state import hcomm
from peerlane.memory import raw

_LONGEST_TAG = 255
_OF_HOST = (CommEngine.COMM_ENGINE_CPU, CommEngine.COMM_ENGINE_CPU_TS, CommEngine.COMM_ENGINE_CCU)
_OF_DEVICE = (CommEngine.COMM_ENGINE_AICPU, CommEngine.COMM_ENGINE_AICPU_TS)


def _refuse_long(_name: str, tag: str) -> str:
    if len(tag) > _LONGEST_TAG:
        raise PARA.refusal(
            f"the tag has {len(tag):,} characters; valid are up to {_LONGEST_TAG}", "choose another tag"
        )
    return tag


def _refuse_engine(_name: str, engine: int) -> int:
    if engine not in CommEngine.__members__.values() or engine == CommEngine.COMM_ENGINE_RESERVED:
        raise PARA.refusal(f"{engine} is not an engine", "pass COMM_ENGINE_CPU_TS")
    if engine not in _OF_HOST + _OF_DEVICE:
        raise NOT_SUPPORT.refusal(
            f"{CommEngine(engine).name} has no contexts", "pass COMM_ENGINE_CPU_TS or _AICPU_TS"
        )
    return engine


_Tag = Annotated[RequiredText, checks.check(_refuse_long)]
_Engine = Annotated[Enum, checks.check(_refuse_engine)]
_Bytes = Annotated[UInt64, zero(remedy="pass the bytes of the context")]


def _context_memory(comm: Comm, tag: str, engine: int, code: int) -> Buffer:
    """Return a context; refuse with ``code`` where there is none."""
    memory = comm.contexts.get((tag, engine))
    if memory is None:
        raise Refusal(
            code,
            f"{comm} has no context with the tag {tag!r} of {CommEngine(engine).name}",
            "call HcclEngineCtxCreate first",
        )
    return memory


@hcomm.call("hcomm.HcclEngineCtxCreate", out=1)
def HcclEngineCtxCreate(comm: CommHandle, ctxTag: _Tag, engine: _Engine, size: _Bytes) -> int:
    """Make the context of a tag and an engine: memory, all 0, that lives until it or the communicator is destroyed.

    Of engines CPU, CPU_TS and CCU it is host memory that the program may touch; of AICPU and AICPU_TS it is the
    device's.

    Gives: address
    Refuses: 2 NULL; 6 the communicator; 1 `size` 0, above 255 characters, no engine, the tag is taken; 5 engine AIV;
        24 no room
    Basis: D, S; C for `size` 0, and for AIV
    """
    with comm.guard:
        if (ctxTag, engine) in comm.contexts:
            raise PARA.refusal(
                f"{comm} has a context with the tag {ctxTag!r} of {CommEngine(engine).name}",
                "call HcclEngineCtxGet, or choose another tag",
            )
        memory = (Host() if engine in _OF_HOST else comm.group.device).allocate(size)
        memory.fill(0)
        comm.contexts[ctxTag, engine] = memory
    return memory.address


@hcomm.call("hcomm.HcclEngineCtxGet", out=2)
def HcclEngineCtxGet(comm: CommHandle, ctxTag: _Tag, engine: _Engine) -> tuple[int, int]:
    """Return where the context of a tag and an engine is, and its bytes.

    Gives: address, bytes
    Refuses: 2 NULL; 6 the communicator, no such context; 1 above 255 characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV
    """
    with comm.guard:
        memory = _context_memory(comm, ctxTag, engine, NOT_FOUND)
        return memory.address, memory.size


@hcomm.call("hcomm.HcclEngineCtxCopy", first=("comm", "ctxTag"))
def HcclEngineCtxCopy(
    comm: CommHandle, engine: _Engine, ctxTag: _Tag, srcCtx: NotNull, size: UInt64, dstCtxOffset: UInt64
) -> None:
    """Copy ``size`` bytes of the host at ``srcCtx`` to byte ``dstCtxOffset`` of a context; complete on return.

    Refuses: 2 NULL; 6 the communicator, no such context, `srcCtx` is not memory; 1 beyond the context, above 255
        characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV, and for `srcCtx`
    """
    with comm.guard:
        memory = _context_memory(comm, ctxTag, engine, NOT_FOUND)
        if dstCtxOffset + size > memory.size:
            raise PARA.refusal(
                f"{size:,} bytes from byte {dstCtxOffset:,} on end beyond the context, which has {memory.size:,}",
                "create the context large enough",
            )
        raw.copy(memory.address + dstCtxOffset, srcCtx, size)


@hcomm.call("hcomm.HcclEngineCtxDestroy")
def HcclEngineCtxDestroy(comm: CommHandle, ctxTag: _Tag, engine: _Engine) -> None:
    """End a context: its memory goes back, and its tag is free again.

    Refuses: 2 NULL; 6 the communicator; 1 no such context, above 255 characters, no engine; 5 engine AIV
    Basis: D, S; C for AIV
    """
    with comm.guard:
        memory = _context_memory(comm, ctxTag, engine, PARA)
        del comm.contexts[ctxTag, engine]
    memory.close()
