"""Where each row of facts/hip 3.1 to 3.7 is tested.

A row is a condition and an expected result; tests are named ``file::function`` without
``tests/dialects/hip/test_hip_``.  A row without tests says why no program of hip-python can meet the condition.
"""

from __future__ import annotations

Row = tuple[str, ...] | str

NO_OUT = "hip-python has no output arguments, so none can be NULL"

PEER_ACCESS: dict[str, Row] = {
    "CanAccessPeer(dev, peer), different valid ids: success, 1 if connected": (
        "peer::test_can_access",
        "peer::test_no_access_between_islands",
        "peer::test_the_profiles",
    ),
    "CanAccessPeer(d, d): success, 0, before validity": (
        "peer::test_a_device_is_no_peer_of_itself",
        "peer::test_equality_is_tested_before_validity",
    ),
    "CanAccessPeer, out pointer NULL: InvalidValue": NO_OUT,
    "CanAccessPeer(-1,1), (count,1), (0,-1), (0,count): InvalidDevice": ("peer::test_invalid_ids",),
    "Enable(peer,0) then Disable(peer): success; one direction of the current device": (
        "peer::test_enable_and_disable",
        "peer::test_it_is_one_direction_of_the_current_device",
    ),
    "Enable(-1,0), Enable(count,0): InvalidDevice": ("peer::test_enable_an_invalid_id",),
    "Enable(0, flags=-1): InvalidValue, before id, self and capability": (
        "peer::test_flags_are_looked_at_first",
    ),
    "Enable(1,0) twice from 0: PeerAccessAlreadyEnabled 704": ("peer::test_enable_twice",),
    "Enable(self,0): InvalidDevice": ("peer::test_enable_itself_and_what_is_out_of_reach",),
    "Enable of a peer with no P2P: InvalidDevice": ("peer::test_enable_itself_and_what_is_out_of_reach",),
    "Disable(-1), Disable(count): InvalidDevice": ("peer::test_enable_an_invalid_id",),
    "Disable(1) never enabled: PeerAccessNotEnabled 705; no P2P or self: InvalidDevice": (
        "peer::test_disable_what_was_never_enabled",
        "peer::test_enable_itself_and_what_is_out_of_reach",
    ),
    "Enable, Disable, Disable: the third NotEnabled": ("peer::test_disable_twice",),
    "hipCtxEnable/DisablePeerAccess: success, nothing": ("peer::test_calls_on_contexts_do_nothing",),
    "hipDeviceReset: ends peer access": ("peer::test_reset_ends_it",),
}

P2P_ATTRIBUTES: dict[str, Row] = {
    "every pair, rank: the link's type": ("rows_copies::test_3_2_every_pair",),
    "access, native atomic, array access: 0 or 1": (
        "rows_copies::test_3_2_every_pair",
        "peer::test_p2p_attributes",
    ),
    "NULL out: InvalidValue": NO_OUT,
    "attr 10: InvalidValue, in hip-python a TypeError": (
        "rows_copies::test_3_2_attribute_10_is_none",
        "peer::test_an_attribute_is_a_member",
    ),
    "src or dst = -1 or count: InvalidDevice": ("peer::test_p2p_attributes_of_no_pair",),
    "src == dst: InvalidDevice": ("peer::test_p2p_attributes_of_no_pair",),
    "visible devices 0 or 1, pair (0,1): InvalidDevice": ("peer::test_visible_devices_and_pair_0_1",),
    "visible devices 0,1 and 0,1,-1: success": ("peer::test_visible_devices_and_pair_0_1",),
    "visible devices -1,0: NoDevice": ("peer::test_visible_devices_and_pair_0_1",),
    "visible devices 0,-1 and 0,-1,1: InvalidDevice": ("peer::test_visible_devices_and_pair_0_1",),
    "visible devices 2,1: success if there are more than 2, else NoDevice": (
        "peer::test_visible_devices_and_pair_0_1",
        "peer::test_two_devices_have_no_third",
    ),
    "link query fails: InvalidHandle": "every pair of a node has a link: it is computed, and cannot fail",
    "LinkTypeAndHopCount (-1,0), (n,0), (0,-1), (0,n), (-1,n), (d,d): InvalidValue or InvalidDevice": (
        "peer::test_link_of_no_pair",
    ),
    "hop count symmetric": ("rows_copies::test_3_2_every_pair", "peer::test_link_type_and_hops"),
    "hipDeviceGetP2PAtomicCapabilities: InvalidValue, InvalidDevice": "hip-python 10.0 has no such function",
}

