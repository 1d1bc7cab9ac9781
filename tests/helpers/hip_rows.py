"""Where each row of facts/hip 3.1 to 3.7 is tested.

A row is a condition and an expected result; tests are named ``file::function`` without
``tests/dialects/hip/test_hip_``.  A row without tests says why no program of hip-python can meet the condition.
"""

from __future__ import annotations

Row = tuple[str, ...] | str

NO_OUT = "hip-python has no output arguments, so none can be NULL"

PEER_ACCESS: dict[str, Row] = {
    "CanAccessPeer(dev, peer), different valid ids: success, 1 if connected": (
        "peer::test_hip_device_can_access_peer_same_switch_returns_1",
        "peer::test_hip_device_can_access_peer_other_switch_returns_0",
        "peer::test_hip_device_can_access_peer_reach_is_that_of_profile",
    ),
    "CanAccessPeer(d, d): success, 0, before validity": (
        "peer::test_hip_device_can_access_peer_itself_returns_0",
        "peer::test_hip_device_can_access_peer_equal_invalid_ids_return_0",
    ),
    "CanAccessPeer, out pointer NULL: InvalidValue": NO_OUT,
    "CanAccessPeer(-1,1), (count,1), (0,-1), (0,count): InvalidDevice": (
        "peer::test_hip_device_can_access_peer_invalid_id_returns_invalid_device",
    ),
    "Enable(peer,0) then Disable(peer): success; one direction of the current device": (
        "peer::test_hip_device_enable_and_disable_peer_access_succeed",
        "peer::test_hip_device_enable_peer_access_covers_one_direction_only",
    ),
    "Enable(-1,0), Enable(count,0): InvalidDevice": (
        "peer::test_hip_device_enable_peer_access_invalid_id_returns_invalid_device",
    ),
    "Enable(0, flags=-1): InvalidValue, before id, self and capability": (
        "peer::test_hip_device_enable_peer_access_bad_flags_return_invalid_value_for_any_id",
    ),
    "Enable(1,0) twice from 0: PeerAccessAlreadyEnabled 704": (
        "peer::test_hip_device_enable_peer_access_twice_returns_already_enabled",
    ),
    "Enable(self,0): InvalidDevice": (
        "peer::test_hip_device_enable_peer_access_itself_or_unreachable_returns_invalid_device",
    ),
    "Enable of a peer with no P2P: InvalidDevice": (
        "peer::test_hip_device_enable_peer_access_itself_or_unreachable_returns_invalid_device",
    ),
    "Disable(-1), Disable(count): InvalidDevice": (
        "peer::test_hip_device_enable_peer_access_invalid_id_returns_invalid_device",
    ),
    "Disable(1) never enabled: PeerAccessNotEnabled 705; no P2P or self: InvalidDevice": (
        "peer::test_hip_device_disable_peer_access_never_enabled_returns_not_enabled",
        "peer::test_hip_device_enable_peer_access_itself_or_unreachable_returns_invalid_device",
    ),
    "Enable, Disable, Disable: the third NotEnabled": (
        "peer::test_hip_device_disable_peer_access_twice_returns_not_enabled",
    ),
    "hipCtxEnable/DisablePeerAccess: success, nothing": (
        "peer::test_hip_ctx_enable_peer_access_enables_nothing",
    ),
    "hipDeviceReset: ends peer access": ("peer::test_hip_device_reset_ends_peer_access",),
}

