"""Messages of ``get_recent_err_msg``: operation, memory, stream and lines, as they were at the failure."""

from __future__ import annotations

import sys
import time
import timeit
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import MIB, Held, filled, ok
from peerlane.dialects._shared import message as message_layer
from peerlane.dialects.acl import _state

pytestmark = pytest.mark.timeout(60)
ENDED_HOW = {"stream": "destroy_stream", "event": "destroy_event", "notify": "destroy_notify"}


def this_line(back: int = 0) -> str:
    """Return the calling line as messages name it, or one ``back`` lines before it."""
    return f"test_acl_messages.py:{sys._getframe(1).f_lineno - back}"


def message(acl: ModuleType) -> str:
    """Return the newest message."""
    text, _ = acl.get_recent_err_msg(), None
    return str(text[0] if isinstance(text, tuple) else text)


def created_on_two_devices(acl: ModuleType) -> tuple[int, int]:
    a = filled(acl, 256, 1)
    ok(acl.rt.set_device(1))
    b = filled(acl, 256, 2)
    ok(acl.rt.set_device(0))
    return a, b


def test_acl_message_failed_copy_names_memory_stream_and_lines(acl: ModuleType) -> None:
    a, b = created_on_two_devices(acl)
    stream = ok(acl.rt.create_stream())
    created = this_line(1)
    number = ok(acl.rt.stream_get_id(stream))
    ok(acl.rt.memcpy_async(a, 256, b + 16, 128, 3, stream))
    submitted = this_line(1)
    assert acl.rt.synchronize_stream(stream) == 507899
    text = message(acl)
    assert f"Called with: stream={stream:#x} of device 0, made at {created}\n" in text
    assert (
        f"Possible Cause: operation 1 (copy) of stream {stream:#x}: virtual:0 and virtual:1 have no peer"
        in text
    )
    assert f"[128 bytes from {b + 16:#x} (byte 16 of allocation " in text
    assert f" to {a:#x} (start of allocation " in text and "virtual:1, allocated at acl_calls.py:" in text
    assert (
        f"submitted at {submitted}; stream {stream:#x} of device 0, made at {created}, its id is {number}]"
        in text
    )


def test_acl_message_failed_copy_on_default_stream_names_stream(acl: ModuleType) -> None:
    a, b = created_on_two_devices(acl)
    ok(acl.rt.memcpy_async(a, 256, b, 256, 3, 0))
    submitted = this_line(1)
    assert acl.rt.synchronize_device() == 507899
    stream = ok(acl.rt.ctx_get_current_default_stream())
    assert f"of stream {stream:#x}: " in (text := message(acl)) and f"submitted at {submitted}" in text


def test_acl_message_memory_freed_while_queued_names_line_of_free(acl: ModuleType) -> None:
    a, b = created_on_two_devices(acl)
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async(a, 256, b, 256, 3, stream))
    ok(acl.rt.free(b))
    freed = this_line(1)
    held.release()
    assert acl.rt.synchronize_stream(stream) == 507899
    assert f"which was freed by acl.rt.free at {freed}" in message(acl)


def test_acl_message_failure_caused_by_other_stream_names_first_failure(acl: ModuleType) -> None:
    a, b = created_on_two_devices(acl)
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    ok(acl.rt.set_stream_failure_mode(first, 1))
    event = ok(acl.rt.create_event())
    held = Held(acl, first)
    ok(acl.rt.memcpy_async(a, 256, b, 256, 3, first))
    submitted = this_line(1)
    ok(acl.rt.record_event(event, first))
    ok(acl.rt.stream_wait_event(second, event))
    waiting = this_line(1)
    held.release()
    assert acl.rt.synchronize_stream(second) == 107023
    text = message(acl)
    assert f"operation 1 (wait) of stream {second:#x} was cancelled, because an earlier one failed: " in text
    assert f"operation 2 (copy) of stream {first:#x}: virtual:0 and virtual:1" in text
    assert f"submitted at {submitted}" in text and f"submitted at {waiting}" in text
    assert acl.rt.synchronize_stream(first) == 507899


def test_acl_message_notify_wait_timeout_names_submitting_line(acl: ModuleType) -> None:
    stream, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 1))
    submitted = this_line(1)
    assert acl.rt.synchronize_stream(stream) == 107019
    assert f"[submitted at {submitted}; stream {stream:#x}" in message(acl)


@pytest.mark.parametrize("kind", ENDED_HOW)
def test_acl_message_ended_handle_names_lines_of_creation_and_end(acl: ModuleType, kind: str) -> None:
    args = (0,) if kind == "notify" else ()
    handle = ok(getattr(acl.rt, f"create_{kind}")(*args))
    created = this_line(1)
    destroy = getattr(acl.rt, ENDED_HOW[kind])
    ok(destroy(handle))
    ended = this_line(1)
    assert destroy(handle) == 107000
    text = message(acl)
    what = "an event" if kind == "event" else f"a {kind}"
    how = f"made at {created} and ended by acl.rt.{ENDED_HOW[kind]} at {ended}"
    assert f"{handle:#x} was {what} of device 0, {how}" in text
    assert f"Called with: {kind}={handle:#x} (over)\n" in text


