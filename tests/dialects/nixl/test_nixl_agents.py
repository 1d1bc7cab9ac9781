"""The dialect nixl in one process: registration, transfers, notifications, metadata."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.nixl_calls import address_of, finish, heard, over, rows
from helpers.prepared import run_python
from helpers.promises import Node
from peerlane import dialects
from peerlane.diagnostics import live_objects
from peerlane.dialects.nixl import _api, _bindings
from peerlane.dialects.nixl._api import nixl_agent, nixl_agent_config
from peerlane.dialects.nixl._regions import Region, _Ahead
from peerlane.dialects.nixl._transfers import Request

pytestmark = pytest.mark.schedules_in_turn


class Pair:
    """Agents "a" and "b", each with device memory and host memory that is registered; "a" knows "b"."""

    def __init__(self, *, telemetry: bool = False) -> None:
        self.a = nixl_agent("a", nixl_agent_config(capture_telemetry=telemetry))
        self.b = nixl_agent("b")
        self.near, self.far = (device.allocate(4096) for device in pl.devices()[:2])
        self.mine, self.theirs = np.arange(4096).astype(np.uint8), np.zeros(4096, np.uint8)
        self.registered = []
        for agent, buffer, array in ((self.a, self.near, self.mine), (self.b, self.far, self.theirs)):
            buffer.fill(0)
            number = buffer.device.ordinal
            self.registered += [
                agent.register_memory([(buffer.address, 4096, number, "")], "VRAM"),
                agent.register_memory([(address_of(array), 4096, 0, "")], "DRAM"),
            ]
        self.a.add_remote_agent(self.b.get_agent_metadata())

    def make(self, operation: str = "WRITE", message: bytes = b"", **of: str) -> Any:
        """Make a transfer of 64 bytes between both agents' memory; ``mine`` and ``theirs`` are kinds of memory."""
        near, far = of.get("mine", "VRAM"), of.get("theirs", "VRAM")
        local = (self.near.address, 64, 0) if near == "VRAM" else (address_of(self.mine), 64, 0)
        remote = (self.far.address, 64, 1) if far == "VRAM" else (address_of(self.theirs), 64, 0)
        return self.a.initialize_xfer(
            operation,
            self.a.get_xfer_descs([local], near),
            self.a.get_xfer_descs([remote], far),
            "b",
            message,
        )


@pytest.fixture
def pair(node: Node) -> Iterator[Pair]:
    node("devices=2,memory=64MiB")
    yield Pair()
    gc.collect()


@pytest.mark.parametrize("theirs", ["VRAM", "DRAM"])
@pytest.mark.parametrize("mine", ["VRAM", "DRAM"])
def test_nixl_write_of_each_kind_of_memory_brings_bytes_and_one_notification(
    pair: Pair, mine: str, theirs: str
) -> None:
    pair.near.view()[:] = pair.mine
    assert finish(pair.a, pair.make(message=b"hello", mine=mine, theirs=theirs)) == "DONE"
    assert heard(pair.b) == {"a": [b"hello"]}
    content = pair.far.view() if theirs == "VRAM" else pair.theirs
    assert (content[:64] == pair.mine[:64]).all()
    assert not content[64:].any()
    assert pair.b.get_new_notifs() == {}


def test_nixl_read_brings_bytes_and_notifies_the_other_agent(pair: Pair) -> None:
    pair.far.fill(7)
    assert finish(pair.a, pair.make("READ", b"read")) == "DONE"
    assert (pair.near.view()[:64] == 7).all()
    assert heard(pair.b) == {"a": [b"read"]}


def test_nixl_handle_posted_again_moves_the_new_bytes_and_keeps_the_last_message(pair: Pair) -> None:
    handle = pair.make(message=b"first")
    pair.near.fill(1)
    finish(pair.a, handle)
    pair.near.fill(2)
    finish(pair.a, handle, b"second")
    finish(pair.a, handle)
    assert heard(pair.b, 3) == {"a": [b"first", b"second", b"second"]}
    assert (pair.far.view()[:64] == 2).all()


