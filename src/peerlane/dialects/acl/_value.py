"""``acl.rt``: words of memory that streams write and wait for (facts/acl 2.7)."""

from __future__ import annotations

from peerlane import Kind, Stream
from peerlane.dialects._shared.call import Address, UInt32, Word
from peerlane.dialects.acl._checks import null, one_of, reserved_below
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._specification import refuse_older_chip
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of
from peerlane.memory import raw

_WORD = 8
_COMPARES = ("since", "eq", "and", "nor")
_NO_FLAG = reserved_below("flag")
_COMPARE = one_of(
    "flag", range(len(_COMPARES)), "pass 0 (at least), 1 (equal), 2 (and) or 3 (nor)", shown=hex
)


@acl.call("acl.rt.value_write", checks=[null("dev_addr")])
def value_write(dev_addr: Address, value: Word, flag: UInt32, stream: Address) -> None:
    """Store 64 bits when all work submitted before is done (facts/acl 2.7).

    Refuses: 100000 NULL; 107002; 107000 stream, `flag`, alignment, no device memory; 107003; 207000 the 310 family
    Basis: S, D; C for the codes
    """
    queue = _checked(dev_addr, stream)
    _NO_FLAG(flag)
    raw.write_value(dev_addr, value, stream=queue, width=_WORD)


@acl.call("acl.rt.value_wait", checks=[null("dev_addr")])
def value_wait(dev_addr: Address, value: Word, flag: UInt32, stream: Address) -> None:
    """Let later operations wait for 64 bits (facts/acl 2.7).

    Flags: 0 until word - value, as a signed number, is not negative; 1 word == value; 2 word & value != 0; 3
    ~(word | value) != 0.  A stream, another process or the host may write the word.

    Refuses: as `value_write`
    Basis: S, D; C for the codes
    """
    queue = _checked(dev_addr, stream)
    _COMPARE(flag)
    raw.wait_value(dev_addr, value, stream=queue, compare=_COMPARES[flag], width=_WORD)


def _checked(dev_addr: int, stream: int) -> Stream:
    acl_stream = stream_of(stream)
    refuse_older_chip(acl_stream.context.device, "waits for and writes no values on streams")
    if dev_addr % _WORD:
        raise Code.RT_PARAM_INVALID.refusal(
            f"dev_addr {dev_addr:#x} is not a multiple of {_WORD}", "align the word"
        )
    if raw.locate(dev_addr).kind is Kind.PAGEABLE:
        raise Code.RT_PARAM_INVALID.refusal(
            f"dev_addr is {machine.describe(dev_addr)}, which no stream watches",
            "keep the word in memory of acl.rt.malloc or acl.rt.malloc_host",
        )
    return acl_stream.neutral
