"""``acl.rt``: properties of devices: numbers, links, state and specification (facts/acl 2.2, 2.7).

A virtual device computes nothing: counts that programs divide by are 1, and measurements are 0.
"""

from __future__ import annotations

from typing import Any

from peerlane import Device
from peerlane.dialects._shared.call import Int32, Object, Refusal, UInt32, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine

_ONE_CORE = 1
_NO_CACHE = 0
_CORES = frozenset({1, 101, 102, 201})  # AI CPU, AI, cube and vector cores
_TOTAL_MEMORY, _L2_CACHE, _CHIP, _SUPER_POD_DEVICE, _ARCHITECTURE = 301, 302, 402, 403, 601
_LIMITS_OF_LAUNCHES = frozenset(range(205, 213))  # 0 except on the 950 family, which no profile has
_ONE_SYSTEM = frozenset({401, 404, 405, 406, 407, 408, 409, 501})  # no super pod, no splitting
_ZEROS = _LIMITS_OF_LAUNCHES | _ONE_SYSTEM
_ATTRIBUTES = (
    "1, 101, 102, 201 (cores), 205 to 212 (limits of launches), 301 (memory), 302 (L2 cache), 401 to 409 (402 and "
    "403: the device), 501, and 601 (architecture)"
)
# By the beginning of a device's name, the longest first.
_ARCHITECTURES = {
    "Ascend910_93": 2201,
    "Ascend910B": 2201,
    "Ascend910C": 2201,
    "Ascend310P": 2002,
    "Ascend310B": 3002,
    "Ascend950": 3510,
    "Ascend910": 1001,
}
_ARCHITECTURE_OF_OTHERS = 0
_NOT_SUPPORTED = frozenset({202, 203, 204})  # by the vendor either
_FEATURES = frozenset({1, 21})
_LEAST_PRIORITY, _GREATEST_PRIORITY = 7, 0
_STATUS_NORMAL, _STATUS_UNKNOWN = 0, 0xFFFF
_LINKS = {
    "X": 0,
    "HCCS": 0x01,
    "NV": 0x01,
    "XGMI": 0x01,
    "PIX": 0x02,
    "PXB": 0x02,
    "PHB": 0x08,
    "NODE": 0x10,
    "SYS": 0x10,
}
_UTILIZATIONS = ("cube_utilization", "vector_utilization", "aicpu_utilization")
_OLDER_CHIPS = ("Ascend310",)


def refuse_older_chip(device: Device, what: str) -> None:
    """Refuse calls that the 310 family does not have: 207000."""
    if device.info.name.startswith(_OLDER_CHIPS):
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"{device.info.name} (device {machine.number_of(device)}) is not a chip that {what}",
            "use events and notifies, or devices of another profile",
        )


@acl.call("acl.get_device_capability", out=1)
def get_hardware_capability(device_id: UInt32, device_info: Int32) -> int:
    """Return a device's hardware: 0 AI cores, 1 vector cores, 2 bytes of L2 cache (facts/acl 2.1).

    Gives: 1, 1, 0
    Refuses: 107001; 100000 `device_info`
    Basis: S; C for the values and 107001
    """
    machine.device(device_id)
    if device_info not in (0, 1, 2):
        raise Code.INVALID_PARAM.refusal(f"device_info is {device_info}", "pass 0, 1 or 2")
    return _NO_CACHE if device_info == 2 else _ONE_CORE


@acl.call("acl.rt.get_device_info", out=1)
def get_device_info(device_id: UInt32, attr: UInt32) -> int:
    """Return an attribute by its number (facts/acl 2.2), in full: the vendor's binding gives its low 32 bits.

    301 is the device's memory; core counts (1, 101, 102, 201) are 1, 402 and 403 the device itself; 601 is the
    architecture of an Ascend (2201 of the 910B, 2002 of the 310P) and 0 of another profile's device; 205 to 212
    (limits of launches), 302 (L2 cache), 401 and 404 to 501 are 0.

    Gives: value
    Refuses: 107001; 207000 attributes 202 to 204; 107000 others
    Basis: S, D; C for the values and 107000
    """
    device = machine.device(device_id)
    if attr in _CORES:
        return _ONE_CORE
    if attr == _TOTAL_MEMORY:
        return device.total_bytes
    if attr in (_CHIP, _SUPER_POD_DEVICE):
        return device.ordinal
    if attr == _ARCHITECTURE:
        return _architecture(device.info.name)
    if attr in _ZEROS or attr == _L2_CACHE:
        return 0
    code = Code.RT_FEATURE_NOT_SUPPORT if attr in _NOT_SUPPORTED else Code.RT_PARAM_INVALID
    if code is Code.RT_FEATURE_NOT_SUPPORT:
        raise Refusal(code, f"attr is {attr}, which no device has", f"pass one of {_ATTRIBUTES}")
    raise Refusal(code, f"there is no attribute {attr} of devices", f"pass one of {_ATTRIBUTES}")


def _architecture(name: str) -> int:
    return next(
        (number for family, number in _ARCHITECTURES.items() if name.startswith(family)),
        _ARCHITECTURE_OF_OTHERS,
    )


@acl.call("acl.rt.get_device_capability", out=1)
def get_device_capability(device_id: Int32, feature: UInt32) -> int:
    """Tell whether a device has a feature of hardware: none (facts/acl 2.2).

    Gives: 0
    Refuses: 107001; 107000 feature not 1 or 21
    Basis: S; C for 107000
    """
    machine.device(device_id)
    if feature not in _FEATURES:
        raise Code.RT_PARAM_INVALID.refusal(f"there is no feature {feature}", "pass 1 or 21")
    return 0