def test_nixl_prepared_lists_pick_descriptors_by_index(pair: Pair) -> None:
    pair.near.view()[:] = pair.mine
    local = pair.a.prep_xfer_dlist("NIXL_INIT_AGENT", rows(pair.near.address, 4, 16), "VRAM")
    remote = pair.a.prep_xfer_dlist("b", rows(pair.far.address, 4, 16, 1), "VRAM")
    assert (
        finish(pair.a, pair.a.make_prepped_xfer("WRITE", local, [0, 3], remote, np.array([2, 1]))) == "DONE"
    )
    content = pair.far.view()
    assert content[32:48].tolist() == list(range(16))
    assert content[16:32].tolist() == list(range(48, 64))
    assert not content[:16].any()


def test_nixl_prepared_strided_array_is_the_list_that_it_describes(pair: Pair) -> None:
    pair.near.view()[:] = pair.mine
    strided = np.array([[pair.far.address, 8, 1, 32, 3]], np.uint64)
    local = pair.a.prep_xfer_dlist("", rows(pair.near.address, 3, 8), "VRAM")
    remote = pair.a.prep_xfer_dlist("b", strided, "VRAM")
    assert finish(pair.a, pair.a.make_prepped_xfer("WRITE", local, range(3), remote, range(3))) == "DONE"
    content = pair.far.view()
    assert [content[at] for at in (0, 8, 32, 64, 96)] == [0, 0, 8, 16, 0]


def test_nixl_telemetry_counts_bytes_and_merged_descriptors(node: Node) -> None:
    node("devices=2,memory=64MiB")
    pair = Pair(telemetry=True)
    local = pair.a.prep_xfer_dlist("", rows(pair.near.address, 4, 16), "VRAM")
    remote = pair.a.prep_xfer_dlist("b", rows(pair.far.address, 4, 16, 1), "VRAM")
    counts = []
    for skip in (False, True):
        handle = pair.a.make_prepped_xfer("WRITE", local, [0, 1, 2], remote, [0, 1, 2], skip_desc_merge=skip)
        finish(pair.a, handle)
        telemetry = pair.a.get_xfer_telemetry(handle)
        assert telemetry.totalBytes == 48
        assert telemetry.xferDuration >= telemetry.postDuration > 0 < telemetry.startTime
        counts.append(telemetry.descCount)
    assert counts == [1, 3]


def test_nixl_transfer_within_an_agent_reaches_its_own_memory(pair: Pair) -> None:
    pair.near.fill(5)
    local = pair.a.get_xfer_descs([(pair.near.address, 32, 0)], "VRAM")
    remote = pair.a.get_xfer_descs([(address_of(pair.mine), 32, 0)], "DRAM")
    assert finish(pair.a, pair.a.initialize_xfer("WRITE", local, remote, "a", b"self")) == "DONE"
    assert (pair.mine[:32] == 5).all()
    assert pair.a.get_new_notifs() == {"a": [b"self"]}


def test_nixl_notifications_by_prefix_and_part_take_out_one_message_each(pair: Pair) -> None:
    for message in (b"one-1", b"two-2", b"three-3"):
        pair.a.send_notif("b", message)
    assert pair.b.update_notifs() == {"a": [b"one-1", b"two-2", b"three-3"]}
    assert pair.b.get_new_notifs() == {}
    assert pair.b.check_remote_xfer_done("a", b"two")
    assert pair.b.check_remote_xfer_done("a", b"-3", tag_is_prefix=False)
    assert not pair.b.check_remote_xfer_done("a", b"two")
    assert not pair.b.check_remote_xfer_done("nobody", b"")
    assert pair.b.check_remote_xfer_done("a", b"")
    assert pair.b.notifs == {"a": []}


def test_nixl_empty_notification_is_seen_and_stays(pair: Pair) -> None:
    pair.a.send_notif("b", b"")
    assert pair.b.check_remote_xfer_done("a", b"")
    assert pair.b.check_remote_xfer_done("a", b"")
    assert pair.b.notifs == {"a": [b""]}