PEER_COPIES: dict[str, Row] = {
    "half a page, 1 page, 2 pages, each ordered pair: data equal": (
        "copy::test_peer_copies",
        "rows_copies::test_3_3_async_sizes_of_every_ordered_pair",
    ),
    "null, per-thread and created streams: data equal after the stream's synchronization": (
        "rows_copies::test_3_3_async_sizes_of_every_ordered_pair",
        "copy::test_peer_copies_on_streams",
    ),
    "dst NULL, src NULL: InvalidValue": ("copy::test_what_is_refused",),
    "size = allocation + 1 byte: InvalidValue, from the pointer's offset, on both sides": (
        "copy::test_what_is_refused",
    ),
    "dst id or src id = count or negative: InvalidDevice, before pointers; need not match the pointers": (
        "copy::test_what_is_refused",
    ),
    "size 0 (dis.): success, nothing changes, before any pointer check": ("copy::test_what_is_refused",),
    "destroyed stream: ContextIsDestroyed 709": ("rows_copies::test_3_3_destroyed_stream",),
    "work queued on both devices, then copy; query null stream: NotReady, the host does not wait": (
        "rows_copies::test_3_3_the_host_does_not_wait_for_work_of_both_devices",
        "copy_order::test_memcpy_peer_does_not_wait_and_follows_both",
    ),
    "stream on another device than the memory: works": (
        "rows_copies::test_3_3_a_stream_on_another_device_than_the_memory",
    ),
    "stream capture active: error of the capture family": ("streams::test_nothing_is_captured",),
    "since August 2026: after earlier work of both devices": (
        "copy_order::test_memcpy_peer_does_not_wait_and_follows_both",
        "copy_order::test_memcpy_peer_of_the_current_device_only",
    ),
    "the Async form is not serialised": (
        "copy_order::test_memcpy_peer_async_is_in_the_order_of_its_stream_only",
    ),
}

POINTERS: dict[str, Row] = {
    "pointer + 0, 20, 40, 60, 80 ints into host, device and managed memory (dis.): base and requested size": (
        "attributes::test_address_range",
    ),
    "pitched allocation: size = pitch * height": ("attributes::test_address_range_of_pitched_memory",),
    "NULL; offset past the end: NotFound 500": (
        "attributes::test_address_range_of_null_and_ordinary_memory",
        "attributes::test_address_range_past_the_end",
    ),
    "out pointers NULL: crash": NO_OUT,
    "PointerGetAttributes(base), +100, +n-1: success, devicePointer = that address": (
        "attributes::test_attributes",
    ),
    "at +n, +n+1: InvalidValue": ("attributes::test_attributes_at_the_end",),
    "NULL attributes, NULL ptr: InvalidValue": ("attributes::test_attributes_of_null_and_freed_memory",),
    "per device: owner id, type Device, hostPointer NULL; Host: hostPointer; Managed: isManaged": (
        "attributes::test_attributes",
    ),
    "plain malloc memory: success, type 0, device -2, NULL pointers; or InvalidValue": (
        "attributes::test_attributes_of_ordinary_memory",
    ),
}