P2P_ATTRIBUTES: dict[str, Row] = {
    "every pair, rank: the link's type": ("rows_copies::test_hip_p2p_calls_agree_on_every_pair",),
    "access, native atomic, array access: 0 or 1": (
        "rows_copies::test_hip_p2p_calls_agree_on_every_pair",
        "peer::test_hip_device_get_p2p_attribute_agrees_with_can_access_peer",
    ),
    "NULL out: InvalidValue": NO_OUT,
    "attr 10: InvalidValue, in hip-python a TypeError": (
        "rows_copies::test_hip_device_get_p2p_attribute_member_10_raises",
        "peer::test_hip_device_get_p2p_attribute_int_for_member_raises_type_error",
    ),
    "src or dst = -1 or count: InvalidDevice": (
        "peer::test_hip_device_get_p2p_attribute_invalid_pair_returns_invalid_device",
    ),
    "src == dst: InvalidDevice": (
        "peer::test_hip_device_get_p2p_attribute_invalid_pair_returns_invalid_device",
    ),
    "visible devices 0 or 1, pair (0,1): InvalidDevice": (
        "peer::test_hip_visible_devices_list_decides_code_of_pair_0_1",
    ),
    "visible devices 0,1 and 0,1,-1: success": (
        "peer::test_hip_visible_devices_list_decides_code_of_pair_0_1",
    ),
    "visible devices -1,0: NoDevice": ("peer::test_hip_visible_devices_list_decides_code_of_pair_0_1",),
    "visible devices 0,-1 and 0,-1,1: InvalidDevice": (
        "peer::test_hip_visible_devices_list_decides_code_of_pair_0_1",
    ),
    "visible devices 2,1: success if there are more than 2, else NoDevice": (
        "peer::test_hip_visible_devices_list_decides_code_of_pair_0_1",
        "peer::test_hip_visible_devices_id_beyond_node_shows_no_device",
    ),
    "link query fails: InvalidHandle": "every pair of a node has a link: it is computed, and cannot fail",
    "LinkTypeAndHopCount (-1,0), (n,0), (0,-1), (0,n), (-1,n), (d,d): InvalidValue or InvalidDevice": (
        "peer::test_hip_ext_get_link_type_and_hop_count_invalid_pair_returns_documented_code",
    ),
    "hop count symmetric": (
        "rows_copies::test_hip_p2p_calls_agree_on_every_pair",
        "peer::test_hip_ext_get_link_type_and_hop_count_is_symmetric_and_of_profile",
    ),
    "hipDeviceGetP2PAtomicCapabilities: InvalidValue, InvalidDevice": "hip-python 10.0 has no such function",
}

PEER_COPIES: dict[str, Row] = {
    "half a page, 1 page, 2 pages, each ordered pair: data equal": (
        "copy::test_hip_memcpy_peer_with_access_copies_bytes",
        "rows_copies::test_hip_memcpy_peer_async_every_pair_and_size_copies_bytes",
    ),
    "null, per-thread and created streams: data equal after the stream's synchronization": (
        "rows_copies::test_hip_memcpy_peer_async_every_pair_and_size_copies_bytes",
        "copy::test_hip_memcpy_peer_async_on_any_stream_copies_bytes",
    ),
    "dst NULL, src NULL: InvalidValue": ("copy::test_hip_memcpy_peer_bad_arguments_return_documented_codes",),
    "size = allocation + 1 byte: InvalidValue, from the pointer's offset, on both sides": (
        "copy::test_hip_memcpy_peer_bad_arguments_return_documented_codes",
    ),
    "dst id or src id = count or negative: InvalidDevice, before pointers; need not match the pointers": (
        "copy::test_hip_memcpy_peer_bad_arguments_return_documented_codes",
    ),
    "size 0 (dis.): success, nothing changes, before any pointer check": (
        "copy::test_hip_memcpy_peer_bad_arguments_return_documented_codes",
    ),
    "destroyed stream: ContextIsDestroyed 709": (
        "rows_copies::test_hip_peer_copies_destroyed_stream_returns_context_is_destroyed",
    ),
    "work queued on both devices, then copy; query null stream: NotReady, the host does not wait": (
        "rows_copies::test_hip_memcpy_peer_does_not_wait_for_null_streams_of_both_devices",
        "copy_order::test_hip_memcpy_peer_follows_work_of_both_devices_and_does_not_wait",
    ),
    "stream on another device than the memory: works": (
        "rows_copies::test_hip_memcpy_peer_async_stream_of_third_device_copies_bytes",
    ),
    "stream capture active: error of the capture family": (
        "graphs::test_hip_captures_end_with_the_codes_of_what_went_wrong",
    ),
    "since August 2026: after earlier work of both devices": (
        "copy_order::test_hip_memcpy_peer_follows_work_of_both_devices_and_does_not_wait",
        "copy_order::test_hip_memcpy_peer_policy_current_ignores_work_of_other_device",
    ),
    "the Async form is not serialised": ("copy_order::test_hip_memcpy_peer_async_follows_only_its_stream",),
}

