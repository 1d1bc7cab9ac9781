"""Under ``lazy`` the bytes of a channel between machines arrive when the receiver waits, and not before."""

from __future__ import annotations

import pytest

from helpers.absent import needs_engine
from helpers.ports import free_port
from helpers.two_machines import by_address, run

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.timeout(180),
    needs_engine,
]

#: Rank 0 writes and rank 1 looks; they take turns by the rendezvous, which brings no bytes.
BEGIN = """
import numpy as np
group = joined(timeout=60, window=8 << 20, **OPTIONS)
channel = group.channel(1 - group.rank, notifies=4)
group.window.fill(0)
stream, other = group.device.create_stream(), group.device.create_stream()
me, is_writer = group.window, group.rank == 0
entered = [time.monotonic()] * 2
def turn():
    entered[:] = entered[1], time.monotonic()
    group.barrier()
def rested():
    # After 1 s without a call the receiver brings all: whether it may have done so since the turn before the last,
    # after which the writer wrote.
    return time.monotonic() - entered[0] > 0.9
def seen(at=0):
    return int(me[at:at + 1].view()[0])
turn()
"""
END = """
turn()
channel.close()
group.close()
say("done")
"""


def both(program: str, options: str = "{}") -> None:
    environs = by_address("ab", free_port(), UCX_TLS="tcp,self", PEERLANE_SCHEDULE="lazy")
    text = BEGIN.replace("OPTIONS", options) + program + END
    for code, output, errors in run(text, environs):
        assert (code, errors, output) == (0, "", "done\n")


@pytest.mark.parametrize("stream", ["None", "stream"])
@pytest.mark.parametrize("nbytes", [8, 70_000, 3_000_000])
def test_missing_wait_for_bytes_of_another_machine_shows_every_time(stream: str, nbytes: int) -> None:
    both(f"""
for value in range(1, 6):
    if is_writer:
        channel.write(np.full({nbytes}, value, np.uint8), notify=0, stream={stream})
        stream.sync()
    turn()
    if not is_writer:
        assert seen({nbytes} - 1) == value - 1 or rested(), seen({nbytes} - 1)
        channel.wait(0, timeout=30)
        assert (seen({nbytes} - 1), seen()) == (value, value)
    turn()
""")


@pytest.mark.parametrize("kind", ["binary", "strict", "fifo"])
def test_wait_brings_what_came_before_its_record_and_no_more(kind: str) -> None:
    both(
        """
for value in range(1, 4):
    if is_writer:
        channel.write(bytes([value]), notify=0, stream=stream)
        channel.write(bytes([value]), at=1, notify=1, stream=stream)
        channel.write(bytes([value]), at=2, stream=stream)
        channel.notify(2, stream=stream)
        stream.sync()
    turn()
    if not is_writer:
        found = [(seen(), seen(1), seen(2))]
        for index in range(3):
            channel.wait(index, timeout=30)
            found.append((seen(), seen(1), seen(2)))
        last = value - 1
        wanted = [(last,) * 3, (value, last, last), (value, value, last), (value,) * 3]
        assert found == wanted or (found[3] == wanted[3] and rested()), found
    turn()
""",
        f'{{"notifies": "{kind}"}}',
    )


def test_wait_on_a_stream_brings_bytes_for_its_next_operation() -> None:
    both("""
for value in range(1, 6):
    if is_writer:
        turn()
        channel.write(np.full(64, value, np.uint8), notify=1, stream=stream)
        stream.sync()
    else:
        out = group.device.allocate(64)
        channel.wait(1, stream=stream, timeout=30)
        out.copy_from(me[:64], stream=stream)
        turn()
        stream.sync()
        assert int(out.view()[63]) == value
        out.close()
    turn()
""")


def test_blocks_reductions_and_nonblocking_writes_come_in_order() -> None:
    both("""
if is_writer:
    ones = np.ones(256, np.int32)
    channel.write(5 * ones, stream=stream)
    channel.write_reduce(3 * ones, dtype="int32", stream=stream)
    channel.write_blocks(9 * ones, [[0, 0, 8], [512, 0, 8]], notify=0, stream=stream)
    channel.write(np.zeros(256, np.int32), stream=stream)
    stream.sync()
    for at in range(4):
        channel.write(b"\\7", at=4096 + at, nonblocking=True)
    channel.fence()
    channel.notify(1, stream=other)
    other.sync()
turn()
if not is_writer:
    assert int(me.view("int32")[:256].sum()) == 0 or rested()
    channel.wait(0, timeout=30)
    assert me.view("int32")[:256].tolist() == [9, 9, *[8] * 126, 9, 9, *[8] * 126] or rested()
    assert seen(4096) == 0 or rested()
    channel.wait(1, timeout=30)
    assert [seen(4096 + at) for at in range(4)] == [7] * 4
    assert int(me.view("int32")[:256].sum()) == 0
""")


def test_read_of_the_writer_close_and_rest_bring_bytes_too() -> None:
    both("""
if is_writer:
    got = bytearray(1)
    channel.write(b"\\1", stream=stream)
    channel.read(got, stream=stream)
    stream.sync()
    assert got == b"\\1"
    channel.write(b"\\2")
turn()
if not is_writer:
    assert seen() == 1
    until = time.monotonic() + 10
    while seen() == 1 and time.monotonic() < until: time.sleep(0.05)
    assert seen() == 2
turn()
seconds = []
for value in range(3, 6):
    link = group.channel(1 - group.rank)
    if is_writer:
        link.write(bytes([value]))
        link.close()
    turn()
    if not is_writer:
        began = time.monotonic()
        while seen() == value - 1 and time.monotonic() < began + 20: time.sleep(0.001)
        assert seen() == value
        seconds.append(time.monotonic() - began)
    turn()
    link.close()
assert is_writer or min(seconds) < 0.9, seconds
""")


def test_bytes_that_were_accepted_are_there_when_the_memory_is_taken_back() -> None:
    both("""
table = group.device.allocate(4096)
table.fill(0)
group.register(table, "table")
with group.channel(1 - group.rank, notifies=1) as second:
    if is_writer:
        second.write(b"\\5", memory="table")
    turn()
    if not is_writer:
        assert int(table.view()[0]) == 0 or rested()
        group.deregister("table")
        assert int(table.view()[0]) == 5
    turn()
    if is_writer:
        error = None
        try: second.write(b"\\6", memory="table")
        except pl.Closed as raised: error = raised
        assert error is not None
    turn()
""")


def test_more_than_64_mib_come_in_part_before_the_wait_and_all_with_it() -> None:
    both("""
if is_writer:
    block = group.device.allocate(8 << 20)
    for value in range(1, 12):
        block.fill(value, stream=stream)
        channel.write(block, stream=stream)
    channel.notify(0, stream=stream)
    stream.sync()
turn()
if not is_writer:
    last = seen((8 << 20) - 1)
    assert 0 < last < 11 or (last == 11 and rested()), last
    channel.wait(0, timeout=30)
    assert (seen(), seen((8 << 20) - 1)) == (11, 11)
""")