@acl.call("acl.rt.device_get_stream_priority_range", out=2)
def device_get_stream_priority_range() -> tuple[int, int]:
    """Return the least and the greatest priority of streams (facts/acl 2.4).

    Gives: 7, 0
    Basis: S, R
    """
    return _LEAST_PRIORITY, _GREATEST_PRIORITY


@acl.call("acl.rt.query_device_status", out=1, blank=(_STATUS_UNKNOWN,))
def query_device_status(device_id: Int32) -> int:
    """Return 0: a virtual device is in order (facts/acl 2.2).

    Gives: 0 normal; 0xFFFF with a code
    Refuses: 107001
    Basis: S
    """
    machine.device(device_id)
    return _STATUS_NORMAL


@acl.call("acl.rt.get_device_utilization_rate", out=1, blank=lambda _: (_utilization(0),))
def get_device_utilization_rate(device_id: Int32) -> dict[str, int]:
    """Return the utilization in percent: 0; of the memory -1, as the vendor may give too (facts/acl 2.2).

    Gives: dict of 0, and -1
    Refuses: 107001
    Basis: S, D
    """
    machine.device(device_id)
    return _utilization(-1)


def _utilization(of_memory: int) -> dict[str, int]:
    return {**dict.fromkeys(_UTILIZATIONS, 0), "memory_utilization": of_memory, "utilization_extend": 0}


@acl.call("acl.rt.get_devices_topo", out=1)
def get_devices_topo(device_id: UInt32, other_device_id: UInt32) -> int:
    """Return the link of two devices: 1 HCCS, 2 one PCIe switch, 8 a host bridge, 0x10 across (facts/acl 2.2).

    Gives: link; 0 for one device
    Refuses: 107001
    Basis: S, D; C for one device, and for links that the vendor has not
    """
    return _LINKS[machine.device(device_id).link(machine.device(other_device_id))]


@acl.call("acl.rt.device_get_uuid", out=1, blank=lambda _: (_uuid(bytes(16)),))
def device_get_uuid(device_id: Int32) -> dict[str, list[int]]:
    """Return the 16 bytes that identify the device in every process of the node (facts/acl 2.2).

    Gives: `{'bytes': [16 ints]}`
    Refuses: 107001
    Basis: S
    """
    return _uuid(machine.device(device_id).uuid)


def _uuid(content: bytes) -> dict[str, list[int]]:
    return {"bytes": list(content)}


def _number_of_the_node(device_id: Int32) -> int:
    """Return the node's number of a device by the program's (ASCEND_RT_VISIBLE_DEVICES; facts/acl 2.2).

    Gives: device
    Refuses: 107001
    Basis: S
    """
    return machine.device(device_id).ordinal


def _number_of_the_program(device_id: Int32) -> int:
    """Return the program's number of a device by the node's (facts/acl 2.2).

    Gives: device
    Refuses: 107001 also for a device that is not visible
    Basis: S
    """
    number = machine.number_of(_of_the_node(device_id))
    if number < 0:
        raise Code.RT_INVALID_DEVICEID.refusal(
            f"device {device_id} of the node is not visible; {machine.describe_visible()}",
            "ask for a visible one, or correct the variable",
        )
    return number


def _same_number(device_id: Int32) -> int:
    """Return the same number: a node has one numbering of its devices (facts/acl 2.2).

    Gives: device
    Refuses: 107001
    Basis: S; C for 107001
    """
    return _of_the_node(device_id).ordinal


for _name, _body in {
    "acl.rt.get_logic_dev_id_by_user_dev_id": _number_of_the_node,
    "aclrtGetPhyDevIdByUserDevId": _number_of_the_node,
    "acl.rt.get_user_dev_id_by_logic_dev_id": _number_of_the_program,
    "aclrtGetUserDevIdByPhyDevId": _number_of_the_program,
    "acl.rt.get_logic_dev_id_by_phy_dev_id": _same_number,
    "acl.rt.get_phy_dev_id_by_logic_dev_id": _same_number,
}.items():
    acl.call(_name, out=1)(_body)


def _of_the_node(ordinal: int) -> Device:
    present = machine.devices()
    if not 0 <= ordinal < len(present):
        raise Code.RT_INVALID_DEVICEID.refusal(
            f"there is no device {ordinal}; this node has {len(present)}, numbered 0 to {len(present) - 1}",
            "pass a number of the node's: `peerlane topo` shows them",
        )
    return present[ordinal]


@acl.call("acl.rt.get_mem_uce_info", out=1, blank=lambda *_: ([],))
def get_mem_uce_info(device_id: Int32, array_size: UInt32) -> list[dict[str, Any]]:
    """Return the ranges of broken memory: there are none (facts/acl 2.7).

    Gives: `[]`
    Refuses: 107001
    Basis: S; C for 107001
    """
    machine.device(device_id)
    return []


@acl.call("acl.rt.mem_uce_repair")
def mem_uce_repair(device_id: Int32, mem_uce_info: Object) -> None:
    """Repair the ranges of ``get_mem_uce_info``, of which there are none (facts/acl 2.7).

    Refuses: 107001; `TypeError` no list of dicts
    Basis: S; C for 107001
    """
    if not isinstance(mem_uce_info, list) or not all(isinstance(each, dict) for each in mem_uce_info):
        raise TypeError(f"acl.rt.mem_uce_repair: needs a list of dicts, not {type_name(mem_uce_info)}")
    machine.device(device_id)