POINTERS: dict[str, Row] = {
    "pointer + 0, 20, 40, 60, 80 ints into host, device and managed memory (dis.): base and requested size": (
        "attributes::test_hip_mem_get_address_range_inside_allocation_returns_base_and_size",
    ),
    "pitched allocation: size = pitch * height": (
        "attributes::test_hip_mem_get_address_range_pitched_memory_returns_whole_allocation",
    ),
    "NULL; offset past the end: NotFound 500": (
        "attributes::test_hip_mem_get_address_range_knows_host_memory_only_if_registered",
        "attributes::test_hip_mem_get_address_range_past_end_or_freed_has_no_allocation",
    ),
    "out pointers NULL: crash": NO_OUT,
    "PointerGetAttributes(base), +100, +n-1: success, devicePointer = that address": (
        "attributes::test_hip_pointer_get_attributes_returns_type_device_and_addresses",
    ),
    "at +n, +n+1: InvalidValue": (
        "attributes::test_hip_pointer_get_attributes_at_or_past_end_returns_invalid_value",
    ),
    "NULL attributes, NULL ptr: InvalidValue": (
        "attributes::test_hip_pointer_get_attributes_null_or_freed_returns_invalid_value",
    ),
    "per device: owner id, type Device, hostPointer NULL; Host: hostPointer; Managed: isManaged": (
        "attributes::test_hip_pointer_get_attributes_returns_type_device_and_addresses",
    ),
    "plain malloc memory: success, type 0, device -2, NULL pointers; or InvalidValue": (
        "attributes::test_hip_pointer_get_attributes_pageable_memory_is_unregistered",
    ),
}

