"""Memory that its owner frees or deregisters while peers use it: each operation of a peer raises."""

from __future__ import annotations

import pytest

from helpers.peers import PeerError
from helpers.rank_peers import ask_all, ranks

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]

_MAKE = """
import numpy as np
mem = grp.device.allocate(4096, peer=True); mem.fill(0)
grp.register(mem, "kv")
link = grp.channel(1 - grp.rank)
own = grp.device.allocate(64); own.fill(7)
def every(memory, stream=None):
    yield "write", lambda: link.write(own, memory=memory, stream=stream)
    yield "write, by Python", lambda: link.write(np.zeros(64, np.uint8), memory=memory, stream=stream)
    yield "read", lambda: link.read(own, memory=memory, stream=stream)
    yield "write_reduce", lambda: link.write_reduce(own, dtype="int32", memory=memory, stream=stream)
    yield "read_reduce", lambda: link.read_reduce(own, dtype="int32", memory=memory, stream=stream)
    yield "write_blocks", lambda: link.write_blocks(own, [[0, 0, 8], [64, 8, 8]], memory=memory, stream=stream)
    yield "read_blocks", lambda: link.read_blocks(own, [[0, 0, 8]], memory=memory, stream=stream)
def refused(call):
    try:
        call()
    except pl.Closed as error:
        assert error.fault is pl.Fault.CLOSED, error.fault
        return str(error)
    except pl.Cancelled as error:  # late delivery: it waits for a stream of the channel that was refused
        return str(error)
    raise AssertionError("it was not refused")
result = True
"""

_ENDS = {
    "deregister": ("grp.deregister('kv')", "took it back"),
    "close": ("mem.close()", "freed it"),
    "garbage": ("import gc; grp._registered.pop('kv'); del mem; gc.collect()", "freed it"),
    "stream-ordered free": (
        "s = grp.device.create_stream(); mem.close(stream=s); s.sync(); s.close()",
        "freed it",
    ),
    "group": ("grp.close()", "took it back"),
}


@pytest.mark.parametrize("how", _ENDS)
def test_peer_operation_after_owner_ended_memory_raises_closed(how: str) -> None:
    code, text = _ENDS[how]
    with ranks(2) as (owner, user):
        ask_all([owner, user], _MAKE)
        assert user.run("[call() for _, call in every('kv')]; kept = link.memories['kv'][:8]; result = True")
        owner.run(f"{code}; result = True")
        refusals = user.run("result = {name: refused(call) for name, call in every('kv')}")
        for name, why in refusals.items():
            assert "'kv' (4,096 bytes) of rank 0" in why, (name, why)
            assert text in why, (name, why)
        refusals = user.run(
            "s = grp.device.create_stream()\n"
            "result = {name: refused(lambda: (call(), s.sync())) for name, call in every('kv', s)}\n"
            "s.close()"
        )
        assert all(text in why for why in refusals.values()), refusals
        # By a part kept from before, by address, and by a view.
        assert text in user.run("result = refused(lambda: pl.copy(kept, own[:8]))")
        assert text in user.run(
            "from peerlane import raw; result = refused(lambda: raw.copy(kept.last_address, own.address, 8))"
        )
        assert text in user.run("result = refused(lambda: link.memories['kv'].view())")
        assert user.run("result = link.memories['kv'].is_closed") is True
        if how != "group":  # other memory still works
            assert user.run("link.write(own); link.read(own, at=64); result = True")


_QUEUED = {
    "large write": "link.write(own, memory='kv', stream=s)",
    "fill": "link.memories['kv'][:64].fill(9, stream=s)",
    "large fill": "link.memories['kv'].fill(9, stream=s)",
    "word": "from peerlane import raw; raw.write_value(link.memories['kv'].address, 9, stream=s)",
    "wait for a word": "from peerlane import raw; raw.wait_value(link.memories['kv'].address, 9, stream=s)",
    **{
        kind: f"dict(every('kv', s))['{kind}']()"
        for kind in ("write", "read", "write_reduce", "read_reduce", "write_blocks", "read_blocks")
    },
}


@pytest.mark.parametrize("kind", _QUEUED)
def test_peer_operation_queued_before_deregister_fails_at_drain(kind: str) -> None:
    make = _MAKE.replace("4096", "1 << 20")
    if kind == "large write":
        make = make.replace("allocate(64)", "allocate(1 << 20)")
    with ranks(2) as (owner, user):
        ask_all([owner, user], make)
        user.run(
            "n = grp.device.create_notify(); s = grp.device.create_stream(); s.wait(n)\n"
            f"{_QUEUED[kind]}; link.notify(0, stream=s); result = True"
        )
        owner.run("grp.deregister('kv'); result = True")
        refusals = user.run(
            "n.record(); result = refused(lambda: link.drain(stream=s, timeout=20)); s.close()"
        )
        assert "took it back" in refusals
        assert owner.run("result = bytes(mem.view()).count(0) == mem.size")
        assert user.run("result = bytes(own.view()) == bytes([7]) * own.size")
        assert owner.run("result = link._incoming[0].recorded") == 0, "what comes after it is cancelled"


def test_registered_tag_reused_works_and_old_channel_is_refused() -> None:
    with ranks(2) as (owner, user):
        ask_all([owner, user], _MAKE)
        for turn in range(3):
            owner.run("grp.deregister('kv'); grp.register(mem, 'kv'); result = True")
            ask_all([owner, user], "old, link = link, grp.channel(1 - grp.rank); result = True")
            user.run(f"own.fill({turn + 1}); link.write(own, memory='kv', notify=0); result = True")
            owner.run("link.wait(0, timeout=20); result = True")
            assert owner.run("result = bytes(mem.view()[:64]).hex()") == bytes([turn + 1] * 64).hex()
            assert "took it back" in user.run("result = refused(lambda: old.write(own, memory='kv'))")
        # The owner can still use the memory, and register it under another tag.
        owner.run("grp.register(mem, 'other'); grp.deregister('kv'); mem.fill(3); result = True")
        ask_all([owner, user], "link = grp.channel(1 - grp.rank); result = True")
        assert user.run("link.read(own, memory='other'); result = bytes(own.view()).hex()") == "03" * 64


def test_registrations_beyond_1024_are_refused_one_by_one_after_deregister() -> None:
    with ranks(2) as (owner, user):
        ask_all([owner, user], _MAKE)
        owner.run("[grp.register(mem, f'm{i}') for i in range(1100)]; result = True")
        ask_all([owner, user], "link = grp.channel(1 - grp.rank); result = True")
        owner.run("grp.deregister('m3'); grp.deregister('m1099'); result = True")
        assert "took it back" in user.run("result = refused(lambda: link.write(own, memory='m3'))")
        assert "took it back" in user.run("result = refused(lambda: link.write(own, memory='m1099'))")
        assert user.run("link.write(own, memory='m4'); link.write(own, memory='m1098'); result = True")


def test_peer_write_to_closed_window_raises_closed() -> None:
    with ranks(2) as (owner, user):
        ask_all([owner, user], _MAKE)
        owner.run("grp.window.close(); result = True")
        refusals = user.run("result = refused(lambda: link.write(own))")
        assert "the window" in refusals and "of rank 0" in refusals and "freed it" in refusals
        assert "freed it" in user.run("result = refused(lambda: link.write(b'12345678', notify=0))")


def test_channel_wait_after_owner_was_killed_raises_peer_lost() -> None:
    with ranks(2) as (owner, user):
        ask_all([owner, user], _MAKE)
        owner.kill()
        with pytest.raises(PeerError, match="PeerLost"):
            user.run("link.wait(0, timeout=20)")