@pytest.mark.parametrize("message", [b"", b"\0\xff", "é", bytearray(b"x"), b"long" * 500_000])
def test_nixl_notification_arrives_as_bytes(pair: Pair, message: Any) -> None:
    pair.a.send_notif("b", message)
    wanted = message.encode() if isinstance(message, str) else bytes(message)
    assert heard(pair.b) == {"a": [wanted]}


def test_nixl_release_of_a_running_transfer_sends_no_notification(pair: Pair) -> None:
    size = 32 << 20
    big, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    pair.a.register_memory([(address_of(big), size, 0, "")], "DRAM")
    pair.b.register_memory([(address_of(target), size, 0, "")], "DRAM")
    pair.a.add_remote_agent(pair.b.get_agent_metadata())
    descs = (pair.a.get_xfer_descs([(address_of(each), size, 0)], "DRAM") for each in (big, target))
    handle = pair.a.initialize_xfer("WRITE", *descs, "b", b"never")
    pair.a.transfer(handle)
    pair.a.release_xfer_handle(handle)
    assert "released=True" in repr(handle)
    notifs = pair.b.get_new_notifs()
    assert notifs == {} or (notifs == {"a": [b"never"]} and target.all())
    assert notifs == {} or os.environ.get("PEERLANE_SCHEDULE") != "lazy"