def test_acl_message_ended_context_and_its_event_name_destroying_line(acl: ModuleType) -> None:
    context, event = ok(acl.rt.create_context(1)), ok(acl.rt.create_event())
    created = this_line(1)
    ok(acl.rt.destroy_context(context))
    ended = this_line(1)
    ok(acl.rt.set_device(0))
    end = f" of device 1, made at {created} and ended by acl.rt.destroy_context at {ended}"
    assert acl.rt.set_context(context) == 107002
    assert f"was a context{end}" in message(acl)
    assert acl.rt.query_event_status(event)[-1] == 107000
    assert f"was an event{end}" in message(acl)


def test_acl_message_handle_ended_by_reset_names_line_of_reset(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.reset_device(0))
    reset = this_line(1)
    ok(acl.rt.set_device(0))
    assert acl.rt.synchronize_stream(stream) == 107000
    assert f"ended by the last reset of device 0 at {reset}" in message(acl)


def test_acl_message_handle_of_other_kind_or_device_names_line_of_creation(acl: ModuleType) -> None:
    stream = ok(acl.rt.create_stream())
    created = this_line(1)
    assert acl.rt.destroy_event(stream) == 107000
    assert (
        f"{stream:#x} is the number of another kind: stream {stream:#x} of device 0, made at {created}, "
        "not of an event" in message(acl)
    )
    ok(acl.rt.set_device(1))
    assert acl.rt.synchronize_stream(stream) == 107003
    assert f"stream {stream:#x}, made at {created}, belongs to device 0, and device 1 is current" in message(
        acl
    )


@pytest.mark.parametrize("invented", [12345, (1 << 62) + (64 << 40), 0x5000_0000_0000, (1 << 64) - 64])
def test_acl_message_invented_handle_is_reported_as_never_issued(acl: ModuleType, invented: int) -> None:
    assert acl.rt.synchronize_stream(invented) == 107000
    text = message(acl)
    assert f"Called with: stream={invented:#x}\n" in text and "gave out no stream with the number" in text
    assert "another node" not in text and "mapped" not in text


def test_acl_message_handle_of_previous_node_names_that_node(enter: Any) -> None:
    acl = enter("devices=1,memory=64MiB")
    ok(acl.rt.set_device(0))
    stream = ok(acl.rt.create_stream())
    enter("devices=1,memory=64MiB")
    ok(acl.rt.set_device(0))
    assert acl.rt.synchronize_stream(stream) == 107000
    assert f"{stream:#x} ended with the node that the process was in before" in message(acl)


def test_acl_message_out_of_memory_names_largest_allocations(acl: ModuleType) -> None:
    small = [ok(acl.rt.malloc(MIB, 0)) for _ in range(3)]
    large = ok(acl.rt.malloc(40 * MIB, 0))
    created = this_line(1)
    assert acl.rt.malloc(40 * MIB, 0) == (0, 207001)
    text = message(acl)
    asked = 40 * MIB
    free, total = ok(acl.rt.get_mem_info(1))
    assert (
        f"cannot allocate {asked:,} bytes: {free:,} of its {total:,} bytes are free; this process holds 4"
        in text
    )
    assert f"the largest: {asked:,} bytes of {created}, {MIB:,} bytes of test_acl_messages.py:" in text
    assert "PEERLANE_NODE" not in text and "free memory with acl.rt.free" in text
    assert "`peerlane run --node memory=84MiB`" in text
    for pointer in (*small, large):
        ok(acl.rt.free(pointer))


@pytest.mark.parametrize(
    ("size", "size_text"),
    [
        (100 * MIB, "or give the devices more: `peerlane run --node memory=100MiB`."),
        ((3 << 30) + 1, "or give the devices more: `peerlane run --node memory=4GiB`."),
        (1 << 40, "or give the devices more: `peerlane run --node memory=1TiB`."),
        (1 << 60, "Solution: pass a smaller size: the device has 67,108,864 bytes in all."),
    ],
)
def test_acl_message_out_of_memory_suggests_node_memory_that_suffices(
    acl: ModuleType, size: int, size_text: str
) -> None:
    assert acl.rt.malloc(size, 0) == (0, 207001)
    assert message(acl).endswith(size_text)


