"""Every name of the vendor's binding exists: its call works, or refuses in its documented shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.each import for_each
from peerlane.dialects.acl._refused import REFUSED, answer
from peerlane.dialects.acl._state import acl as convention

pytestmark = pytest.mark.any_schedule

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "acl.md"
# Names in the binding's own tables (hicann/runtime, python/pyACL) that have no row on the page.
REFUSING = [(module, name) for module, names in REFUSED.items() for name in names]
KNOWN = """
init finalize finalize_reference get_version get_version_str get_soc_name get_recent_err_msg get_device_capability
get_cann_version get_cann_attribute get_cann_attribute_list create_data_buffer get_data_buffer_addr
get_data_buffer_size get_data_buffer_size_v2 update_data_buffer destroy_data_buffer app_log data_type_size
float16_to_float float_to_float16 create_tensor_desc destroy_tensor_desc get_tensor_desc_type get_tensor_desc_format
get_tensor_desc_size get_tensor_desc_element_count get_tensor_desc_num_dims get_tensor_desc_dim
get_tensor_desc_dim_v2 get_tensor_desc_name set_tensor_desc_name
rt.set_device rt.reset_device rt.reset_device_force rt.get_device rt.get_device_count rt.get_run_mode
rt.synchronize_device rt.synchronize_device_with_timeout rt.query_device_status rt.get_device_utilization_rate
rt.get_device_info rt.get_device_capability rt.get_devices_topo rt.device_get_uuid rt.get_logic_dev_id_by_user_dev_id
rt.get_user_dev_id_by_logic_dev_id rt.get_logic_dev_id_by_phy_dev_id rt.get_phy_dev_id_by_logic_dev_id
rt.device_get_bare_tgid rt.device_can_access_peer rt.device_enable_peer_access rt.device_disable_peer_access
rt.device_peer_access_status rt.peek_at_last_error rt.get_last_error rt.create_context rt.destroy_context
rt.set_context rt.get_context rt.ctx_get_current_default_stream rt.get_primary_ctx_state rt.create_stream
rt.create_stream_with_config rt.destroy_stream rt.destroy_stream_force rt.synchronize_stream
rt.synchronize_stream_with_timeout rt.stream_query rt.stream_abort rt.stream_get_id rt.get_stream_available_num
rt.set_stream_attribute rt.get_stream_attribute rt.set_stream_failure_mode rt.device_get_stream_priority_range
rt.create_event rt.create_event_with_flag rt.create_event_ex_with_flag rt.destroy_event rt.record_event rt.reset_event
rt.query_event rt.query_event_status rt.query_event_wait_status rt.synchronize_event
rt.synchronize_event_with_timeout rt.event_elapsed_time rt.event_get_timestamp rt.get_event_id rt.get_event_avail_num
rt.stream_wait_event rt.set_op_wait_timeout rt.set_op_execute_timeout rt.set_op_execute_time_out
rt.set_op_execute_timeout_v2 rt.device_task_abort rt.create_notify rt.destroy_notify rt.record_notify
rt.wait_and_reset_notify rt.get_notify_id rt.notify_batch_reset rt.notify_get_export_key rt.notify_set_import_pid
rt.notify_import_by_key rt.malloc rt.malloc_cached rt.malloc_align32 rt.malloc_with_cfg rt.malloc_host_with_cfg
rt.malloc_for_task_scheduler rt.free rt.malloc_host rt.free_host rt.host_register rt.host_unregister
rt.host_register_v2 rt.host_get_device_pointer rt.memcpy rt.memcpy_async rt.memcpy_async_with_condition rt.memset
rt.memset_async rt.memcpy2d rt.memcpy2d_async rt.get_mem_info rt.pointer_get_attributes rt.mem_flush
rt.mem_invalidate rt.get_mem_uce_info rt.mem_uce_repair rt.reduce_async rt.value_write rt.value_wait
rt.get_memcpy_desc_size rt.set_memcpy_desc rt.memcpy_async_with_desc rt.malloc_physical rt.free_physical
rt.reserve_mem_address rt.release_mem_address rt.map_mem rt.unmap_mem rt.mem_get_allocation_granularity
rt.mem_export_to_shareable_handle rt.mem_set_pid_to_shareable_handle rt.mem_import_from_shareable_handle
rt.ipc_mem_get_export_key rt.ipc_mem_set_import_pid rt.ipc_mem_import_by_key rt.ipc_mem_close rt.subscribe_report
rt.unsubscribe_report rt.process_report rt.launch_callback rt.set_exception_info_callback
rt.get_task_id_from_exception_info rt.get_stream_id_from_exception_info rt.get_thread_id_from_exception_info
rt.get_device_id_from_exception_info rt.get_error_code_from_exception_info
util.bytes_to_ptr util.ptr_to_bytes util.numpy_to_ptr util.numpy_contiguous_to_ptr util.ptr_to_numpy util.start_thread
util.stop_thread media.dvpp_malloc media.dvpp_malloc_with_cfg media.dvpp_free
"""


def function_of(acl: ModuleType, name: str) -> Callable[..., Any]:
    for part in name.split("."):
        acl = getattr(acl, part)
    assert callable(acl)
    return acl


@for_each("name", KNOWN.split())
def test_acl_known_names_resolve_to_declared_calls(name: str, acl: ModuleType) -> None:
    call = function_of(acl, name)
    module, _, short = f"acl.{name}".rpartition(".")
    assert convention.functions(module)[short] is call
    assert short not in REFUSED.get(module, ())


@for_each(("module", "name"), REFUSING)
def test_acl_refusing_names_return_200001_in_documented_shape(
    module: str, name: str, acl: ModuleType
) -> None:
    owner = module_of(acl, module)
    shape = REFUSED[module][name]
    for args in ((), (1,), ("x.om",), (0, [1], {}, None)):
        result = getattr(owner, name)(*args)
        assert result == answer(shape, 200001)
        outputs = result if isinstance(result, tuple) else (result,)
        assert len(outputs) == len(shape)
        assert shape.count("r") <= 1 and all(
            each != 200001 or letter == "r" for each, letter in zip(outputs, shape, strict=True)
        )
        text = acl.get_recent_err_msg()
        assert f"{module}.{name} returned 200001 (ACL_ERROR_API_NOT_SUPPORT)" in text
        assert "peerlane is for the memory of devices" in text
    assert getattr(owner, name).__name__ == name
    assert acl.rt.get_last_error(0) == 0  # the call never reached the runtime


def module_of(acl: ModuleType, module: str) -> ModuleType:
    return acl if module == "acl" else getattr(acl, module.removeprefix("acl."))


@pytest.mark.parametrize("module", ["acl", "acl.rt", "acl.util"])
@pytest.mark.parametrize(
    "name", ["MEMCPY_HOST_TO_DEVICE", "memcpy_2d", "create_nothing", "vector_to_ptr", "__path__x"]
)
def test_acl_modules_unknown_name_raises_attribute_error(module: str, name: str, acl: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"^module '{module}' has no attribute '{name}'"):
        getattr(module_of(acl, module), name)
    assert acl.get_recent_err_msg() is None


def test_acl_model_loading_program_gets_200001_in_documented_shapes(acl: ModuleType) -> None:
    model, ret = acl.mdl.load_from_file("x.om")
    assert (model, ret) == (0, 200001)
    assert acl.mdl.create_desc() == 0
    assert acl.mdl.get_desc(0, model) == 200001
    dims, ret = acl.mdl.get_input_dims(0, 0)
    dims["changed"] = 1
    assert acl.mdl.get_input_dims(0, 0) == ({}, 200001)  # each call returns a new dict
    data, inputs, descs, outputs, more, ret = acl.mdl.create_and_get_op_desc(0, 0, 0, 64)
    assert (data, inputs, descs, outputs, more, ret) == ("", 0, 0, 0, 0, 200001)
    assert acl.op.create_attr() == 0 and acl.op.destroy_attr(0) is None
    assert acl.media.dvpp_create_channel_desc() == 0


def test_acl_refusing_names_are_lower_case_and_not_declared_calls() -> None:
    for module, names in REFUSED.items():
        assert not set(names) & set(convention.functions(module)), module
        assert all(re.fullmatch("[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize("module", ["acl", "acl.rt"])
def test_acl_reference_page_lists_refusing_names(module: str) -> None:
    named = set(re.findall(r"\b[a-z][a-z0-9_]+\b", PAGE.read_text()))
    assert not sorted(set(REFUSED[module]) - named)