def test_nixl_release_under_lazy_does_not_let_the_transfer_run(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node("devices=2,memory=64MiB,schedule=lazy")
    pair = Pair()
    pair.near.fill(1)
    handle = pair.make(message=b"never")
    assert pair.a.transfer(handle) == "PROC"
    abort = pl.Stream.abort

    def abort_late(stream: pl.Stream, **options: Any) -> None:
        with pl.devices()[0].create_stream() as later:
            pl.copy(pair.far[2048:], pair.near[2048:], stream=later)
            later.sync()  # the worker has run what was asked for before
        abort(stream, **options)

    with monkeypatch.context() as patched:
        patched.setattr(pl.Stream, "abort", abort_late)
        pair.a.release_xfer_handle(handle)
    assert pair.b.get_new_notifs() == {} and not pair.far.view()[:64].any()


def test_nixl_transfer_waits_under_lazy_until_its_state_is_asked_for(node: Node) -> None:
    node("devices=2,memory=64MiB,schedule=lazy")
    pair = Pair()
    pair.near.fill(1)
    handle = pair.make(message=b"hello")
    assert pair.a.transfer(handle) == "PROC"
    with pl.devices()[0].create_stream() as later:
        pl.copy(pair.far[2048:], pair.near[2048:], stream=later)
        asked = later.record()
        while not asked.is_done:  # one worker, or more, begins what is asked for, in its order
            pass
    pair.near.fill(2)
    assert pair.b.get_new_notifs() == {}
    assert over(pair.a, handle) == "DONE"
    assert (pair.far.view()[:64] == 2).all()
    assert heard(pair.b) == {"a": [b"hello"]}


def test_nixl_transfer_in_progress_is_not_posted_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = pair.make(message=b"once")
    finish(pair.a, handle)
    request = pair.a.agent._requests[handle._handle]
    with pl.devices()[0].create_stream() as stream, monkeypatch.context() as patched:
        patched.setattr(request, "_end", stream.record())
        patched.setattr(Request, "_see", lambda request, end: False)
        assert pair.a.check_xfer_state(handle) == "DONE"
        with pytest.raises(
            _bindings.nixlRepostActiveError, match="post it again when check_xfer_state says DONE"
        ):
            pair.a.transfer(handle)
    assert heard(pair.b) == {"a": [b"once"]}
    assert pair.b.get_new_notifs() == {}


@pytest.mark.parametrize("at", ["launch_callback", "record", "sync"])
def test_nixl_transfer_that_was_interrupted_can_be_posted_again(
    pair: Pair, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 1 << 20
    near, far = (each.allocate(size) for each in pl.devices()[:2])
    pair.a.register_memory([(near.address, size, 0, "")], "VRAM")
    pair.b.register_memory([(far.address, size, 1, "")], "VRAM")
    pair.a.add_remote_agent(pair.b.get_agent_metadata())
    near.fill(3)
    local = pair.a.get_xfer_descs([(near.address, size, 0)], "VRAM")
    handle = pair.a.initialize_xfer(
        "WRITE", local, _bindings.nixlXferDList(local.getType(), [(far.address, size, 1)]), "b", b"x"
    )
    stream = type(pl.devices()[0].create_stream())

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(stream, at, interrupt)
        with pytest.raises(KeyboardInterrupt):
            finish(pair.a, handle)
    with contextlib.suppress(_bindings.nixlNotPostedError):
        while pair.a.check_xfer_state(handle) == "PROC":
            pass
    assert finish(pair.a, handle) == "DONE"
    assert (far.view() == 3).all()


def test_nixl_write_after_deregistration_is_refused_and_changes_nothing(pair: Pair) -> None:
    handle = pair.make()
    pair.near.fill(9)
    pair.b.deregister_memory(pair.registered[2])
    with pytest.raises(
        _bindings.nixlNotAllowedError, match=r"'b' has deregistered 4,096 bytes.*PEERLANE_NIXL_POLICY"
    ):
        pair.a.transfer(handle)
    assert not pair.far.view().any()
    assert pair.b.get_new_notifs() == {}


def test_nixl_write_after_deregistration_lands_under_the_vendors_policy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "vendor")
    handle = pair.make()
    pair.near.fill(9)
    pair.b.deregister_memory(pair.registered[2])
    assert finish(pair.a, handle) == "DONE"
    assert (pair.far.view()[:64] == 9).all()


def test_nixl_policy_of_another_word_is_refused_by_name(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "loose")
    with pytest.raises(pl.InvalidValue, match="PEERLANE_NIXL_POLICY is 'loose'; valid are strict, vendor"):
        pair.a.register_memory([(address_of(pair.mine), 8, 0, "")], "DRAM")


def test_nixl_use_of_freed_device_memory_names_the_line_that_freed_it(pair: Pair) -> None:
    handle = pair.make()
    pair.far.close()
    with pytest.raises(_bindings.nixlBackendError, match=r"freed by Buffer.close\(\) at test_nixl_agents.py"):
        finish(pair.a, handle)
    with pytest.raises(_bindings.nixlBackendError):
        pair.a.check_xfer_state(handle)


@pytest.mark.parametrize("size", [64, 1 << 20])
def test_nixl_transfer_whose_second_piece_was_freed_fails_as_a_whole(pair: Pair, size: int) -> None:
    targets = [pl.devices()[1].allocate(size) for _ in range(2)]
    source = pl.devices()[0].allocate(size)
    source.fill(4)
    pair.a.register_memory([(source.address, size, 0, "")], "VRAM")
    far = [(each.address, size, 1) for each in targets]
    pair.b.register_memory([(*row, "") for row in far], "VRAM")
    pair.a.add_remote_agent(pair.b.get_agent_metadata())
    local = pair.a.get_xfer_descs([(source.address, size, 0)] * 2, "VRAM")
    handle = pair.a.initialize_xfer("WRITE", local, pair.a.get_xfer_descs(far, "VRAM"), "b", b"never")
    targets[1].close()
    with pytest.raises(_bindings.nixlBackendError, match="freed by"):
        finish(pair.a, handle)
    assert pair.b.get_new_notifs() == {}
    handle.release()
    assert finish(pair.a, pair.make(message=b"goes on")) == "DONE"
    assert heard(pair.b) == {"a": [b"goes on"]}


def test_nixl_removed_agent_stays_unknown_even_when_it_is_back(pair: Pair) -> None:
    handle = pair.make()
    pair.a.remove_remote_agent("b")
    pair.a.remove_remote_agent("b")
    assert not pair.a.check_remote_metadata("b")
    with pytest.raises(_bindings.nixlNotFoundError, match="was removed"):
        pair.a.transfer(handle)
    pair.a.add_remote_agent(pair.b.get_agent_metadata())
    with pytest.raises(_bindings.nixlNotFoundError, match="make the transfer anew"):
        pair.a.transfer(handle)
    assert finish(pair.a, pair.make()) == "DONE"


def test_nixl_agent_that_was_dropped_has_ended_for_the_others(pair: Pair) -> None:
    handle = pair.make()
    del pair.b
    gc.collect()
    with pytest.raises(_bindings.nixlRemoteDisconnectError, match="'b' has ended"):
        pair.a.transfer(handle)
    with pytest.raises(_bindings.nixlRemoteDisconnectError):
        pair.a.check_xfer_state(handle)


def test_nixl_metadata_of_an_agent_that_was_dropped_is_refused_with_that_reason(pair: Pair) -> None:
    gone = nixl_agent("gone")
    metadata = gone.get_agent_metadata()
    del gone
    gc.collect()
    text = f"the agent of process {os.getpid()} cannot be reached: it has ended"
    with Path(os.devnull).open(), pytest.raises(_bindings.nixlBackendError, match=text):
        pair.a.add_remote_agent(metadata)  # another file may have the descriptor's number now
    assert not pair.a.check_remote_metadata("gone")


def test_nixl_partial_metadata_brings_only_its_registrations(pair: Pair) -> None:
    c = nixl_agent("c")
    both = pair.registered[2], pair.registered[3]
    with pytest.raises(_bindings.nixlNotFoundError, match="does not say how to reach it"):
        c.add_remote_agent(pair.b.get_partial_agent_metadata(both[0]))
    assert c.add_remote_agent(pair.b.get_partial_agent_metadata(both[0], True)) == b"b"
    assert [c.check_remote_metadata("b", each.trim()) for each in both] == [True, False]
    c.add_remote_agent(pair.b.get_partial_agent_metadata(both[1]))
    assert c.check_remote_metadata("b", both[1].trim())


@pytest.mark.parametrize("policy", ["strict", "vendor"])
@pytest.mark.parametrize("size", [4096, 2048])
@pytest.mark.parametrize("kind", ["VRAM", "DRAM"])
def test_nixl_memory_that_is_registered_anew_is_written_once_its_new_metadata_is_loaded(
    pair: Pair, kind: str, size: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", policy)
    pair.near.fill(5)
    pair.mine.fill(5)
    target = pair.far.view() if kind == "VRAM" else pair.theirs
    which, where = (2, pair.far.address) if kind == "VRAM" else (3, address_of(pair.theirs))
    known = pair.registered[which]
    for _ in range(3):
        pair.b.deregister_memory(known)
        known = pair.b.register_memory([(where, size, known[0][2], "")], kind)
        pair.a.add_remote_agent(pair.b.get_agent_metadata())
        target[:] = 0
        assert finish(pair.a, pair.make(theirs=kind)) == "DONE"
        assert (target[:64] == 5).all()
        assert not target[64:].any()


def test_nixl_ended_registrations_do_not_pile_up_at_other_agents(pair: Pair) -> None:
    for at in range(50):
        known = pair.b.register_memory([(address_of(pair.theirs) + at, 64, 0, "")], "DRAM")
        pair.a.add_remote_agent(pair.b.get_agent_metadata())
        pair.b.deregister_memory(known)
    assert len(list(pair.a.agent._peers["b"].regions)) == 3


def test_nixl_piece_that_was_registered_twice_is_deregistered_once_at_a_time(pair: Pair) -> None:
    twice = pair.a.register_memory([(address_of(pair.mine), 64, 0, "")] * 2, "DRAM")
    once = pair.a.get_reg_descs([twice[0]], "DRAM")
    pair.a.deregister_memory(once)
    with pytest.raises(_bindings.nixlNotFoundError, match="not registered as one piece"):
        pair.a.deregister_memory(twice)
    pair.a.deregister_memory(once)
    with pytest.raises(_bindings.nixlNotFoundError, match="not registered as one piece"):
        pair.a.deregister_memory(once)


def test_nixl_more_pieces_than_an_agent_can_have_are_refused_and_none_is_registered(pair: Pair) -> None:
    array = np.zeros(40_000, np.uint8)
    pieces = [(address_of(array) + at, 1, 0, "") for at in range(32_767)]
    before = pair.a.get_agent_metadata()
    with pytest.raises(
        _bindings.nixlBackendError, match=r"32,767 pieces were to be .* room for 32,766 of 32,768"
    ):
        pair.a.register_memory(pieces, "DRAM")
    assert pair.a.get_agent_metadata() == before
    registered = pair.a.register_memory(pieces[1:], "DRAM")
    with pytest.raises(_bindings.nixlBackendError, match="room for 0 of 32,768; register larger pieces"):
        pair.a.register_memory(pieces[:1], "DRAM")
    pair.a.deregister_memory(registered)
    assert pair.a.get_agent_metadata() == before


def test_nixl_memory_that_was_freed_while_it_is_registered_is_a_back_end_error(pair: Pair) -> None:
    there = pair.b.get_agent_metadata()
    pair.far.close()
    with pytest.raises(_bindings.nixlBackendError, match=r"freed by Buffer\.close"):
        pair.b.get_agent_metadata()
    assert pair.a.add_remote_agent(there) == b"b"
    pair.b.deregister_memory(pair.registered[2])
    assert pair.b.get_agent_metadata()


def test_nixl_handle_of_another_agent_is_refused_whatever_that_agent_has_itself(pair: Pair) -> None:
    pair.b.add_remote_agent(pair.a.get_agent_metadata())
    local = pair.b.get_xfer_descs([(address_of(pair.theirs), 8, 0)], "DRAM")
    there = pair.b.get_xfer_descs([(address_of(pair.mine), 8, 0)], "DRAM")
    handles = [pair.b.initialize_xfer("WRITE", local, there, "a") for _ in range(20)]
    strange = [pair.make() for _ in range(20)]
    for each in strange:
        with pytest.raises(_bindings.nixlInvalidParamError, match="is not a transfer of agent 'b'"):
            pair.b.transfer(each)
    assert [finish(pair.b, each) for each in handles] == ["DONE"] * 20


def test_nixl_threads_that_share_a_transfer_see_it_done_and_post_it_once_at_a_time(pair: Pair) -> None:
    size, posts, outcomes = 16 << 20, [], []
    source, target = np.full(size, 3, np.uint8), np.zeros(size, np.uint8)
    near = pair.a.register_memory([(address_of(source), size, 0, "")], "DRAM").trim()
    far = pair.b.register_memory([(address_of(target), size, 0, "")], "DRAM").trim()
    pair.a.add_remote_agent(pair.b.get_agent_metadata())

    def work(handle: Any) -> None:
        try:
            with contextlib.suppress(_bindings.nixlRepostActiveError):
                posts.append(pair.a.transfer(handle))
            while pair.a.check_xfer_state(handle) == "PROC":
                pass
        except Exception as error:  # noqa: BLE001 - it fails the test below
            outcomes.append(error)

    for _ in range(10):
        handle = pair.a.initialize_xfer("WRITE", near, far, "b", b"posted")
        threads = [threading.Thread(target=work, args=(handle,)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        handle.release()
    assert outcomes == []
    assert (target == 3).all()
    assert heard(pair.b, len(posts)) == {"a": [b"posted"] * len(posts)}


FORKED = """
import os
import sys
import numpy as np
from peerlane.dialects.nixl._api import nixl_agent
from peerlane.dialects.nixl._bindings import nixlNotAllowedError

array = np.zeros(64, np.uint8)
agent, other = nixl_agent("a"), nixl_agent("b")
row = [(array.ctypes.data, 64, 0, "")]
registered = agent.register_memory(row, "DRAM")
other.register_memory(row, "DRAM")
agent.add_remote_agent(other.get_agent_metadata())
handle = agent.initialize_xfer("WRITE", registered.trim(), registered.trim(), "b")
child = os.fork()
if not child:
    refused = 0
    calls = (
        agent.get_agent_metadata,
        agent.get_new_notifs,
        lambda: agent.send_notif("b", b"lost"),
        lambda: agent.transfer(handle),
        lambda: agent.deregister_memory(registered),
        lambda: agent.register_memory(row, "DRAM"),
    )
    for call in calls:
        try:
            call()
        except nixlNotAllowedError as error:
            refused += "made before this process was forked" in str(error)
    handle.release()
    own = nixl_agent("a")
    own.register_memory(row, "DRAM")
    os._exit(refused if own.get_agent_metadata() else 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), agent.transfer(handle), other.get_new_notifs())
"""


def test_nixl_agent_of_the_parent_is_refused_in_a_forked_child_and_goes_on_in_the_parent() -> None:
    done = run_python(["-c", FORKED], timeout=60, env={**os.environ, "PEERLANE_SCHEDULE": "eager"})
    assert (done.returncode, done.stdout) == (0, "6 DONE {}\n"), done


def test_nixl_lists_travel_as_bytes(pair: Pair) -> None:
    for descs in (pair.a.get_xfer_descs(rows(4096, 3, 16), "DRAM"), pair.registered[0]):
        assert pair.a.deserialize_descs(pair.a.get_serialized_descs(descs)) == descs
    with pytest.raises(TypeError):
        pickle.dumps(pair.a.get_remote_descs([(1, 2, 3, "b")], "VRAM"))


def test_nixl_loaded_metadata_again_keeps_what_is_known(pair: Pair) -> None:
    handle = pair.make()
    assert pair.a.add_remote_agent(pair.b.get_agent_metadata()) == b"b"
    assert finish(pair.a, handle) == "DONE"


def test_nixl_modules_have_the_names_of_the_vendors() -> None:
    names = "nixl_agent nixl_agent_config nixl_backend_handle nixl_prepped_dlist_handle nixl_thread_sync_t"
    assert all(hasattr(_api, name) for name in (*names.split(), "nixl_xfer_handle", "DEFAULT_COMM_PORT"))
    assert str(_bindings.DRAM_SEG) == "nixl_mem_t.DRAM_SEG"
    assert repr(_bindings.NIXL_ERR_NOT_FOUND) == "<nixl_status_t.NIXL_ERR_NOT_FOUND: -4>"


def test_nixl_live_objects_name_what_an_agent_has_not_released(pair: Pair) -> None:
    gc.collect()
    handle = pair.make()
    texts = [f"{each.text} {each.site}" for each in live_objects.living()]
    begins = "registered memory of agent 'a': 4,096 bytes at "
    assert any(text.startswith(begins) and "test_nixl_agents.py" in text for text in texts)
    assert any(text.startswith("transfer of agent 'a' with 'b': 64 bytes") for text in texts)
    handle.release()
    assert not any(each.kind == "transfer" for each in live_objects.living())


def test_nixl_agents_of_an_earlier_test_are_not_charged_to_the_next(pair: Pair) -> None:
    assert [each for each in live_objects.living() if each.kind == "registered memory"]
    dialects.begin_anew("nixl")
    assert not [each for each in live_objects.living() if each.kind == "registered memory"]
    agent = nixl_agent("new")
    agent.register_memory([(address_of(pair.mine), 64, 0, "")], "DRAM")
    texts = [each.text for each in live_objects.living() if each.kind == "registered memory"]
    assert len(texts) == 1
    assert "of agent 'new'" in texts[0]


@pytest.mark.any_schedule
def test_nixl_search_ahead_finds_what_a_look_at_each_region_finds() -> None:
    drawn = random.Random(1)
    for nests in (False, True) * 500:
        regions, at = [], 0
        for _ in range(drawn.randrange(30)):
            at = drawn.randrange(100) if nests else at + drawn.randrange(1, 6)
            size = drawn.randrange(40 if nests else 8)
            device = drawn.randrange(2) if nests else 0
            regions.append(Region(_bindings.nixl_mem_t.DRAM_SEG, device, at, size, 0, 1, [1]))
            at += size
        regions.sort(key=lambda each: (each.device, each.start, each.size))
        ahead = _Ahead(regions)
        for _ in range(20):
            first, asked = drawn.randrange(31), (drawn.randrange(130), drawn.randrange(8), drawn.randrange(2))
            wanted = next((i for i in range(first, len(regions)) if regions[i].covers(*asked)), None)
            assert ahead.first(first, *asked) == wanted