IPC: dict[str, Row] = {
    "two allocations (dis.): handles differ byte-wise": (
        "ipc::test_hip_ipc_get_mem_handle_differs_per_allocation",
    ),
    "free, malloc at the same address: a new handle": (
        "ipc::test_hip_ipc_get_mem_handle_new_allocation_at_same_address_differs",
    ),
    "GetMemHandle of a freed pointer, of one past the end: InvalidValue": (
        "ipc::test_hip_ipc_get_mem_handle_memory_not_of_malloc_returns_invalid_value",
    ),
    "GetMemHandle(NULL): InvalidValue; inner pointers open to the start": (
        "ipc::test_hip_ipc_get_mem_handle_memory_not_of_malloc_returns_invalid_value",
        "ipc::test_hip_ipc_get_mem_handle_inner_pointer_opens_to_the_start",
    ),
    "open in the creating process (dis.): InvalidContext 201": (
        "ipc::test_hip_ipc_open_mem_handle_own_handle_returns_invalid_context",
    ),
    "open with flags != 1: InvalidValue": (
        "ipc::test_hip_ipc_open_mem_handle_flags_other_than_1_return_invalid_value",
    ),
    "open an all-zero handle, an uninitialised one: InvalidValue, InvalidDevicePointer": (
        "ipc::test_hip_ipc_open_mem_handle_zero_or_short_bytes_return_invalid_value",
        "ipc::test_hip_ipc_open_mem_handle_other_bytes_return_invalid_device_pointer",
    ),
    "open twice in one child: same address, counted; after the last close attributes are InvalidValue": (
        "ipc::test_hip_ipc_open_mem_handle_twice_needs_two_closes",
    ),
    "open again from a second context on the same device: InvalidResourceHandle 400; here the same address": (
        "rows_memory::test_hip_ipc_open_mem_handle_second_context_returns_same_pointer",
    ),
    "Close(NULL), close in the originating process (dis.): InvalidValue; streams are drained first": (
        "ipc::test_hip_ipc_close_mem_handle_memory_not_opened_returns_invalid_value",
        "ipc::test_hip_ipc_close_mem_handle_waits_for_queued_copy",
    ),
    "the parent frees after the child closed: success; its pointer stays valid": (
        "ipc::test_hip_ipc_memory_freed_by_exporter_after_close_ends_handle",
    ),
    "free before the importer closes: undefined; here the importer's memory lives": (
        "ipc::test_hip_ipc_memory_freed_by_exporter_lives_in_importer",
    ),
    "each device as exporter, every reachable device opens, copies and reads: data equal": (
        "ipc::test_hip_ipc_open_mem_handle_every_reachable_device_opens",
    ),
    "fork before any call works; state is not inherited": (
        "rows_memory::test_hip_calls_in_forked_child_work_only_if_parent_used_no_device",
    ),
    "GetEventHandle of NULL: InvalidValue": (
        "event_ipc::test_hip_ipc_get_event_handle_null_returns_invalid_value",
    ),
    "GetEventHandle of an event without Interprocess: InvalidConfiguration": (
        "event_ipc::test_hip_ipc_get_event_handle_plain_event_returns_invalid_configuration",
    ),
    "OpenEventHandle of a zero handle: InvalidValue": (
        "event_ipc::test_hip_ipc_open_event_handle_wrong_bytes_returns_invalid_value",
        "event_ipc::test_hip_ipc_open_event_handle_empty_struct_returns_invalid_value",
    ),
    "OpenEventHandle in the creating process: InvalidContext": (
        "event_ipc::test_hip_ipc_open_event_handle_own_handle_returns_invalid_context",
    ),
    "functional: children record on work over opened memory, the parent synchronises and reads": (
        "event_ipc::test_hip_ipc_events_of_three_processes_order_copies_into_one_buffer",
    ),
}

