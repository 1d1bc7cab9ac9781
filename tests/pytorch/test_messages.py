"""Sends and receives of ``torch.distributed`` on peerlane."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(150)]


def test_messages_match_by_tag_and_keep_the_order_of_a_tag(programs: Programs) -> None:
    results = programs.run(
        """
sizes = [3, 0, 100_000, 5_000_000]
if rank == 0:
    works = [dist.isend(torch.full((count,), float(n)), 1, tag=n % 2) for n, count in enumerate(sizes)]
    works.append(dist.isend(torch.ones(3) * 9, 1, tag=0))
    for each in works:
        each.wait()
else:
    got = []
    for tag, indexes in ((1, (1, 3)), (0, (0, 2))):
        for n in indexes:
            into = torch.full((sizes[n],), -1.0)
            assert dist.recv(into, 0, tag=tag) == 0
            got.append([n, bool((into == n).all())])
    last = torch.zeros(3)
    dist.recv(last, tag=0)
    found["got"], found["last"] = got, last.tolist()
"""
    )
    assert results[1] == {"got": [[1, True], [3, True], [0, True], [2, True]], "last": [9.0] * 3}


def test_batches_any_source_and_messages_beside_collectives(programs: Programs) -> None:
    results = programs.run(
        """
others = [peer for peer in range(size) if peer != rank]
into = {peer: torch.zeros(50_000) for peer in others}
ops = [dist.P2POp(dist.irecv, into[peer], peer) for peer in others]
ops += [dist.P2POp(dist.isend, torch.full((50_000,), 10.0 * rank + peer), peer) for peer in others]
works = dist.batch_isend_irecv(ops)
number = torch.ones(1)
dist.all_reduce(number)  # no message of the batch keeps it from running
for each in works:
    each.wait()
found["batch"] = [[peer, into[peer].min().item(), into[peer].max().item()] for peer in others]
found["number"] = number.item()
if rank == 0:
    seen = []
    for _ in range(2 * len(others)):
        box = torch.zeros(2)
        work = dist.irecv(box)
        work.wait()
        seen.append([work._source_rank(), box.tolist()])
    found["seen"] = sorted(seen)
else:
    for n in range(2):
        dist.send(torch.tensor([float(rank), float(n)]), 0)
spread = torch.arange(12.0).reshape(3, 4)[:, 1:3]
if rank == 0:
    dist.send(spread, 1)
elif rank == 1:
    target = torch.zeros(2, 3)
    dist.recv(target.t(), 0)
    found["turned"] = target.tolist()
dist.barrier()
if rank == 2:
    dist.destroy_process_group()
    dist.init_process_group("peerlane", store=dist.HashStore(), rank=0, world_size=1)
elif rank == 0:  # once it waited for any rank; that one has left does not matter
    dist.send(torch.ones(1), 1)
else:
    late = torch.zeros(1)
    dist.recv(late, 0)
    found["late"] = late.item()
""",
        size=3,
    )
    for rank, each in enumerate(results):
        others = [peer for peer in range(3) if peer != rank]
        assert each["batch"] == [[peer, 10.0 * peer + rank, 10.0 * peer + rank] for peer in others]
        assert each["number"] == 3.0
    assert results[0]["seen"] == [[peer, [float(peer), float(n)]] for peer in (1, 2) for n in (0, 1)]
    assert results[1]["turned"] == [[1.0, 5.0, 9.0], [2.0, 6.0, 10.0]]
    assert results[1]["late"] == 1.0


def test_message_of_another_size_and_of_a_rank_that_left_raise(programs: Programs) -> None:
    results = programs.run(
        """
if rank == 0:
    dist.send(torch.zeros(4), 1, tag=7)
    dist.send(torch.ones(2), 1)
    found["self"] = caught(dist.group.WORLD.send, [torch.zeros(1)], 0, 0)
else:
    found["size"] = caught(dist.recv, torch.zeros(3), 0, tag=7)
    after = torch.zeros(2)
    dist.recv(after, 0)
    found["after"] = after.tolist()
    found["left"] = caught(dist.recv, torch.zeros(1), 0)
