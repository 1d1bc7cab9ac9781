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
        # devices and contexts
        "reset_device_force synchronize_device synchronize_device_with_timeout peek_at_last_error get_last_error "
        "destroy_context set_context "
        # streams, events, notifies
        "destroy_stream destroy_stream_force synchronize_stream synchronize_stream_with_timeout stream_abort "
        "set_stream_attribute set_stream_failure_mode destroy_event record_event reset_event synchronize_event "
        "synchronize_event_with_timeout stream_wait_event set_op_wait_timeout destroy_notify record_notify "
        "wait_and_reset_notify notify_batch_reset notify_set_import_pid "
        # memory
        "host_unregister host_register_v2 memcpy_async memcpy_async_with_condition memset_async memcpy2d_async "
        "mem_flush mem_invalidate mem_uce_repair reduce_async value_write value_wait memcpy_async_with_desc "
        "free_physical release_mem_address map_mem unmap_mem mem_set_pid_to_shareable_handle "
        "ipc_mem_set_import_pid ipc_mem_close "
        # callbacks
        "subscribe_report unsubscribe_report process_report launch_callback set_exception_info_callback",
    ),
    (
        "acl.rt",
        (0,),
        # devices and contexts
        "query_device_status get_device_info get_device_capability get_devices_topo device_get_bare_tgid "
        "get_logic_dev_id_by_user_dev_id get_user_dev_id_by_logic_dev_id get_logic_dev_id_by_phy_dev_id "
        "get_phy_dev_id_by_logic_dev_id create_context get_context ctx_get_current_default_stream "
        # streams, events, notifies
        "create_stream create_stream_with_config stream_query stream_get_id get_stream_available_num "
        "get_stream_attribute create_event create_event_with_flag create_event_ex_with_flag query_event "
        "query_event_status query_event_wait_status event_get_timestamp get_event_id get_event_avail_num "
        "create_notify get_notify_id notify_import_by_key "
        # memory
        "malloc_cached malloc_align32 malloc_with_cfg malloc_host_with_cfg malloc_for_task_scheduler "
        "host_register host_get_device_pointer get_memcpy_desc_size set_memcpy_desc malloc_physical "
        "reserve_mem_address mem_get_allocation_granularity mem_export_to_shareable_handle "
        "mem_import_from_shareable_handle ipc_mem_import_by_key",
    ),
    ("acl.rt", (0.0,), "event_elapsed_time"),
    ("acl.rt", ("",), "notify_get_export_key ipc_mem_get_export_key"),
    ("acl.rt", ({},), "get_device_utilization_rate device_get_uuid pointer_get_attributes"),
    ("acl.rt", ([],), "get_mem_uce_info"),
    ("acl.util", (0,), "start_thread"),
    ("acl.util", (), "stop_thread"),
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