def test_acl_message_destroyed_stream_is_shown_as_over_in_next_call(acl: ModuleType) -> None:
    stream, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    assert acl.rt.destroy_stream(stream) == 107023
    assert f"Called with: stream={stream:#x} of device 0, made at " in message(acl)
    assert acl.rt.destroy_stream(stream) == 107000
    assert f"Called with: stream={stream:#x} (over)\n" in message(acl)


def test_acl_message_unmapped_part_of_reservation_suggests_mapping(acl: ModuleType) -> None:
    size = 2 * MIB
    address = ok(acl.rt.reserve_mem_address(2 * size, 0, 0, 1))
    other = filled(acl, 64, 1)
    prop = {"memAttr": 4, "location": {"type": 1, "id": 0}}
    physical = ok(acl.rt.malloc_physical(size, prop, 0))
    ok(acl.rt.map_mem(address, size, 0, physical, 0))
    stream = ok(acl.rt.create_stream())
    for failing in (
        lambda: acl.rt.memcpy(address + size - 32, 64, other, 64, 3),
        lambda: acl.rt.memcpy(address + size, 64, other, 64, 3),
        lambda: acl.rt.reduce_async(other, address + size - 8, 64, 10, 2, stream, 0),
    ):
        assert failing() == 107000 or acl.rt.synchronize_stream(stream) == 107000
        text = message(acl)
        assert "Solution: map memory" in text and "malloc" not in text.partition("Solution")[2], text


def test_acl_message_read_later_shows_state_at_failure(acl: ModuleType) -> None:
    a = filled(acl, 256, 1)
    allocated = message_of_beyond(acl, a)
    ok(acl.rt.memset(a, 256, 1, 256))
    assert acl.rt.memcpy(a, 512, a + 256, 512, 3) == 107000
    ok(acl.rt.free(a))
    filled(acl, 256, 3)
    assert message(acl).replace(f"{a + 256:#x}", "") == allocated.replace(f"{a + 256:#x}", "")


def message_of_beyond(acl: ModuleType, a: int) -> str:
    assert acl.rt.memcpy(a, 512, a + 256, 512, 3) == 107000
    return message(acl)


def test_acl_message_argument_changed_later_shows_value_at_call(acl: ModuleType) -> None:
    pids = [1, 2]
    assert acl.rt.ipc_mem_set_import_pid("no key", pids) != 0
    pids.clear()
    assert "[1, 2]" in message(acl)


def test_acl_message_100_equal_failures_keep_one_text(acl: ModuleType) -> None:
    assert acl.rt.set_device(9) == 107001
    for _ in range(100):
        assert acl.rt.free(12345) == 107000
    texts = str(acl.get_recent_err_msg())
    assert texts.count("acl.rt.free returned") == 1 and "acl.rt.set_device returned" in texts


def test_acl_calls_that_fail_build_no_text_until_it_is_read(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_layer.Message, "__str__", lambda _: pytest.fail("nobody has asked"))
    for number in range(200):
        assert acl.rt.free(4096 + number) == 107000
    monkeypatch.undo()
    assert "acl.rt.free returned 107000" in message(acl)


def test_acl_message_freed_memory_among_3000_frees_costs_at_most_5_times(acl: ModuleType) -> None:
    a, b = filled(acl, 64, 1), filled(acl, 64, 2)
    ok(acl.rt.free(b))

    def fail() -> None:
        assert acl.rt.memcpy(a, 64, b, 64, 3) == 107000

    few = min(timeit.repeat(fail, number=200, repeat=5, timer=time.thread_time))
    for pointer in [ok(acl.rt.malloc(64, 0)) for _ in range(3_000)]:
        ok(acl.rt.free(pointer))
    many = min(timeit.repeat(fail, number=200, repeat=5, timer=time.thread_time))
    assert many < 5 * few
    assert "which was freed by acl.rt.free" in message(acl)


def test_acl_set_exception_info_callback_not_callable_names_type_in_cause(acl: ModuleType) -> None:
    with pytest.raises(
        TypeError, match=r"^acl\.rt\.set_exception_info_callback args parse failed$"
    ) as refused:
        acl.rt.set_exception_info_callback(5)
    assert str(refused.value.__cause__) == "argument fn: must be callable or None, not int"


def test_acl_modules_dir_lists_calls_and_submodules(acl: ModuleType) -> None:
    table = _state.acl.table
    modules = {name.rpartition(".")[0] for name in table if "." in name} | {
        f"acl.{m}" for m in ("mdl", "op", "prof", "himpi")
    }
    for module in modules:
        function: Any = acl
        for part in module.split(".")[1:]:
            function = getattr(function, part)
        calls = {name.rpartition(".")[2] for name in table if name.rpartition(".")[0] == module}
        parts = (
            {"blas", "fv", "himpi", "mdl", "media", "op", "prof", "rt", "util"} if module == "acl" else set()
        )
        assert dir(function) == sorted(calls | parts)
        assert all(hasattr(function, name) for name in dir(function))
