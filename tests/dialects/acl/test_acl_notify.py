"""``acl.rt``: notifies within a process."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.acl_calls import content, filled, in_thread, ok

pytestmark = pytest.mark.timeout(60)


def test_acl_wait_and_reset_notify_before_record_waits_for_it(acl: ModuleType) -> None:
    first, second = ok(acl.rt.create_stream()), ok(acl.rt.create_stream())
    notify, target = ok(acl.rt.create_notify(0)), filled(acl, 64, 0)
    for value in range(1, 20):
        ok(acl.rt.wait_and_reset_notify(notify, second, 0))
        ok(acl.rt.memset_async(target, 32, value, 32, second))
        ok(acl.rt.memset_async(target, 64, 0xEE, 64, first))
        ok(acl.rt.record_notify(notify, first))
        ok(acl.rt.synchronize_stream(second))
        assert content(acl, target, 64) == bytes([value] * 32 + [0xEE] * 32)


def test_acl_record_notify_three_times_releases_one_wait(acl: ModuleType) -> None:
    first, second, notify = (
        ok(acl.rt.create_stream()),
        ok(acl.rt.create_stream()),
        ok(acl.rt.create_notify(1)),
    )
    for _ in range(3):
        ok(acl.rt.record_notify(notify, first))
    ok(acl.rt.synchronize_stream(first))
    ok(acl.rt.wait_and_reset_notify(notify, second, 0))
    ok(acl.rt.synchronize_stream(second))
    ok(acl.rt.wait_and_reset_notify(notify, second, 0))
    assert acl.rt.synchronize_stream_with_timeout(second, 50) == 507046
    ok(acl.rt.record_notify(notify, first))
    ok(acl.rt.synchronize_stream(second))


def test_acl_wait_and_reset_notify_timeout_in_seconds_returns_107019(acl: ModuleType) -> None:
    stream, notify, target = ok(acl.rt.create_stream()), ok(acl.rt.create_notify(0)), filled(acl, 64, 0)
    ok(acl.rt.wait_and_reset_notify(notify, stream, 1))
    ok(acl.rt.memset_async(target, 64, 1, 64, stream))
    assert acl.rt.synchronize_stream(stream) == 107019
    assert "did not come within 1 s" in acl.get_recent_err_msg()
    assert content(acl, target, 64) == bytes([1] * 64)
    ok(acl.rt.synchronize_stream(stream))


def test_acl_notify_batch_reset_bad_list_resets_nothing(acl: ModuleType, message: Callable[[], str]) -> None:
    stream = ok(acl.rt.create_stream())
    notifies = [ok(acl.rt.create_notify(0)) for _ in range(3)]
    for notify in notifies:
        ok(acl.rt.record_notify(notify, stream))
    ok(acl.rt.synchronize_stream(stream))
    assert acl.rt.notify_batch_reset([*notifies, 4096]) == 107000
    assert acl.rt.notify_batch_reset([*notifies, 0]) == 100000
    assert acl.rt.notify_batch_reset([]) == 107000
    for wrong in (tuple(notifies), None, 5, [notifies[0], None], ["1"]):
        with pytest.raises(ValueError, match=r"acl\.rt\.notify_batch_reset: needs a list"):
            acl.rt.notify_batch_reset(wrong)
    message()
    ok(acl.rt.wait_and_reset_notify(notifies[2], stream, 0))  # the record is still there
    ok(acl.rt.synchronize_stream(stream))
    ok(acl.rt.notify_batch_reset(notifies))
    ok(acl.rt.wait_and_reset_notify(notifies[0], stream, 0))
    assert acl.rt.synchronize_stream_with_timeout(stream, 50) == 507046
    ok(acl.rt.stream_abort(stream))


def test_acl_record_notify_from_other_device_releases_waiting_stream(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    notify, waiting, target = ok(acl.rt.create_notify(0)), ok(acl.rt.create_stream()), filled(acl, 64, 0)
    ok(acl.rt.wait_and_reset_notify(notify, waiting, 0))
    ok(acl.rt.memset_async(target, 64, 1, 64, waiting))
    ok(acl.rt.set_device(1))
    far = ok(acl.rt.create_stream())
    assert acl.rt.wait_and_reset_notify(notify, far, 0) == 107003
    assert "notify" in message() and acl.rt.record_notify(notify, waiting) == 107003
    ok(acl.rt.record_notify(notify, far))
    ok(acl.rt.synchronize_stream(far))
    ok(acl.rt.set_device(0))
    ok(acl.rt.synchronize_stream(waiting))
    assert content(acl, target, 64) == bytes([1] * 64)


def test_acl_destroy_notify_queued_wait_completes_and_later_calls_return_107000(acl: ModuleType) -> None:
    first, second, notify = (
        ok(acl.rt.create_stream()),
        ok(acl.rt.create_stream()),
        ok(acl.rt.create_notify(0)),
    )
    ok(acl.rt.wait_and_reset_notify(notify, second, 0))
    ok(acl.rt.record_notify(notify, first))
    ok(acl.rt.destroy_notify(notify))
    ok(acl.rt.synchronize_stream(second))
    for result in (
        acl.rt.destroy_notify(notify),
        acl.rt.record_notify(notify, first),
        acl.rt.wait_and_reset_notify(notify, first, 0),
        acl.rt.notify_batch_reset([notify]),
        acl.rt.get_notify_id(notify)[1],
    ):
        assert result == 107000
    assert acl.get_recent_err_msg().count("ended by acl.rt.destroy_notify at ") == 5


def test_acl_notify_calls_in_thread_without_device_return_107002(acl: ModuleType) -> None:
    notify = ok(acl.rt.create_notify(0))
    assert in_thread(acl.rt.create_notify, 0) == (0, 107002)
    assert in_thread(acl.rt.record_notify, notify, 0) == 107002
    assert in_thread(acl.rt.wait_and_reset_notify, notify, 0, 0) == 107002
    assert in_thread(acl.rt.notify_batch_reset, [notify]) == 107002
    assert in_thread(acl.rt.get_notify_id, notify) == (0, 107002)
    assert in_thread(acl.rt.destroy_notify, notify) == 107002


def test_acl_create_notify_beyond_profile_limit_returns_207009(enter: Callable[[str], ModuleType]) -> None:
    acl = enter("devices=2,memory=64MiB,profile=ascend-310p")
    ok(acl.rt.set_device(0))
    notifies = [ok(acl.rt.create_notify(0)) for _ in range(1024)]
    assert acl.rt.create_notify(0) == (0, 207009)
    assert "1,024 notifies" in acl.get_recent_err_msg()
    ok(acl.rt.destroy_notify(notifies[0]))
    ok(acl.rt.create_notify(0))
    assert len({ok(acl.rt.get_notify_id(notify)) for notify in notifies[1:]}) == 1023
