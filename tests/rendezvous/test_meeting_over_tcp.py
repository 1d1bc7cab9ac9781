"""Ranks learn over TCP where the rendezvous is: with many open descriptors, and under Ctrl-C."""

from __future__ import annotations

import pytest

from helpers.interrupts import INTERRUPTS
from helpers.ports import free_port
from helpers.prepared import run_python
from helpers.promised import overdue

pytestmark = pytest.mark.any_schedule

CTRL_C_SECONDS = 1.0

OVER_TCP = f"""
import os, resource, signal, socket, threading, time
from peerlane.rendezvous import by_tcp
from peerlane.rendezvous.whereabouts import Whereabouts
said = Whereabouts("one", "/here")
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
many = [os.dup(0) for _ in range(1100)]
port = {free_port()}
"""


def test_meeting_over_tcp_with_descriptors_above_1024_works() -> None:
    code = OVER_TCP + (
        "told = threading.Thread(target=by_tcp.announce, args=('Group', ('127.0.0.1', port), 2, said, 20.0))\n"
        "told.start(); print(by_tcp.ask('Group', ('127.0.0.1', port), 1, 2, 'one', 20.0) == said); told.join()"
    )
    done = run_python(["-c", code], timeout=40)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("how", INTERRUPTS)
@pytest.mark.parametrize(
    "call", ["announce('Group', ('127.0.0.1', port), 2, said, 39.0)", "_received(line, 8, ends)"]
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
    assert float(done.stdout) < overdue(CTRL_C_SECONDS)


def test_meeting_over_tcp_refuses_a_rank_of_another_version_at_once() -> None:
    code = OVER_TCP + (
        "told = threading.Thread(target=by_tcp.announce, args=('Group', ('127.0.0.1', port), 2, said, 20.0))\n"
        "told.start()\n"
        "while True:\n"
        "    try: line = socket.create_connection(('127.0.0.1', port), timeout=20); break\n"
        "    except ConnectionRefusedError: pass\n"
        "line.sendall(b'PLgroup1' + bytes(8)); print(line.recv(64)[:8]); line.close()\n"
        "print(by_tcp.ask('Group', ('127.0.0.1', port), 1, 2, 'one', 20.0) == said); told.join()"
    )
    done = run_python(["-c", code], timeout=40)
    assert (done.returncode, done.stdout) == (0, "b'PLgroup3'\nTrue\n")
    assert done.stderr == (
        "a connection from 127.0.0.1 is not one of a rank: its version of peerlane is another one\n"
    )


def test_meeting_over_tcp_is_not_held_up_by_strangers_and_believes_only_who_knows_the_secret() -> None:
    code = OVER_TCP + (
        "import logging; logging.disable()\n"
        "secret, where = b'sixteen bytes or more', ('127.0.0.1', port)\n"
        "told = threading.Thread(target=by_tcp.announce, args=('Group', where, 3, said, 20.0, secret))\n"
        "told.start()\n"
        "def connected():\n"
        "    while True:\n"
        "        try: return socket.create_connection(('127.0.0.1', port), timeout=20)\n"
        "        except ConnectionRefusedError: pass\n"
        "silent = [connected() for _ in range(30)]\n"
        "for rank, size in ((1, 3), (77, 3), (1, 9)):\n"
        "    line = connected(); line.sendall(by_tcp._MAGIC + by_tcp._HELLO.pack(rank, size, b'evil'))\n"
        "    asked = line.recv(44, socket.MSG_WAITALL); line.sendall(bytes(32))\n"
        "    print(len(asked), line.recv(44)[8:] == b'\\0\\0\\0\\x40')\n"
        "for rank in (1, 2):\n"
        "    print(by_tcp.ask('Group', where, rank, 3, 'one', 20.0, secret) == said)\n"
        "told.join(20); print(told.is_alive())"
    )
    done = run_python(["-c", code], timeout=40)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "44 True\n" * 3 + "True\nTrue\nFalse\n"