IPC: dict[str, Row] = {
    "two allocations (dis.): handles differ byte-wise": ("ipc::test_handles_of_two_allocations_differ",),
    "free, malloc at the same address: a new handle": (
        "ipc::test_a_new_allocation_at_the_same_address_has_another",
    ),
    "GetMemHandle of a freed pointer, of one past the end: InvalidValue": ("ipc::test_no_handle_of",),
    "GetMemHandle(NULL): InvalidValue; inner pointers keep their offset": (
        "ipc::test_no_handle_of",
        "ipc::test_an_inner_pointer_keeps_its_offset",
    ),
    "open in the creating process (dis.): InvalidContext 201": ("ipc::test_the_process_that_made_it",),
    "open with flags != 1: InvalidValue": ("ipc::test_flags_must_be_1",),
    "open an all-zero handle, an uninitialised one: InvalidValue, InvalidDevicePointer": (
        "ipc::test_no_bytes_of_a_handle",
        "ipc::test_a_handle_that_is_none",
    ),
    "open twice in one child: same address, counted; after the last close attributes are InvalidValue": (
        "ipc::test_opened_twice_it_is_counted",
    ),
    "open again from a second context on the same device: InvalidResourceHandle 400; here the same address": (
        "rows_memory::test_3_5_open_again_from_a_second_context_on_the_same_device",
    ),
    "Close(NULL), close in the originating process (dis.): InvalidValue; streams are drained first": (
        "ipc::test_close_what_was_not_opened",
        "ipc::test_close_waits_for_the_device",
    ),
    "the parent frees after the child closed: success; its pointer stays valid": (
        "ipc::test_the_maker_frees_after_the_other_closed",
    ),
    "free before the importer closes: undefined; here the importer's memory lives": (
        "ipc::test_freed_first_it_lives_with_who_has_it",
    ),
    "each device as exporter, every reachable device opens, copies and reads: data equal": (
        "ipc::test_every_reachable_device_opens",
    ),
    "fork before any call works; state is not inherited": ("rows_memory::test_3_5_fork",),
    "GetEventHandle of NULL: InvalidValue": ("event_ipc::test_handle_of_null",),
    "GetEventHandle of an event without Interprocess: InvalidConfiguration": (
        "event_ipc::test_handle_of_an_event_without_interprocess",
    ),
    "OpenEventHandle of a zero handle: InvalidValue": (
        "event_ipc::test_no_handle",
        "event_ipc::test_an_empty_struct_is_no_handle",
    ),
    "OpenEventHandle in the creating process: InvalidContext": (
        "event_ipc::test_open_in_the_creating_process",
    ),
    "functional: children record on work over opened memory, the parent synchronises and reads": (
        "event_ipc::test_functional_children_record_and_the_parent_reads",
    ),
}

VIRTUAL_MEMORY: dict[str, Row] = {
    "all gated on VirtualMemoryManagementSupported": (
        "rows_memory::test_3_6_all_of_it_is_gated_on_an_attribute",
    ),
    "granularity, minimum and recommended, every device: > 0, equal": ("vmm::test_granularity",),
    "granularity, NULL, option 0xff, id = count or -1, type and location Invalid: InvalidValue": (
        "vmm::test_granularity_refuses",
    ),
    "AddressReserve, NULL ptr: InvalidValue": NO_OUT,
    "AddressReserve, flags: InvalidValue": ("vmm::test_reserve_flags",),
    "AddressReserve, size 0, alignment 3, size - 1: OutOfMemory, or by policy InvalidValue": (
        "vmm::test_reserve_a_bad_size",
    ),
    "AddressReserve with alignment: address % alignment == 0; the requested address is a hint": (
        "vmm::test_reserve_aligned",
        "vmm::test_a_wanted_address_is_a_wish",
    ),
    "AddressFree NULL, size 0, unknown address: InvalidValue": ("vmm::test_address_free",),
    "Create NULL, size 0, type, location, not a multiple, id -1 or count, flags: InvalidValue": (
        "vmm::test_create_refuses",
    ),
    "Create, another handle type: NotSupported; too big: OutOfMemory": ("vmm::test_create_refuses",),
    "Create and Release, 1 to n granules: success": ("vmm::test_create_and_release",),
    "Release while mapped: the mapping stays usable": ("vmm::test_released_while_mapped_it_stays",),
    "Release NULL: InvalidValue": ("vmm::test_release_no_handle",),
    "Map NULL ptr, size 0, offset, flags: InvalidValue": ("vmm::test_map_refuses",),
    "Map without SetAccess: not accessible": ("vmm::test_without_set_access_nobody_may",),
    "one physical handle in several ranges (dis.): aliases share data": (
        "vmm::test_one_handle_in_several_places",
    ),
    "several handles in one range (dis.): one buffer": ("vmm::test_several_handles_side_by_side",),
    "Unmap NULL, size 0, size - 1: InvalidValue": ("vmm::test_unmap_refuses",),
    "SetAccess NULL, size, location, id, flag, NULL desc, count 0, unreserved or unmapped: InvalidValue": (
        "vmm::test_set_access_refuses",
    ),
    "GetAccess after RW for device 0: 3 and 0; two descriptions: 3 and 3; inside too": (
        "vmm::test_get_access",
    ),
    "GetAccess NULL location, address outside: InvalidValue": ("vmm::test_get_access_refuses",),
    "ReadWrite to Read: D2H ok, H2D Unknown, or by policy InvalidValue": (
        "vmm::test_read_write_then_read_then_none",
    ),
    "Prot None, H2D: the same": ("vmm::test_read_write_then_read_then_none",),
    "mapped memory to another device's by hipMemcpyPeer after giving it Read: data equal; without (dis.)": (
        "vmm::test_peer_copy_of_mapped_memory",
    ),
    "host dereference of a mapped range: works": ("vmm::test_the_host_reads_it_where_it_is_mapped",),
    "multi-device ranges (dis.): data equal": ("vmm::test_several_handles_side_by_side",),
    "growth (dis.): data equal": ("vmm::test_memory_grows_in_place",),
    "multi-process (dis.): data equal": ("vmm_sharing::test_data_both_ways",),
    "RetainAllocationHandle NULL, never mapped: InvalidValue; mapped: the equal handle": (
        "vmm::test_retain",
    ),
    "RetainAllocationHandle unmapped: InvalidValue": ("rows_memory::test_3_6_retain_of_what_was_unmapped",),
    "GetAllocationPropertiesFromHandle: the creating properties; NULL: InvalidValue": (
        "vmm::test_properties_of_a_handle",
    ),
    "Export with the requested type fd: each call a new descriptor": (
        "vmm_sharing::test_each_export_is_a_new_descriptor",
        "vmm_sharing::test_the_requested_handle_type",
    ),
    "Export NULL out, NULL handle, type Win32, flags 1: InvalidValue": ("vmm_sharing::test_export_refuses",),
    "Import NULL: InvalidValue": ("vmm_sharing::test_import_refuses",),
    "Import, second argument: the descriptor as a pointer, or its address": (
        "vmm_sharing::test_data_both_ways",
    ),
    "child, parent and child, grandchild use an imported handle: data visible both ways": (
        "vmm_sharing::test_parent_child_and_grandchild",
        "vmm_sharing::test_a_started_program_inherits_it",
    ),
}

