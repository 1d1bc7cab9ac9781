"""``acl.rt``: contexts that a program creates, the current context of a thread, and what ends with one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.acl_calls import content, filled, in_thread, ok

pytestmark = pytest.mark.timeout(60)


def test_acl_create_context_is_current_only_in_its_thread(acl: ModuleType) -> None:
    own = ok(acl.rt.get_context())
    created = ok(acl.rt.create_context(1))
    assert created != own
    assert (acl.rt.get_context(), acl.rt.get_device()) == ((created, 0), (1, 0))
    assert in_thread(acl.rt.get_context) == (0, 107002)
    ok(acl.rt.set_context(own))
    assert (acl.rt.get_context(), acl.rt.get_device()) == ((own, 0), (0, 0))


def test_acl_set_device_after_create_context_selects_context_of_device(acl: ModuleType) -> None:
    own = ok(acl.rt.get_context())
    ok(acl.rt.create_context(0))
    ok(acl.rt.set_device(0))
    assert acl.rt.get_context() == (own, 0)


def test_acl_get_context_threads_share_only_context_of_device(acl: ModuleType) -> None:
    def other() -> list[int]:
        ok(acl.rt.set_device(0))
        return [ok(acl.rt.get_context()), ok(acl.rt.create_context(0)), ok(acl.rt.create_context(0))]

    own, *created = in_thread(other)
    assert own == ok(acl.rt.get_context())
    assert len({own, *created}) == 3


def test_acl_default_stream_is_per_context_and_foreign_stream_returns_107003(acl: ModuleType) -> None:
    own = ok(acl.rt.ctx_get_current_default_stream())
    ok(acl.rt.create_context(0))
    assert ok(acl.rt.ctx_get_current_default_stream()) != own
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.set_device(0))
    assert acl.rt.synchronize_stream(stream) == 107003
    assert "belongs to context 0x" in (text := acl.get_recent_err_msg()) and "and device 0 is current" in text
    assert "acl.rt.set_context(0x" in text
    assert acl.rt.destroy_stream(stream) == 107003
    event = ok(acl.rt.create_event())
    ok(acl.rt.create_context(0))
    assert acl.rt.record_event(event, 0) == 107003
    assert "acl.rt.set_device(0)" in acl.get_recent_err_msg()


def test_acl_synchronize_device_waits_for_all_contexts_of_device(acl: ModuleType) -> None:
    notify, target = ok(acl.rt.create_notify(0)), filled(acl, 64, 1)
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    ok(acl.rt.memset_async(target, 64, 2, 64, stream))
    own, other = ok(acl.rt.get_context()), ok(acl.rt.create_context(0))
    assert acl.rt.synchronize_device_with_timeout(20) == 507046
    ok(acl.rt.record_notify(notify, ok(acl.rt.create_stream())))
    ok(acl.rt.synchronize_device())
    assert content(acl, target, 64) == bytes([2]) * 64
    ok(acl.rt.destroy_context(other))
    ok(acl.rt.set_context(own))


@pytest.mark.parametrize("call", ["destroy_context", "set_context"])
def test_acl_context_calls_invalid_context_return_107002(acl: ModuleType, call: str) -> None:
    created, stream = ok(acl.rt.create_context(1)), ok(acl.rt.create_stream())
    assert getattr(acl.rt, call)(0) == 100000
    for wrong, words in ((stream, "another kind: stream"), (12345, "gave out no context")):
        assert getattr(acl.rt, call)(wrong) == 107002
        assert words in acl.get_recent_err_msg()
    ok(acl.rt.destroy_context(created))
    assert getattr(acl.rt, call)(created) == 107002
    assert "ended by acl.rt.destroy_context at " in acl.get_recent_err_msg()
    with pytest.raises(TypeError):
        getattr(acl.rt, call)(None)


def test_acl_create_context_invalid_device_returns_107001(acl: ModuleType) -> None:
    for device in (-1, 2):
        assert acl.rt.create_context(device) == (0, 107001)
    assert ok(acl.rt.get_device()) == 0


def test_acl_destroy_context_of_device_itself_returns_107002(acl: ModuleType) -> None:
    own = ok(acl.rt.get_context())
    assert acl.rt.destroy_context(own) == 107002
    assert "acl.rt.reset_device(0)" in acl.get_recent_err_msg()
    ok(acl.rt.reset_device(0))
    assert acl.rt.set_context(own) == 107002
    ok(acl.rt.set_device(0))
    assert ok(acl.rt.get_context()) != own


def test_acl_destroy_context_current_in_other_thread_leaves_it_without_context(acl: ModuleType) -> None:
    created = ok(acl.rt.create_context(0))
    stream, event, notify = ok(acl.rt.create_stream()), ok(acl.rt.create_event()), ok(acl.rt.create_notify(0))
    seen = threading.Event(), threading.Event()

    def other() -> tuple[int, int]:
        ok(acl.rt.set_context(created))
        seen[0].set()
        assert seen[1].wait(20)
        return acl.rt.get_device()

    def destroy() -> None:
        assert seen[0].wait(20)
        ok(acl.rt.destroy_context(created))
        seen[1].set()

    ending = threading.Thread(target=destroy)
    ending.start()
    assert in_thread(other) == (0, 107002)
    ending.join(20)
    assert acl.rt.get_device() == (0, 107002)
    ok(acl.rt.set_device(0))
    for call, handle in (("destroy_stream", stream), ("destroy_event", event), ("destroy_notify", notify)):
        assert getattr(acl.rt, call)(handle) == 107000


def test_acl_destroy_context_waits_for_work_and_reports_endless_wait(acl: ModuleType) -> None:
    created, target = ok(acl.rt.create_context(0)), filled(acl, 4 << 20, 0)
    stream = ok(acl.rt.create_stream())
    ok(acl.rt.memset_async(target, 4 << 20, 3, 4 << 20, stream))
    ok(acl.rt.destroy_context(created))
    ok(acl.rt.set_device(0))
    assert content(acl, target, 4 << 20) == bytes([3]) * (4 << 20)
    created, stream = ok(acl.rt.create_context(0)), ok(acl.rt.create_stream())
    notify = ok(acl.rt.create_notify(0))
    ok(acl.rt.wait_and_reset_notify(notify, stream, 0))
    assert acl.rt.destroy_context(created) == 107023
    assert acl.rt.destroy_context(created) == 107002


def test_acl_reset_device_other_context_alive_keeps_memory(acl: ModuleType) -> None:
    free, _ = ok(acl.rt.get_mem_info(1))
    pointer = filled(acl, 1 << 20, 9)
    created = ok(acl.rt.create_context(0))
    ok(acl.rt.reset_device(0))
    assert content(acl, pointer, 16) == bytes([9]) * 16
    ok(acl.rt.destroy_context(created))
    ok(acl.rt.set_device(0))
    assert ok(acl.rt.get_mem_info(1))[0] == free
    assert acl.rt.free(pointer) == 107000
    assert "freed" in acl.get_recent_err_msg()


def test_acl_reset_device_force_drops_all_references(acl: ModuleType) -> None:
    for _ in range(3):
        ok(acl.rt.set_device(0))
    ok(acl.rt.reset_device(0))
    ok(acl.rt.reset_device_force(0))
    assert acl.rt.get_device() == (0, 107002)
    assert acl.rt.reset_device_force(0) == acl.rt.reset_device(0) == 507007
    assert acl.rt.reset_device_force(2) == 107001


def test_acl_destroy_context_from_two_threads_succeeds_once(acl: ModuleType) -> None:
    for _ in range(20):
        created = ok(acl.rt.create_context(0))
        ok(acl.rt.create_stream())
        start = threading.Barrier(2)
        results: list[int] = []

        def destroy(
            created: int = created, start: threading.Barrier = start, results: list[int] = results
        ) -> None:
            start.wait(20)
            results.append(acl.rt.destroy_context(created))

        threads = [threading.Thread(target=destroy) for _ in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(20)
        assert sorted(results) in ([0, 107002], [0, 507007])
    ok(acl.rt.set_device(0))


def test_acl_get_stream_available_num_in_second_context_counts_device_streams(
    enter: Callable[[str], ModuleType],
) -> None:
    acl = enter("devices=1,memory=64MiB,profile=ascend-310p")
    ok(acl.rt.set_device(0))
    before = ok(acl.rt.get_stream_available_num())
    ok(acl.rt.create_stream())
    ok(acl.rt.create_context(0))
    ok(acl.rt.ctx_get_current_default_stream())
    assert ok(acl.rt.get_stream_available_num()) == before - 1


def test_acl_set_context_of_previous_node_returns_107002(
    acl: ModuleType, enter: Callable[[str], ModuleType]
) -> None:
    created = ok(acl.rt.create_context(1))
    acl = enter("devices=2,memory=64MiB")
    assert acl.rt.set_context(created) == 107002
    assert acl.rt.get_context() == (0, 107002)
