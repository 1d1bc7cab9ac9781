"""A stream waits for a word of memory that nobody writes: an error where that is proved, else a line on stderr."""

from __future__ import annotations

import os
import re
import textwrap

import pytest

from helpers.prepared import run_python

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(150)]

HEAD = """\
import threading, time
import peerlane as pl

device = pl.devices()[0]
stream, other = device.create_stream(), device.create_stream()
words = device.allocate(64)
words.fill(0)
"""
NEUTRAL = HEAD + "pl.raw.wait_value(words.address + 8, 3, stream=stream)  # submits\n"
ACL = """\
import threading, time
import acl

acl.init(), acl.rt.set_device(0)
words, _ = acl.rt.malloc(64, 0)
acl.rt.memset(words, 64, 0, 64)
stream, _ = acl.rt.create_stream()

def write():
    acl.rt.set_device(0)
    assert acl.rt.memset(words, 64, 3, 64) == 0

assert acl.rt.value_wait(words + 8, 3, 0, stream) == 0  # submits
"""
HIP = """\
import threading, time
from hip import hip

_, words = hip.hipMalloc(64)
hip.hipMemset(words, 0, 64)
_, stream = hip.hipStreamCreateWithFlags(1)  # the null stream does not wait for it
assert hip.hipStreamWaitValue32(stream, int(words) + 8, 3, hip.hipStreamWaitValueEq, 0xFF)[0] == 0  # submits
"""


def run(source: str, schedule: str = "eager") -> tuple[str, str]:
    env = {**os.environ, "PEERLANE_NODE": "devices=1", "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-m", "peerlane", "run", "-c", textwrap.dedent(source)], timeout=100, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def line(source: str, text: str) -> int:
    return next(number for number, each in enumerate(source.splitlines(), 1) if text in each)


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_two_streams_that_write_each_others_words_behind_their_waits_are_a_deadlock(schedule: str) -> None:
    out, _ = run(
        HEAD
        + """\
a, b = words.address, words.address + 8
for first, second, queue in ((a, b, stream), (b, a, other)):
    pl.raw.wait_value(first, 1, stream=queue)
    pl.raw.write_value(second, 1, stream=queue)
began = time.monotonic()
try:
    stream.sync()
except pl.Deadlock as error:
    print("writes the word of memory" in str(error), str(error).count("waits for a word"))
    print(time.monotonic() - began < 20)
stream.abort(), other.abort()
""",
        schedule,
    )
    assert out == "True 2\nTrue\n"


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_value_wait_of_acl_for_a_word_that_nobody_writes_ends_with_a_code_and_names_the_wait(
    schedule: str,
) -> None:
    out, _ = run(
        ACL
        + """\
print(acl.rt.synchronize_stream(stream) != 0)
print("writes the word of memory that is waited for" in acl.get_recent_err_msg())
acl.rt.stream_abort(stream)
""",
        schedule,
    )
    assert out == "True\nTrue\n"


SETUPS = {
    "neutral": (NEUTRAL, "stream.sync()", "words.fill(3)"),
    "acl": (ACL, "assert acl.rt.synchronize_stream(stream) == 0", "write()"),
    "hip": (HIP, "assert hip.hipStreamSynchronize(stream)[0] == 0", "hip.hipMemset(words, 3, 64)"),
}
WANTED = {"neutral": "at least 3", "acl": "as far as 3", "hip": "equal to 3 under the mask 0xff"}
LINE = re.compile(
    r"peerlane: after 5 s operation \d+ of stream \d+, submitted at <string>:(\d+), waits for the word of [48] bytes "
    r"at 0x[0-9a-f]+ \(byte 8 of allocation \d+ \(64 bytes at .*, allocated at <string>:(\d+)\)\) to be (.*)\n"
)


@pytest.mark.parametrize("api", SETUPS)
def test_wait_that_another_thread_may_end_names_the_word_once_after_some_seconds(api: str) -> None:
    setup, sync, write = SETUPS[api]
    source = f"{setup}threading.Timer(9, lambda: {write}).start()\n{sync}\nprint('over')\n"
    out, errors = run(source)
    assert out == "over\n"
    named = LINE.fullmatch(errors)
    assert named is not None, errors
    allocates = "allocate(" if api == "neutral" else "alloc("
    expected = line(source, "# submits"), line(source.replace("hipMalloc", "alloc"), allocates)
    assert (int(named[1]), int(named[2])) == expected
    assert named[3] == f"{WANTED[api]}; it is 0"


def test_wait_that_has_a_timeout_or_ends_soon_prints_nothing() -> None:
    out, errors = run(
        HEAD
        + """\
pl.raw.wait_value(words.address, 1, stream=stream)
pl.raw.wait_value(words.address + 8, 1, stream=other, timeout=30)
threading.Timer(0.5, lambda: words[0:8].fill(1)).start()
stream.sync()
threading.Timer(7, lambda: words.fill(1)).start()
other.sync()
print("over")
"""
    )
    assert (out, errors) == ("over\n", "")
