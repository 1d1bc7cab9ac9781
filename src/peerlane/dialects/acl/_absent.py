"""Calls of the vendor that this version does not have: they refuse with 200001 in their own shape."""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects._call import Refusal
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl

# Module, then how the outputs look that stand before the code, then the names (spec acl 2.1 to 2.10).
_ABSENT: tuple[tuple[str, tuple[object, ...], str], ...] = (
    ("acl", (0,), "get_device_capability get_cann_attribute"),
    ("acl", ({},), "get_cann_version"),
    ("acl", ([],), "get_cann_attribute_list"),
    ("acl", (), "update_data_buffer destroy_data_buffer"),
    (
        "acl.rt",
        (),
        # devices
        "peek_at_last_error get_last_error "
        # streams
        "set_stream_attribute "
        # memory
        "host_unregister host_register_v2 mem_flush mem_invalidate mem_uce_repair reduce_async value_write "
        "value_wait "
        # callbacks
        "set_exception_info_callback",
    ),
    (
        "acl.rt",
        (0,),
        # devices
        "query_device_status get_device_info get_device_capability get_devices_topo "
        "get_logic_dev_id_by_user_dev_id get_user_dev_id_by_logic_dev_id get_logic_dev_id_by_phy_dev_id "
        "get_phy_dev_id_by_logic_dev_id "
        # streams
        "get_stream_attribute "
        # memory
        "malloc_cached malloc_align32 malloc_with_cfg malloc_host_with_cfg malloc_for_task_scheduler "
        "host_register host_get_device_pointer",
    ),
    ("acl.rt", ({},), "get_device_utilization_rate device_get_uuid pointer_get_attributes"),
    ("acl.rt", ([],), "get_mem_uce_info"),
)

# These answer with a bare int, without a code (spec acl 1).
_ABSENT_BARE = "create_data_buffer get_data_buffer_addr get_data_buffer_size get_data_buffer_size_v2"


def _with_code(blanks: tuple[object, ...]) -> Callable[[int], object]:
    # Copied for each answer: a program may change the dict it got.
    fresh = tuple(type(blank) for blank in blanks)
    return (lambda code: (*(make() for make in fresh), code)) if fresh else (lambda code: code)


def _declare(name: str, answer: Callable[[int], object]) -> None:
    acl.absent(
        name,
        answer,
        Refusal(
            Code.API_NOT_SUPPORT,
            f"{name} exists in pyACL, and is not in this version of peerlane",
            "docs/reference/acl.md lists what works; do without it, or run this part on hardware",
        ),
    )


for _module, _blanks, _names in _ABSENT:
    for _name in _names.split():
        _declare(f"{_module}.{_name}", _with_code(_blanks))
for _name in _ABSENT_BARE.split():
    _declare(f"acl.{_name}", lambda code: 0)
