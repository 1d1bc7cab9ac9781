"""The ``cfg`` of ``acl.rt.malloc_with_cfg`` and its like, as the binding reads it (facts/acl 2.7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peerlane.dialects._shared.call import type_name
from peerlane.dialects.acl._codes import Code
from peerlane.support.records import dataclass

_MODULE, _DEVICE, _SAME_ADDRESS = 1, 2, 3
_KNOWN = (_MODULE, _DEVICE, _SAME_ADDRESS)
_VALUES = {"moduleId": 0xFFFF, "deviceId": 0xFFFF_FFFF}


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of an allocation."""

    kind: int
    value: int


def read_attributes(call: str, cfg: dict[Any, Any]) -> list[Attribute]:
    """Return the attributes of a ``cfg``.

    Raises KeyError: ``numAttrs`` is not the number of attributes; a value has none of the keys.
    Raises TypeError, ValueError: a value is not a list, a dict or an int.
    """
    if not cfg:
        return []
    entries = cfg.get("attrs")
    if not isinstance(entries, list):
        raise TypeError(f"{call}: 'attrs' in cfg must be a list, not {type_name(entries)}")
    if len(entries) != _int_or_0(cfg.get("numAttrs")):
        raise KeyError(f"{call}: 'numAttrs' in cfg is {cfg.get('numAttrs')!r}, and there are {len(entries)}")
    return [_attribute(call, entry) for entry in entries]


def refuse_attributes(attributes: Iterable[Attribute], device: int) -> None:
    """Refuse another device than the current one, and unknown attributes: 107000."""
    for each in attributes:
        if each.kind not in _KNOWN:
            raise Code.RT_PARAM_INVALID.refusal(
                f"cfg has attribute {each.kind}",
                "pass 1 (module), 2 (device) or 3 (same address), or an empty cfg",
            )
        if each.kind == _DEVICE and each.value != device:
            raise Code.RT_PARAM_INVALID.refusal(
                f"cfg asks for device {each.value}, and device {device} is current in this thread",
                "leave the attribute out, or set that device first",
            )


def _attribute(call: str, entry: object) -> Attribute:
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), dict):
        raise TypeError(
            f"{call}: an attribute in cfg must be {{'attr': int, 'value': dict}}, not {entry!r:.80}"
        )
    value = entry["value"]
    for key, mask in _VALUES.items():
        if key in value:
            return Attribute(_int_or_0(entry.get("attr")), _int(call, value[key]) & mask)
    if "rsv" not in value:
        raise KeyError(
            f"{call}: a value in cfg has none of the keys moduleId, deviceId and rsv: {value!r:.80}"
        )
    reserved = value["rsv"]
    if not isinstance(reserved, list):
        raise TypeError(f"{call}: 'rsv' in cfg must be a list, not {type_name(reserved)}")
    content = bytes(_int(call, each) & 0xFF for each in reserved[:8])
    return Attribute(_int_or_0(entry.get("attr")), int.from_bytes(content[:4], "little"))


def _int(call: str, value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{call}: a value in cfg must be an int from 0 on, not {value!r:.80}")
    return value


def _int_or_0(value: object) -> int:
    return value if isinstance(value, int) else 0