"""
    )
    assert results[0]["self"][0] == "DistBackendError"
    assert "rank 0 has sent 16 bytes with tag 7, and the receive has a tensor of 12" in results[1]["size"][1]
    assert results[1]["after"] == [1.0, 1.0]
    kind, text, cause = results[1]["left"]
    assert (kind, cause) == ("DistBackendError", "PeerLost")
    assert "rank 0 has left the group" in text


def test_silent_rank_and_one_that_ends_do_not_end_the_messages_of_others(programs: Programs) -> None:
    results = programs.run(
        """
short, other = dist.new_group(timeout=seconds(1)), dist.new_group()
store = dist.distributed_c10d._get_default_store()
box = torch.zeros(1)
if rank == 0:
    dist.recv(box, group=short)  # from any rank, so from now on it waits for both
    caught(dist.barrier, other, timeout=seconds(1.5))
    store.set("longer than the time-out", "")
    dist.recv(box, 2, short)
    found["late"] = box.item()
    store.set("rank 2 may end", "")
    caught(dist.barrier, short)  # rank 1 does not come, and rank 2 has ended by then
    dist.recv(box, 1)
    found["last"] = box.item()
elif rank == 1:
    dist.send(torch.ones(1), 0, short)
    store.wait(["rank 2 may end"])
    dist.send(torch.full((1,), 5.0), 0)
    store.wait(["rank 0 has it"])
else:
    store.wait(["longer than the time-out"])
    dist.send(torch.full((1,), 3.0), 0, short)
    sys.exit()  # without an end of the process group
store.set("rank 0 has it", "")
""",
        size=3,
    )
    assert results[0] == {"late": 3.0, "last": 5.0}


def test_short_messages_need_no_thread_and_no_receiver_that_waits(programs: Programs) -> None:
    results = programs.run(
        """
peer = 1 - rank
box = torch.zeros(100)
for _ in range(2):  # the first message of a rank has a thread
    work = dist.isend(box, peer)
    dist.recv(torch.zeros(100), peer)
    work.wait()
dist.barrier()
before = threading.active_count()
if rank == 0:
    for n in range(4):
        assert dist.isend(torch.full((100,), float(n)), 1, tag=n).is_completed()
    dist.barrier()
else:
    dist.barrier()
    got = []
    for n in (2, 0, 1, 3):  # those that come too early are kept
        dist.recv(box, 0, tag=n)
        got.append(box[99].item())
    found["got"] = got
found["threads"] = threading.active_count() - before
"""
    )
    assert results[1]["got"] == [2.0, 0.0, 1.0, 3.0]
    assert (results[0]["threads"], results[1]["threads"]) == (0, 0)


def test_receive_for_which_nobody_waits_makes_progress(programs: Programs) -> None:
    results = programs.run(
        """
if rank == 0:
    long, short = torch.zeros(5_000_000), torch.zeros(1)
    receive = dist.irecv(long, 1)
    receive.get_future()
    silent = dist.irecv(torch.zeros(5_000_000), 1)
    dist.recv(short, 2)  # which rank 2 sends once rank 1 has sent all
    found["short"] = short.item()
    receive.wait()
    silent.wait()
    found["long"] = long.min().item()
elif rank == 1:
    dist.send(torch.ones(5_000_000), 0)
    dist.send(torch.ones(5_000_000), 0)
    dist.send(torch.ones(1), 2)
else:
    dist.recv(torch.zeros(1), 1)
    dist.send(torch.full((1,), 6.0), 0)
""",
        size=3,
    )
    assert results[0] == {"short": 6.0, "long": 1.0}


@pytest.mark.parametrize("first", ["isend", "irecv"])
def test_long_exchange_whose_sends_are_awaited_first_waits_for_no_pause(
    programs: Programs, first: str
) -> None:
    results = programs.run(
        f"first = {first!r}"
        + """
from datetime import timedelta
from peerlane.torch import receives
receives._LEAST_SECONDS = receives._MOST_SECONDS = 20.0  # until threads read for receives that nobody awaits
source, target = torch.full((1 << 22,), rank, dtype=torch.uint8), torch.zeros(1 << 22, dtype=torch.uint8)
calls = {"isend": lambda: dist.isend(source, 1 - rank), "irecv": lambda: dist.irecv(target, 1 - rank)}
second = next(each for each in calls if each != first)
works = {each: calls[each]() for each in (first, second)}
for each in ("isend", "irecv"):
    works[each].wait(timedelta(seconds=10))
found["received"] = [int(target.min()), int(target.max())]
"""
    )
    assert [each["received"] for each in results] == [[1, 1], [0, 0]]
