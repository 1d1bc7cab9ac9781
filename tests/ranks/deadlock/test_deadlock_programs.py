"""Random programs of ranks: a model says which ranks hang; those get ``Deadlock``, and all others end."""

from __future__ import annotations

import random
import time

import pytest

from helpers.peers import PeerError
from helpers.rank_peers import ranks
from helpers.rank_programs import MOST_STEPS, NOTIFIES, drawn, hanging

pytestmark = pytest.mark.schedules_in_turn

SECONDS = 2.0
PATIENCE = 60.0

_RUN = """
ends = grp.channels([peer for peer in range(grp.size) if peer != grp.rank], notifies={notifies})
to = {{channel.peer: channel for channel in ends}}
s = grp.device.create_stream()
try:
    for where, what, peer, index in {steps}:
        on = {{"stream": s}} if where == "stream" else {{}}
        if what == "sync":
            s.sync()
        elif what == "notify":
            to[peer].notify(index, **on)
        else:
            to[peer].wait(index, **on)
finally:
    s.abort(close=True)
    for channel in ends:
        channel.close()
"""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [20, pytest.param(1000, marks=pytest.mark.soak)])
def test_deadlock_random_programs_raise_on_hanging_ranks_only(rounds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    count, slowest, size = 0, 0.0, 4
    with ranks(size) as peers:
        for _ in range(rounds):
            program = drawn(dice, size, dice.randint(3, MOST_STEPS))
            hung, in_circles = hanging(program)
            began = time.monotonic()
            for each, steps in zip(peers, program, strict=True):
                each.send(_RUN.format(steps=steps, notifies=NOTIFIES))
            texts = {}
            for rank, each in enumerate(peers):
                try:
                    each.receive(PATIENCE)
                except PeerError as error:
                    texts[rank] = error
            seconds = time.monotonic() - began
            assert set(texts) == hung, (program, texts)
            for rank, error in texts.items():
                # A rank outside the circles may wait for one inside, and learn that it gave up or ended.
                is_lost = error.fault == "PEER_LOST" and rank not in in_circles
                assert is_lost or "a deadlock: " in str(error), (program, rank, str(error))
            assert seconds < 5 * SECONDS, (program, seconds)
            if in_circles:
                count += 1
                slowest = max(slowest, seconds)
    print(f"{rounds} programs, {count} deadlocks, the slowest was told after {slowest:.2f} s")