VIRTUAL_MEMORY: dict[str, Row] = {
    "all gated on VirtualMemoryManagementSupported": (
        "rows_memory::test_hip_vmm_supported_attribute_is_1_and_mem_create_succeeds",
    ),
    "granularity, minimum and recommended, every device: > 0, equal": (
        "vmm::test_hip_mem_get_allocation_granularity_returns_2_mib",
    ),
    "granularity, NULL, option 0xff, id = count or -1, type and location Invalid: InvalidValue": (
        "vmm::test_hip_mem_get_allocation_granularity_bad_properties_return_invalid_value",
    ),
    "AddressReserve, NULL ptr: InvalidValue": NO_OUT,
    "AddressReserve, flags: InvalidValue": ("vmm::test_hip_mem_address_reserve_flags_return_invalid_value",),
    "AddressReserve, size 0, alignment 3, size - 1: InvalidValue": (
        "vmm::test_hip_mem_address_reserve_bad_size_returns_documented_code",
    ),
    "AddressReserve with alignment: address % alignment == 0; the requested address is a hint": (
        "vmm::test_hip_mem_address_reserve_returns_aligned_address",
        "vmm::test_hip_mem_address_reserve_taken_address_returns_other_address",
    ),
    "AddressFree NULL, size 0, unknown address: InvalidValue": (
        "vmm::test_hip_mem_address_free_inexact_or_mapped_range_returns_invalid_value",
    ),
    "Create NULL, size 0, type, location, not a multiple, flags: InvalidValue; id -1 or count: InvalidDevice": (
        "vmm::test_hip_mem_create_bad_arguments_return_documented_codes",
    ),
    "Create, another handle type: NotSupported; too big: OutOfMemory": (
        "vmm::test_hip_mem_create_bad_arguments_return_documented_codes",
    ),
    "Create and Release, 1 to n granules: success": (
        "vmm::test_hip_mem_create_and_release_change_free_memory",
    ),
    "Release while mapped: the mapping stays usable": (
        "vmm::test_hip_mem_release_while_mapped_keeps_memory_until_unmap",
    ),
    "Release NULL: InvalidValue": ("vmm::test_hip_mem_release_not_a_handle_returns_invalid_value",),
    "Map NULL ptr, size 0, offset, flags: InvalidValue": (
        "vmm::test_hip_mem_map_bad_arguments_return_invalid_value",
    ),
    "Map without SetAccess: not accessible": (
        "vmm::test_hip_memcpy_mapped_memory_without_set_access_returns_unknown",
    ),
    "one physical handle in several ranges (dis.): aliases share data": (
        "vmm::test_hip_mem_map_one_handle_at_three_addresses_shares_bytes",
    ),
    "several handles in one range (dis.): one buffer": (
        "vmm::test_hip_mem_map_adjacent_handles_form_one_range",
    ),
    "Unmap NULL, size 0, size - 1: InvalidValue": ("vmm::test_hip_mem_unmap_bad_range_unmaps_nothing",),
    "SetAccess NULL, size, location, id, flag, NULL desc, count 0, unreserved or unmapped: InvalidValue": (
        "vmm::test_hip_mem_set_access_bad_arguments_change_nothing",
    ),
    "GetAccess after RW for device 0: 3 and 0; two descriptions: 3 and 3; inside too": (
        "vmm::test_hip_mem_get_access_returns_rights_per_device_and_mapping",
    ),
    "GetAccess NULL location, address outside: InvalidValue": (
        "vmm::test_hip_mem_get_access_bad_arguments_return_invalid_value",
    ),
    "ReadWrite to Read: D2H ok, H2D Unknown, or by policy InvalidValue": (
        "vmm::test_hip_memcpy_mapped_memory_obeys_changed_rights",
    ),
    "Prot None, H2D: the same": ("vmm::test_hip_memcpy_mapped_memory_obeys_changed_rights",),
    "mapped memory to another device's by hipMemcpyPeer after giving it Read: data equal; without (dis.)": (
        "vmm::test_hip_memcpy_peer_mapped_memory_needs_read_right_of_current_device",
    ),
    "host dereference of a mapped range: works": (
        "vmm::test_hip_mapped_memory_host_access_map_is_read_by_host",
    ),
    "multi-device ranges (dis.): data equal": ("vmm::test_hip_mem_map_adjacent_handles_form_one_range",),
    "growth (dis.): data equal": ("vmm::test_hip_mapped_memory_grows_in_place_and_keeps_bytes",),
    "multi-process (dis.): data equal": ("vmm_sharing::test_hip_mem_import_shares_bytes_in_both_directions",),
    "RetainAllocationHandle NULL, never mapped: InvalidValue; mapped: the equal handle": (
        "vmm::test_hip_mem_retain_allocation_handle_adds_a_reference",
    ),
    "RetainAllocationHandle unmapped: InvalidValue": (
        "rows_memory::test_hip_mem_retain_allocation_handle_unmapped_address_returns_invalid_value",
    ),
    "GetAllocationPropertiesFromHandle: the creating properties; NULL: InvalidValue": (
        "vmm::test_hip_mem_get_allocation_properties_from_handle_returns_properties",
    ),
    "Export with the requested type fd: each call a new descriptor": (
        "vmm_sharing::test_hip_mem_export_each_call_returns_new_descriptor",
        "vmm_sharing::test_hip_mem_export_any_requested_handle_type_succeeds",
    ),
    "Export NULL out, NULL handle, type Win32, flags 1: InvalidValue": (
        "vmm_sharing::test_hip_mem_export_bad_arguments_return_codes_and_leak_nothing",
    ),
    "Import NULL: InvalidValue": ("vmm_sharing::test_hip_mem_import_bad_arguments_return_invalid_value",),
    "Import, second argument: the descriptor as a pointer, or its address": (
        "vmm_sharing::test_hip_mem_import_shares_bytes_in_both_directions",
    ),
    "child, parent and child, grandchild use an imported handle: data visible both ways": (
        "vmm_sharing::test_hip_mem_import_in_child_and_grandchild_shares_bytes",
        "vmm_sharing::test_hip_mem_import_in_started_program_shares_bytes",
    ),
}

