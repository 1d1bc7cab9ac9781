"""Ranks of a communicator that wait in different places are told of the deadlock, with both places."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from pathlib import Path

import pytest

from helpers.peers import PeerError, peer
from helpers.rank_peers import ask_all
from peerlane.rendezvous import RendezvousServer

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

LOADED = 10.0  # five times the promise
PATIENCE = 60.0

_MEET = """
from peerlane.dialects import acl, hcomm
from peerlane.dialects.hcomm import explain
from peerlane.rendezvous import Rendezvous
from helpers.hcomm_ranks import Rank, code, ok
r = Rendezvous.from_environment()
ok(acl.rt.set_device(r.rank))
if r.rank == 0:
    r.put("root", bytes(ok(hcomm.HcclGetRootInfo())))
info = bytearray(r.get("root"))
rank = Rank(r.rank, 2, ok(hcomm.HcclCommInitRootInfo(2, info, r.rank)))
thread = rank.threads()
channel = rank.channels()[1 - r.rank]
r.barrier()
"""
_NOTIFY = """
ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 1, 60))
failed = code(acl.rt.synchronize_stream(rank.stream))
result = [failed, acl.get_recent_err_msg()]
"""
_COLLECTIVE = """
failed = code(hcomm.HcclBarrier(rank.comm, rank.stream)) or code(acl.rt.synchronize_stream(rank.stream))
result = [failed, explain()]
"""


@pytest.mark.parametrize("wait", [_NOTIFY, _COLLECTIVE], ids=["notify", "collective"])
def test_hcomm_wait_against_rendezvous_barrier_raises_deadlock_naming_both_lines(
    wait: str, request: pytest.FixtureRequest
) -> None:
    node = f"name=hcomm-places-{os.getpid()}-{request.node.callspec.id},devices=2"
    path = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    with RendezvousServer(2) as server, contextlib.ExitStack() as ended:
        peers = [
            ended.enter_context(peer(node, PYTHONPATH=path, **server.environment(rank))) for rank in (0, 1)
        ]
        ask_all(peers, _MEET)
        began = time.monotonic()
        peers[0].send("r.barrier('here')")
        peers[1].send(wait)
        with pytest.raises(PeerError) as caught:
            peers[0].receive(PATIENCE)
        failed, explained = peers[1].receive(PATIENCE)
        seconds = time.monotonic() - began
        print(f"told after {seconds:.2f} s")
        assert seconds < LOADED
        assert failed != 0 and caught.value.kind == "Deadlock"
        for text in (str(caught.value), explained):
            assert "waits for rank 1 to come to barrier 'here'" in text, text
            assert re.search(
                r"rank 1 \(process \d+\): MainThread at peer:\d+ waits (for|in) .*rank 0", text
            ), text
