"""Ranks learn over TCP where the rendezvous is: with many open descriptors, and under Ctrl-C."""

from __future__ import annotations

import pytest

from helpers.interrupts import INTERRUPTS
from helpers.prepared import run_python

pytestmark = pytest.mark.any_schedule

CTRL_C_SECONDS = 1.0

OVER_TCP = """
import os, resource, signal, socket, threading, time
from peerlane.rendezvous import by_tcp
from peerlane.rendezvous.whereabouts import Whereabouts
said = Whereabouts("one", "/here")
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
many = [os.dup(0) for _ in range(1100)]
with socket.create_server(("127.0.0.1", 0)) as free: port = free.getsockname()[1]
"""


def test_meeting_over_tcp_with_descriptors_above_1024_works() -> None:
    code = OVER_TCP + (
        "told = threading.Thread(target=by_tcp.tell, args=('Group', '127.0.0.1', port, 2, said, 20.0))\n"
        "told.start(); print(by_tcp.ask('Group', '127.0.0.1', port, 1, 2, 'one', 20.0) == said); told.join()"
    )
    done = run_python(["-c", code], timeout=40)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("how", INTERRUPTS)
@pytest.mark.parametrize(
    "call", ["tell('Group', '127.0.0.1', port, 2, said, 39.0)", "_received(line, 8, ends)"]
)
def test_meeting_over_tcp_ctrl_c_ends_it_in_time(how: str, call: str) -> None:
    code = OVER_TCP + (
        "line, other = socket.socketpair(); ends = time.monotonic() + 39; sent = []\n"
        f"def interrupt(): sent.append(time.monotonic()); {INTERRUPTS[how]}\n"
        f"try: threading.Timer(0.3, interrupt).start(); by_tcp.{call}\n"
        "except KeyboardInterrupt: print(time.monotonic() - sent[0])"
    )
    done = run_python(["-c", code], timeout=40)
    assert done.returncode == 0, done.stderr
    print(f"seen after {float(done.stdout):.4f} s (promised: {CTRL_C_SECONDS} s)")
    assert float(done.stdout) < 5 * CTRL_C_SECONDS


def test_meeting_over_tcp_tells_a_rank_of_another_version_at_once() -> None:
    code = OVER_TCP + (
        "told = threading.Thread(target=by_tcp.tell, args=('Group', '127.0.0.1', port, 2, said, 20.0))\n"
        "told.start()\n"
        "while True:\n"
        "    try: line = socket.create_connection(('127.0.0.1', port), timeout=20); break\n"
        "    except ConnectionRefusedError: pass\n"
        "line.sendall(b'PLgroup1' + bytes(8)); print(line.recv(64)[:8]); line.close()\n"
        "print(by_tcp.ask('Group', '127.0.0.1', port, 1, 2, 'one', 20.0) == said); told.join()"
    )
    done = run_python(["-c", code], timeout=40)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'PLgroup2'\nTrue\n", "")
