"""No deadlock is raised while a rank, or somebody outside the group, can still end the waits."""

from __future__ import annotations

import pytest

from helpers.rank_peers import ask_all, ranks, wait_on

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

_SECONDS = 2.5  # more than a deadlock takes to be found
_SLOW = {
    "computes": "\nend = time.monotonic() + {s}\nwhile time.monotonic() < end: pass",
    "sleeps": "\ntime.sleep({s})",
    "waits for a process": "\nsubprocess.run(['sleep', '{s}'])",
    "waits for a queue": "\nq = queue.Queue(); threading.Timer({s}, q.put, [1]).start(); q.get()",
    "waits for a socket": "\na, b = socket.socketpair(); a.settimeout({s})"
    "\ntry: a.recv(1)\nexcept TimeoutError: pass",
    "runs a host function": "\ns = grp.device.create_stream(); s.launch_callback(time.sleep, {s}); s.sync()",
}
_DAEMON = """
def later():
    time.sleep({s})
    ch[0].notify(0)
threading.Thread(target=later, daemon=True).start()
ch[0].wait(1, timeout=30)
"""


def test_wait_for_slow_rank_ends_without_deadlock() -> None:
    with ranks(len(_SLOW) + 2) as peers:
        imports = "import time, subprocess, queue, threading, socket"
        for slow, each in zip([*_SLOW.values()], peers[2:], strict=True):
            each.send(
                f"{imports}{slow.format(s=_SECONDS)}\nch[0].notify(0)\nch[0].wait(1, timeout=30)\nresult = 1"
            )
        peers[1].send(f"{imports}{_DAEMON.format(s=_SECONDS)}\nresult = 1")
        code = "for peer in range(1, grp.size): ch[peer].wait(0, timeout=30)"
        peers[0].run(f"{code}\nfor peer in range(1, grp.size): ch[peer].notify(1)")
        assert [each.receive() for each in peers[1:]] == [1] * (len(_SLOW) + 1)


_RECORDED_FROM_OUTSIDE = """
n = grp.device.create_notify(); h = n.export(); s = grp.device.create_stream()
s.wait(n)
s.sync()
"""
_A_WORD = """
s = grp.device.create_stream(); b = grp.device.allocate(8); b.fill(0); h = b.export()
pl.raw.wait_value(b.address, 1, stream=s)
s.sync()
"""


@pytest.mark.parametrize("code", [_RECORDED_FROM_OUTSIDE, _A_WORD], ids=["a notify", "a word"])
def test_wait_that_outsider_could_end_goes_on(code: str) -> None:
    with ranks(2) as peers:
        wait_on(peers, [code, "ch[0].wait(0)"])


def test_mutual_waits_with_short_timeouts_raise_wait_timeout() -> None:
    with ranks(2) as peers:
        code = """
try:
    ch[1 - grp.rank].wait(0, timeout=1.5)
except pl.WaitTimeout:
    ch[1 - grp.rank].notify(1)
    ch[1 - grp.rank].wait(1, timeout=30)
    result = 1
"""
        assert ask_all(peers, code) == [1, 1]


@pytest.mark.parametrize(
    "waits", ["ch[1].wait(0, timeout=3.5)", "r.barrier(timeout=3.5)", "grp.channel(1, timeout=3.5)"]
)
def test_mutual_waits_one_with_timeout_goes_on_after_it(waits: str) -> None:
    with ranks(2) as peers:
        peers[0].run("from peerlane.rendezvous import Rendezvous; r = Rendezvous.from_environment()")
        peers[0].send(f"""
try:
    {waits}
except pl.WaitTimeout:
    ch[1].notify(1); result = 1
""")
        peers[1].send("ch[0].wait(1); result = 1")
        assert [each.receive() for each in peers] == [1, 1]


def test_group_created_with_timeout_goes_on_after_it() -> None:
    with ranks(2) as peers:
        peers[0].send("""
try:
    pl.Group(name="second", timeout=3.5)
except pl.WaitTimeout:
    ch[1].notify(1); result = 1
""")
        peers[1].send("ch[0].wait(1); result = 1")
        assert [each.receive() for each in peers] == [1, 1]


def test_join_with_timeout_goes_on_after_it() -> None:
    with ranks(2) as peers:
        peers[0].send("""
import threading
thread = threading.Thread(target=ch[1].wait, args=[0]); thread.start()
thread.join(3.5)
ch[1].notify(1); thread.join(); result = 1
""")
        peers[1].send("ch[0].wait(1); ch[0].notify(0); result = 1")
        assert [each.receive() for each in peers] == [1, 1]


def test_waits_in_turns_end_without_deadlock() -> None:
    """At any time all ranks but one wait; while a record is under way, often all of them do."""
    with ranks(3) as peers:
        code = """
import time
after, before = ch[(grp.rank + 1) % 3], ch[(grp.rank - 1) % 3]
if grp.rank == 0:
    after.notify(0)
for number in range(24):
    before.wait(0, timeout=30)
    time.sleep(0.12 if number % 3 == grp.rank else 0.0)
    after.notify(0)
result = 1
"""
        assert ask_all(peers, code) == [1] * 3
