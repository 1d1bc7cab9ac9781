"""``acl`` in a forked child of a process that had used devices, and of one that had not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import peerlane
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

BAD = 507033
Case = tuple[str, Callable[[], object], object]


def in_fork(cases: list[Case]) -> list[object]:
    """Run every case in one child and return the results."""
    import os

    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write_end, pickle.dumps([call() for _, call, _ in cases]))
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as answers:  # noqa: PTH123
        taken = answers.read()
    assert os.waitpid(child, 0)[1] == 0
    return list(pickle.loads(taken))


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "nothing was raised"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_acl_calls_in_forked_child_of_device_user_return_507033(acl: ModuleType) -> None:
    rt, util = acl.rt, acl.util
    acl.init()
    pointer, _ = rt.malloc(8, 2)
    host, _ = rt.malloc_host(8)
    stream, event, notify = rt.create_stream()[0], rt.create_event()[0], rt.create_notify(0)[0]
    buffer = acl.create_data_buffer(pointer, 8)
    data, target = b"bytes of the program", bytearray(8)
    array = np.arange(4, dtype=np.uint8)
    into, out = peerlane.as_buffer(target).address, util.bytes_to_ptr(data)
    cases: list[Case] = [
        ("init", acl.init, BAD),
        ("set_device", lambda: rt.set_device(0), BAD),
        ("reset_device", lambda: rt.reset_device(0), BAD),
        ("get_device", rt.get_device, (0, BAD)),
        ("get_device_count", rt.get_device_count, (0, BAD)),
        ("get_run_mode", rt.get_run_mode, (1, 0)),
        ("malloc", lambda: rt.malloc(8, 2), (0, BAD)),
        ("malloc_host", lambda: rt.malloc_host(8), (0, BAD)),
        ("free", lambda: rt.free(pointer), BAD),
        ("free_host", lambda: rt.free_host(host), BAD),
        ("memcpy", lambda: rt.memcpy(pointer, 8, out, 8, 1), BAD),
        ("memcpy on the host", lambda: rt.memcpy(into, 8, out, 8, 0), BAD),
        ("memset", lambda: rt.memset(pointer, 8, 1, 8), BAD),
        ("memcpy2d", lambda: rt.memcpy2d(pointer, 4, out, 4, 4, 2, 1), BAD),
        ("get_mem_info", lambda: rt.get_mem_info(1), (0, 0, BAD)),
        ("can_access_peer", lambda: rt.device_can_access_peer(0, 1), (0, BAD)),
        ("enable", lambda: rt.device_enable_peer_access(1, 0), BAD),
        ("disable", lambda: rt.device_disable_peer_access(1), BAD),
        ("status", lambda: rt.device_peer_access_status(0, 1), (0, BAD)),
        ("create_stream", rt.create_stream, (0, BAD)),
        ("destroy_stream", lambda: rt.destroy_stream(stream), BAD),
        ("synchronize_stream", lambda: rt.synchronize_stream(stream), BAD),
        ("synchronize_device", rt.synchronize_device, BAD),
        ("stream_query", lambda: rt.stream_query(stream), (0, BAD)),
        ("memcpy_async", lambda: rt.memcpy_async(pointer, 4, pointer + 4, 4, 3, stream), BAD),
        ("memset_async", lambda: rt.memset_async(pointer, 8, 1, 8, stream), BAD),
        ("create_event", rt.create_event, (0, BAD)),
        ("record_event", lambda: rt.record_event(event, stream), BAD),
        ("synchronize_event", lambda: rt.synchronize_event(event), BAD),
        ("query_event", lambda: rt.query_event(event), (0, BAD)),
        ("stream_wait_event", lambda: rt.stream_wait_event(stream, event), BAD),
        ("record_notify", lambda: rt.record_notify(notify, stream), BAD),
        ("set_memcpy_desc", lambda: rt.set_memcpy_desc(pointer, 6, 1, 2, 8, 0), (0, BAD)),
        ("process_report", lambda: rt.process_report(1), BAD),
        ("malloc_with_cfg", lambda: rt.malloc_with_cfg(8, 0, {}), (0, BAD)),
        ("malloc_host_with_cfg", lambda: rt.malloc_host_with_cfg(8, {}), (0, BAD)),
        ("mem_flush", lambda: rt.mem_flush(pointer, 8), BAD),
        ("dvpp_malloc", lambda: acl.media.dvpp_malloc(8), (0, BAD)),
        ("dvpp_free", lambda: acl.media.dvpp_free(pointer), BAD),
        ("host_register", lambda: rt.host_register(4096, 8, 0), (0, BAD)),
        ("host_unregister", lambda: rt.host_unregister(4096), BAD),
        ("host_get_device_pointer", lambda: rt.host_get_device_pointer(4096, 0), (0, BAD)),
        ("attributes", lambda: rt.pointer_get_attributes(pointer)[1], BAD),
        ("value_write", lambda: rt.value_write(pointer, 1, 0, stream), BAD),
        ("value_wait", lambda: rt.value_wait(pointer, 1, 0, stream), BAD),
        ("reduce_async", lambda: rt.reduce_async(pointer, pointer, 8, 10, 0, stream, 0), BAD),
        ("set_stream_attribute", lambda: rt.set_stream_attribute(stream, 3, {}), BAD),
        ("get_stream_attribute", lambda: rt.get_stream_attribute(stream, 1), ({"failureMode": 0}, BAD)),
        ("capability", lambda: acl.get_device_capability(0, 0), (0, BAD)),
        ("get_device_info", lambda: rt.get_device_info(0, 101), (0, BAD)),
        ("query_device_status", lambda: rt.query_device_status(0), (0xFFFF, BAD)),
        ("get_devices_topo", lambda: rt.get_devices_topo(0, 1), (0, BAD)),
        ("get_mem_uce_info", lambda: rt.get_mem_uce_info(0, 1), ([], BAD)),
        ("last error", lambda: [rt.get_last_error(0), rt.peek_at_last_error(0)], [BAD, 0]),
        ("data buffer", lambda: [acl.create_data_buffer(1, 1), acl.get_data_buffer_addr(buffer)], [0, 0]),
        ("get_cann_version", lambda: acl.get_cann_version(0)[1], 0),
        ("a model", lambda: acl.mdl.load_from_file("x"), (0, 200001)),
        ("get_soc_name", acl.get_soc_name, None),
        ("get_version", acl.get_version, (1, 17, 0, 0)),
        ("message", lambda: "was forked after its parent had used devices" in acl.get_recent_err_msg(), True),
        ("solution", lambda: (rt.malloc(8, 2), "'spawn'" in acl.get_recent_err_msg())[1], True),
        ("ptr_to_bytes", lambda: util.ptr_to_bytes(out, len(data)), data),
        ("bytes_to_ptr", lambda: util.bytes_to_ptr(data), out),
        ("of a device", lambda: "not host memory" in refusal(lambda: util.ptr_to_bytes(pointer, 8)), True),
        ("wild", lambda: "not host memory" in refusal(lambda: util.ptr_to_bytes(0x40, 8)), True),
        ("far", lambda: "not host memory" in refusal(lambda: util.ptr_to_bytes((1 << 64) - 8, 8)), True),
        ("array", lambda: "forked" in refusal(lambda: util.ptr_to_numpy(array.ctypes.data, (4,), 2)), True),
        ("finalize", acl.finalize, 0),
    ]
    returned = in_fork(cases)
    assert {name: got for (name, _, _), got in zip(cases, returned, strict=True)} == {
        name: wanted for name, _, wanted in cases
    }
    assert bytes(target) == bytes(8)
    assert rt.memset(pointer, 8, 0, 8) == 0
    assert [rt.free(pointer), rt.free_host(host), acl.finalize()] == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("err_msg_mode", ["0", "1"])
def test_acl_error_state_of_parent_is_empty_in_forked_child(
    acl: ModuleType, err_msg_mode: str, tmp_path: Path
) -> None:
    config = tmp_path / "acl.json"
    config.write_text(f'{{"err_msg_mode": "{err_msg_mode}"}}')
    assert acl.init(str(config)) == 0
    assert acl.rt.free(4096) == 107000
    cases: list[Case] = [
        ("no message", acl.get_recent_err_msg, None),
        ("no code", lambda: [acl.rt.peek_at_last_error(0), acl.rt.get_last_error(0)], [0, 0]),
        ("its own", lambda: [acl.rt.free(64), str(acl.get_recent_err_msg()).count("returned")], [BAD, 1]),
    ]
    assert in_fork(cases) == [wanted for _, _, wanted in cases]
    assert acl.rt.get_last_error(0) == 107000
    assert "acl.rt.free returned 107000" in acl.get_recent_err_msg()


def refused(call: Callable[[], object]) -> tuple[str, bool]:
    """Return the text of the ValueError, and whether its traceback shows another exception."""
    try:
        call()
    except ValueError as error:
        return str(error), error.__cause__ is not None or not error.__suppress_context__
    return "nothing was raised", False


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_acl_ptr_to_bytes_in_forked_child_names_pointer_and_remedy(acl: ModuleType) -> None:
    pointer, _ = acl.rt.malloc(8, 2)
    cases: list[Case] = [
        (f"{at:#x}", lambda at=at: refused(lambda: acl.util.ptr_to_bytes(at, 8)), None)
        for at in (0, 0x40, pointer)
    ]
    returned = in_fork(cases)
    for named, answer in zip(("NULL (0)", "0x40", f"{pointer:#x}"), returned, strict=True):
        assert isinstance(answer, tuple)
        text, is_chained = answer
        assert text.startswith(f"acl.util.ptr_to_bytes: {named} is not host memory of this process")
        assert "start workers with multiprocessing's 'spawn'" in text and not is_chained
    assert acl.rt.free(pointer) == 0


ACL = "import peerlane.dialects.acl as acl"
REFUSED = "[507033, 507033, (0, 507033)]"
FIRST = """
import os, sys, warnings
warnings.simplefilter("ignore")
{before}
child = os.fork()
if child == 0:
    import peerlane.dialects.acl as acl
    print([acl.init(), acl.rt.set_device(0), acl.rt.get_device_count()], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        ("", "[0, 0, (2, 0)]"),
        ("import peerlane.dialects.acl as acl; acl.rt.get_run_mode()", "[0, 0, (2, 0)]"),
        (f"{ACL}; acl.rt.get_device_count(); acl.get_soc_name()", "[0, 0, (2, 0)]"),
        (f"{ACL}; acl.init(); acl.rt.get_device_count()", "[100002, 0, (2, 0)]"),
        (f"{ACL}; acl.rt.device_can_access_peer(0, 1); acl.rt.get_device_info(0, 101)", "[0, 0, (2, 0)]"),
        (f"{ACL}; acl.rt.set_device(0)", REFUSED),
        (f"{ACL}; acl.rt.set_device(0); acl.rt.reset_device(0)", REFUSED),
        (f"{ACL}; acl.rt.create_context(0)", REFUSED),
        ("import peerlane; peerlane.devices()", "[0, 0, (2, 0)]"),
        ("import peerlane; peerlane.devices()[0].allocate(8)", REFUSED),
        ("import peerlane; peerlane.devices()[0].allocate(8); peerlane.leave_node()", "[0, 0, (2, 0)]"),
    ],
)
def test_acl_calls_in_forked_child_fail_only_if_parent_had_used_devices(before: str, wanted: Any) -> None:
    done = run_python(["-c", FIRST.format(before=before)], timeout=30)
    assert (done.stdout, done.stderr) == (wanted + "\n", "")