STREAMS: dict[str, Row] = {
    "hipInit(flags != 0): InvalidValue": ("device::test_flags_of_init",),
    "hipSetDevice(-1 or count), hipDeviceGet: InvalidDevice": ("device::test_no_such_device",),
    "current device: per host thread": ("device::test_the_current_device_is_a_thread_s_own",),
    "hipDeviceReset, then hipFree(old): InvalidValue": (
        "device::test_reset_ends_what_the_device_has_and_keeps_it_current",
    ),
    "hipDeviceReset, then hipStreamDestroy(old): InvalidHandle": (
        "streams::test_reset_then_destroy_the_old_stream",
    ),
    "hipStreamQuery with work: NotReady 600; without: success": (
        "streams::test_query_with_work_and_without",
    ),
    "Query or Synchronize on a destroyed or made-up stream: ContextIsDestroyed 709": (
        "streams::test_a_destroyed_or_made_up_stream",
    ),
    "hipStreamDestroy twice: 709; the null stream: InvalidResourceHandle 400": (
        "streams::test_destroy_twice_and_the_null_stream",
    ),
    "null stream: query is NotReady while any blocking stream has work": (
        "streams::test_the_null_stream_waits_for_blocking_streams",
        "streams::test_the_null_stream_does_not_wait_for_others",
    ),
    "StreamWaitEvent(s, NULL): 400; flags: InvalidValue; no stream: InvalidHandle 400": (
        "events::test_stream_wait_event",
    ),
    "EventRecord(NULL): 400": ("events::test_record_of_null_and_of_no_stream",),
    "event and stream on different devices: InvalidHandle 400": (
        "events::test_record_on_a_stream_of_another_device",
    ),
    "EventSynchronize of a never recorded event: success": ("events::test_one_that_was_never_recorded",),
    "EventElapsedTime, NULL, DisableTiming, different devices, not recorded: InvalidHandle 400": (
        "events::test_elapsed_time_that_there_is_not",
    ),
    "EventElapsedTime, pending: NotReady": ("events::test_elapsed_time",),
    "StreamWriteValue, WaitValue, NULL and unknown memory: InvalidValue": (
        "stream_values::test_null_and_memory_that_is_not_allocated",
    ),
    "StreamWriteValue, WaitValue, bad stream: 709": ("stream_values::test_no_stream_and_no_flags",),
    "WaitValue compare: Gte, Eq, And, Nor": ("stream_values::test_wait",),
    "hipGetLastError: per thread; since HIP 7.0 the last real error, before the newest call's": (
        "convention::test_the_last_error_is_a_thread_s_own",
        "convention::test_success_and_not_ready_do_not_overwrite_it",
        "convention::test_before_7_each_call_overwrote_it",
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
