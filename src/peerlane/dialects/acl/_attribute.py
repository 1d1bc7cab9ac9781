"""``acl.rt``: attributes of streams (facts/acl 2.4)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects._shared.call import Address, Dict, Int32
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._specification import refuse_older_chip
from peerlane.dialects.acl._state import acl
from peerlane.dialects.acl._stream import PRIORITY, failure_mode_of, set_failure_mode, stream_of

_FAILURE_MODE, _OVERFLOW, _TAG = 1, 2, 3
_ATTRIBUTES = range(1, 6)
_KEYS = {_FAILURE_MODE: "failureMode", _OVERFLOW: "overflowSwitch", _TAG: "userCustomTag"}
_MOST = {_OVERFLOW: 1, 4: 1, PRIORITY: 7}
_BITS_32 = 0xFFFF_FFFF


@acl.call("acl.rt.set_stream_attribute")
def set_stream_attribute(stream: Address, stm_attr_type: Int32, value: Dict) -> None:
    """Set an attribute (facts/acl 2.4): 1 as ``set_stream_failure_mode``; the others have no effect.

    ``value`` is a dict with ``failureMode`` (1), ``overflowSwitch`` (2), ``userCustomTag`` (3), or ``reserved``, a
    list whose first number counts (4 operator information, 5 priority).  A key that is missing, or no int, is 0.

    Refuses: 107002; 107000 attribute, value, stream; 107003; 207000 attribute 5 on the 310 family;
        `TypeError` no dict
    Basis: S, D; C for the codes
    """
    number = _number_in(stm_attr_type, value)
    acl_stream = stream_of(stream)
    _refuse_unknown(stm_attr_type)
    if stm_attr_type == _FAILURE_MODE:
        set_failure_mode(acl_stream, number)
        return
    if stm_attr_type == PRIORITY:
        refuse_older_chip(acl_stream.context.device, "has streams of one priority")
    most = _MOST.get(stm_attr_type, _BITS_32)
    if number > most:
        raise Code.RT_PARAM_INVALID.refusal(f"the value is {number:,}", f"pass a value from 0 to {most:,}")
    acl_stream.attributes[stm_attr_type] = number


@acl.call("acl.rt.get_stream_attribute", out=1, blank=lambda _, stm_attr_type: (_shown(stm_attr_type, 0),))
def get_stream_attribute(stream: Address, stm_attr_type: Int32) -> dict[str, Any]:
    """Return an attribute in the form in which it is set (facts/acl 2.4).

    Gives: dict
    Refuses: 107002; 107000 attribute, stream; 107003
    Basis: S; C for the codes
    """
    acl_stream = stream_of(stream)
    _refuse_unknown(stm_attr_type)
    if stm_attr_type == _FAILURE_MODE:
        return _shown(stm_attr_type, failure_mode_of(acl_stream))
    return _shown(stm_attr_type, acl_stream.attributes.get(stm_attr_type, 0))


@acl.call("aclrtStreamGetPriority", out=1)
def get_priority(stream: Address) -> int:
    """Return the priority of a stream: that of ``create_stream_with_config``, or of attribute 5.

    Gives: 0 to 7
    Refuses: 107002; 107000; 107003
    Basis: S
    """
    return stream_of(stream).attributes.get(PRIORITY, 0)


@acl.call("aclrtStreamGetFlags", out=1)
def get_flags(stream: Address) -> int:
    """Return the flags that a stream was created with.

    Gives: flags
    Refuses: 107002; 107000; 107003
    Basis: S
    """
    return stream_of(stream).flags


def _number_in(kind: int, value: dict[Any, Any]) -> int:
    key = _KEYS.get(kind)
    field = value.get(key) if key is not None else next(iter(_list(value.get("reserved"))), 0)
    number = field if isinstance(field, int) else 0
    return number if kind == _FAILURE_MODE else number & _BITS_32


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _shown(kind: int, value: int) -> dict[str, Any]:
    key = _KEYS.get(kind)
    return {key: value} if key is not None else {"reserved": [value, 0, 0, 0]}


def _refuse_unknown(kind: int) -> None:
    if kind not in _ATTRIBUTES:
        raise Code.RT_PARAM_INVALID.refusal(
            f"there is no attribute {kind} of streams",
            "pass 1 (failure mode), 2 (overflow check), 3 (tag), 4 (operator information) or 5 (priority)",
        )