STREAMS: dict[str, Row] = {
    "hipInit(flags != 0): InvalidValue": ("device::test_hip_init_flags_other_than_0_return_invalid_value",),
    "hipSetDevice(-1 or count), hipDeviceGet: InvalidDevice": (
        "device::test_hip_device_calls_unknown_device_return_invalid_device",
    ),
    "current device: per host thread": ("device::test_hip_set_device_is_per_thread",),
    "hipDeviceReset, then hipFree(old): InvalidValue": (
        "device::test_hip_device_reset_ends_memory_and_streams_and_keeps_device_current",
    ),
    "hipDeviceReset, then hipStreamDestroy(old): InvalidHandle": (
        "streams::test_hip_stream_destroy_after_reset_returns_invalid_handle",
    ),
    "hipStreamQuery with work: NotReady 600; without: success": (
        "streams::test_hip_stream_query_pending_work_returns_not_ready",
    ),
    "Query or Synchronize on a destroyed or made-up stream: ContextIsDestroyed 709": (
        "streams::test_hip_stream_calls_unknown_stream_return_context_is_destroyed",
    ),
    "hipStreamDestroy twice: 709; the null stream: InvalidResourceHandle 400": (
        "streams::test_hip_stream_destroy_twice_or_default_stream_returns_documented_code",
    ),
    "null stream: query is NotReady while any blocking stream has work": (
        "streams::test_hip_null_stream_waits_for_blocking_streams",
        "streams::test_hip_null_stream_does_not_wait_for_non_blocking_streams",
    ),
    "StreamWaitEvent(s, NULL): 400; flags: InvalidValue; no stream: InvalidHandle 400": (
        "events::test_hip_stream_wait_event_bad_arguments_return_documented_codes",
    ),
    "EventRecord(NULL): 400": (
        "events::test_hip_event_record_invalid_event_or_stream_returns_documented_code",
    ),
    "event and stream on different devices: InvalidHandle 400": (
        "events::test_hip_event_record_on_stream_of_other_device_returns_invalid_handle",
    ),
    "EventSynchronize of a never recorded event: success": (
        "events::test_hip_event_never_recorded_is_complete",
    ),
    "EventElapsedTime, NULL, DisableTiming, different devices, not recorded: InvalidHandle 400": (
        "events::test_hip_event_elapsed_time_unusable_event_returns_invalid_handle",
    ),
    "EventElapsedTime, pending: NotReady": (
        "events::test_hip_event_elapsed_time_before_completion_returns_not_ready_then_time",
    ),
    "StreamWriteValue, WaitValue, NULL and unknown memory: InvalidValue": (
        "stream_values::test_hip_stream_value_calls_unusable_memory_return_invalid_value",
    ),
    "StreamWriteValue, WaitValue, bad stream: 709": (
        "stream_values::test_hip_stream_value_calls_bad_stream_or_flags_return_documented_codes",
    ),
    "WaitValue compare: Gte, Eq, And, Nor": (
        "stream_values::test_hip_stream_wait_value_holds_stream_until_condition_is_met",
    ),
    "hipGetLastError: per thread; since HIP 7.0 the last real error, before the newest call's": (
        "convention::test_hip_get_last_error_is_per_thread",
        "convention::test_hip_get_last_error_successful_calls_keep_earlier_failure",
        "convention::test_hip_get_last_error_before_7_successful_calls_overwrite_failure",
    ),
}

TABLES: dict[str, dict[str, Row]] = {
    "3.1": PEER_ACCESS,
    "3.2": P2P_ATTRIBUTES,
    "3.3": PEER_COPIES,
    "3.4": POINTERS,
    "3.5": IPC,
    "3.6": VIRTUAL_MEMORY,
    "3.7": STREAMS,
}
