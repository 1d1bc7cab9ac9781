"""Objects that a test leaves behind fail it, with kind, size and line; objects that it did not make do not."""

from __future__ import annotations

import re
import textwrap

import pytest

from helpers.inner_pytest import HEAD, marked_line, run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

# The code of a test, and the line of the list for what it leaves.
KINDS = {
    "memory": ("kept.append(d0.allocate(4096))", "memory: 4,096 bytes on virtual:0"),
    "pinned memory": (
        "kept.append(pl.Host().allocate(64))",
        "pinned memory: 64 bytes on host",
    ),
    "in stream order": (
        "s = d0.create_stream(); kept.append(d0.allocate(4096, stream=s)); s.close()",
        "memory: 4,096 bytes on virtual:0",
    ),
    "physical memory": (
        "kept.append(pl.Physical(d1, 2 << 20))",
        "physical 2,097,152 bytes on virtual:1",
    ),
    "address range": (
        "kept.append(pl.AddressRange(d1, 2 << 20))",
        "address range: 2,097,152 bytes on virtual:1",
    ),
    "stream": ("kept.append(d0.create_stream())", "stream * on virtual:0: idle"),
    "waiting stream": (
        "s = d0.create_stream(); kept.append(s); s.wait(d0.create_notify())",
        "stream * on virtual:0: 1 queued",
    ),
    "group": ("kept.append(pl.StreamGroup(d0))", "stream * on virtual:0: idle"),
    "event": ("kept.append(d1.create_event())", "event on virtual:1: not recorded"),
    "recorded event": (
        "with d1.create_stream() as s: kept.append(s.record())",
        "event on virtual:1: operation 1 of stream *, done",
    ),
    "notify": (
        "kept.append(d0.create_notify('fifo'))",
        "notify * (fifo) on virtual:0: 0 recorded, 0 consumed",
    ),
    "view": (
        "b = d0.allocate(4096); kept.append(b.view('u4')[7:]); b.close()",
        "view of 4,096 bytes on virtual:0, whose buffer was closed",
    ),
}


def file_of(kinds: dict[str, tuple[str, str]], before: str) -> str:
    """Return a file with a test for each kind."""
    return HEAD + "".join(
        f"\ndef test_{name.replace(' ', '_')}({before}\n    {code}  # {name}\n"
        for name, (code, _) in kinds.items()
    )


def all_are_reported(
    pytester: pytest.Pytester, done: pytest.RunResult, kinds: dict[str, tuple[str, str]]
) -> None:
    """Check that each test passed, and that its teardown failed with the one object left, and its line."""
    done.assert_outcomes(passed=len(kinds), errors=len(kinds))
    for name, (_, text) in kinds.items():
        done.stdout.fnmatch_lines(
            [
                f"*ERROR at teardown of test_{name.replace(' ', '_')} *",
                "the test left behind 1 thing*:",
                f"  {text}, made at {marked_line(pytester, name)}",
            ]
        )


def test_leaks_of_each_kind_fail_their_test_with_line(pytester: pytest.Pytester) -> None:
    done = run(pytester, file_of(KINDS, "peerlane_node):\n    d0, d1 = peerlane_node"))
    all_are_reported(pytester, done, KINDS)


def test_leaks_of_handle_name_its_memory_too(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    block = pl.Physical(peerlane_node[0], 2 << 20)  # block
    kept.append(block.export(allow="user"))  # handle
""",
    )
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(
        [
            "the test left behind 2 things, 2,097,152 bytes in all:",
            f"  physical 2,097,152 bytes on virtual:0, made at {marked_line(pytester, 'block')}",
            f"  handle 0x* of Physical 2,097,152 bytes on virtual:0, made at {marked_line(pytester, 'handle')}",
        ]
    )


# The code of a test of pyACL after init and set_device(0), and the line of the list for what it leaves.
ACL = {
    "memory": ("assert rt.malloc(4096, 0)[1] == 0", "memory: 4,096 bytes on virtual:0"),
    "pinned memory": ("assert rt.malloc_host(1)[1] == 0", "pinned memory: 1 byte on host"),
    "stream": ("assert rt.create_stream()[1] == 0", "stream 0x* of device 0"),
    "event": ("assert rt.create_event()[1] == 0", "event 0x* of device 0"),
    "notify": ("assert rt.create_notify(0)[1] == 0", "notify 0x* of device 0"),
    "context": ("assert rt.create_context(1)[1] == 0", "context 0x* of device 1"),
    "physical memory": (
        "assert rt.malloc_physical(2 << 20, {'location': {'type': 1}, 'memAttr': 4}, 0)[1] == 0",
        "handle of physical memory 0x* of device 0, 2,097,152 bytes",
    ),
    "data buffer": (
        "assert kept.append(acl.create_data_buffer(0, 8)) is None",
        "data buffer 0x????????????????",
    ),
    "addresses": (
        "assert rt.reserve_mem_address(2 << 20, 0, 0, 0)[1] == 0",
        "address range: 2,097,152 bytes on virtual:0",
    ),
}


def test_leaks_of_each_pyacl_kind_fail_their_test_with_line(pytester: pytest.Pytester) -> None:
    done = run(
        pytester, file_of(ACL, "acl):\n    rt = acl.rt\n    assert acl.init() == 0 and rt.set_device(0) == 0")
    )
    all_are_reported(pytester, done, ACL)
    assert done.stdout.str().count("\nMemory of acl.rt.malloc ends with acl.rt.free, or when ") == len(ACL)


def test_leaks_leave_out_objects_that_acl_makes_itself(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_never_reset(acl):
    acl.init()
    acl.rt.set_device(0)
    event, _ = acl.rt.create_event()
    assert acl.rt.record_event(event, 0) == 0  # the default stream
    assert acl.rt.get_context()[1] == 0  # the number of the primary context
    assert acl.rt.destroy_event(event) == 0
    acl.rt.set_device(1)
    assert acl.rt.device_enable_peer_access(0, 0) == 0

def test_the_last_reset_frees(acl):
    acl.rt.set_device(0)
    pointer, _ = acl.rt.malloc(4096, 0)
    stream, _ = acl.rt.create_stream()
    event, _ = acl.rt.create_event_with_flag(1)
    assert acl.rt.stream_wait_event(stream, event) == 0
    assert acl.rt.record_event(event, 0) == 0
    assert acl.rt.reset_device(0) == 0
""",
    )
    done.assert_outcomes(passed=2)


def test_leaks_of_a_called_function_show_both_lines(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(pool="def take(device):\n    return device.allocate(5)\n")
    done = run(
        pytester,
        f"""{HEAD}
import pool

def test_it(peerlane_node):
    for _ in range(1000):
        kept.append(pool.take(peerlane_node[1]))  # here
    for number in range(30):
        exec(compile("kept.append(peerlane_node[0].create_event())", f"gen{{number}}.py", "exec"))
""",
    )
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(
        [
            "the test left behind 1,030 things, 5,000 bytes in all:",
            f"  1,000 times memory, 5,000 bytes on virtual:1, made at pool.py:2, called at {marked_line(pytester)}",
            "  event on virtual:0: not recorded, made at gen0.py:1, called at test_it.py:*",
            "  and 11 more lines",
        ]
    )


def test_leaks_of_failing_test_keep_its_own_reason(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
@pytest.fixture
def broken(peerlane_node):
    kept.append(peerlane_node[0].allocate(11))
    raise RuntimeError("broken setup")

@pytest.fixture
def breaks(peerlane_node):
    kept.append(peerlane_node[0].allocate(22))
    yield
    raise RuntimeError("broken teardown")

def test_setup(broken):
    pass

def test_call(peerlane_node):
    kept.append(peerlane_node[0].allocate(33))
    raise RuntimeError("broken call")

def test_teardown(breaks):
    pass

@pytest.mark.xfail(raises=RuntimeError, strict=True)
def test_expected(peerlane_node):
    kept.append(peerlane_node[0].allocate(44))
    raise RuntimeError("as expected")

def test_skipped(peerlane_node):
    kept.append(peerlane_node[0].allocate(55))
    pytest.skip("no reason")

def test_after(peerlane_node):
    assert all(each.is_closed for each in kept) and len(kept) == 5
""",
    )
    done.assert_outcomes(passed=2, failed=1, errors=2, xfailed=1, skipped=1)
    text = done.stdout.str()
    assert all(f"RuntimeError: broken {reason}" in text for reason in ("setup", "call", "teardown"))
    for nbytes in (33, 22):  # pytest shows no report of a teardown whose setup failed
        assert f"memory: {nbytes} bytes on virtual:0, made at test_it.py" in text
    assert text.count("The test did not run to its end") == 2
    assert "Failed: the test left" not in text and "ExceptionGroup" not in text


def test_leaks_leave_out_objects_closed_by_fixture_teardown(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
@pytest.fixture
def pool():  # does not ask for the node, and is nevertheless torn down before it
    made = []
    yield made
    for each in made:
        each.close()

class Cycle:
    pass

def test_it(pool, peerlane_node):
    pool.append(peerlane_node[0].allocate(5))

def test_cycle(peerlane_node):
    cycle = Cycle()
    cycle.itself, cycle.buffer = cycle, peerlane_node[0].allocate(5)
    with pytest.raises(pl.InvalidValue) as caught:
        stream = peerlane_node[0].create_stream()
        cycle.buffer.fill(300)

def test_left_by_itself(peerlane_node):
    kept.append(peerlane_node[0].allocate(5))
    pl.leave_node()

def test_entered_by_itself(peerlane_node):
    (device,) = pl.enter_node("name=own-%d,devices=1" % os.getpid())
    kept.append(device.create_event())
    kept.append(device.allocate(5))
""",
    )
    done.assert_outcomes(passed=4, errors=2)
    done.stdout.fnmatch_lines(
        [
            *("*ERROR at teardown of test_left_by_itself*", "the test left behind 1 thing*"),
            *("*ERROR at teardown of test_entered_by_itself*", "the test left behind 2 things*"),
        ]
    )


@pytest.mark.parametrize("how", ["option", "ini", "marker"])
def test_leaks_setting_turns_failure_into_warning_or_nothing(pytester: pytest.Pytester, how: str) -> None:
    for fate, shown in (("warn", 1), ("ignore", 0)):
        pytester.makeini("[pytest]\n" + (f"peerlane_leaks = {fate}\n" if how == "ini" else ""))
        done = run(
            pytester,
            f"""{HEAD}
@pytest.mark.peerlane({f"leaks={fate!r}" if how == "marker" else ""})
def test_it(peerlane_node):
    kept.append(peerlane_node[0].allocate(5))
    kept.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1))

def test_it_was_not_killed():
    assert kept[1].poll() is None
    kept[1].communicate(b"now", timeout=60)
    assert kept[1].returncode == 0
""",
            *([f"--peerlane-leaks={fate}"] if how == "option" else []),
        )
        done.assert_outcomes(passed=2)
        assert done.stdout.str().count("PytestWarning: the test left behind 2 things") == shown


def test_leaks_leave_out_memory_that_ended_child_held(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
CHILD = '''
import sys
import peerlane as pl
block = pl.Physical.open(sys.argv[1])
print("open", flush=True)
input()
import os
os._exit(0)
'''

def test_it(peerlane_node):
    with pl.Physical(peerlane_node[0], 4 << 20) as block, block.export(allow="user") as handle:
        child = subprocess.Popen([sys.executable, "-c", CHILD, bytes(handle).decode()], stdin=-1, stdout=-1)
        assert child.stdout.readline() == b"open\\n"
    child.communicate(b"go\\n", timeout=60)
""",
    )
    done.assert_outcomes(passed=1)


def test_leaks_list_memory_held_only_by_address_range(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    d0, d1 = peerlane_node
    room = pl.AddressRange(d0, 8 << 20)  # range
    kept.append(room)
    lasting = pl.Physical(d1, 2 << 20)  # lasting
    kept.append(lasting)
    room.map(lasting, at=6 << 20)
    with pl.Physical(d0, 2 << 20) as one, pl.Physical(d0, 2 << 20) as other:
        room.map(one)  # first
        room.map(one, at=4 << 20)
        room.map(other, at=2 << 20)
        room.unmap(2 << 20)

def test_queued(peerlane_node):
    d0, _ = peerlane_node
    kept.append(pl.AddressRange(d0, 8 << 20))
    block = d0.allocate(2 << 20)
    kept.append(memoryview(block))
    block.close()

def test_nothing_is_mapped_any_more(peerlane_node):
    with pl.AddressRange(peerlane_node[0], 2 << 20) as room, pl.Physical(peerlane_node[0], 2 << 20) as block:
        room.map(block)
""",
    )
    done.assert_outcomes(passed=3, errors=2)
    mapped = "  mapped memory: 2,097,152 bytes on virtual:0, which only an address range holds"
    done.stdout.fnmatch_lines(
        [
            "the test left behind 3 things, 4,194,304 bytes in all:",
            f"  address range: 8,388,608 bytes on virtual:0, made at {marked_line(pytester, 'range')}",
            f"{mapped}, made at {marked_line(pytester, 'first')}",
            f"  physical 2,097,152 bytes on virtual:1, made at {marked_line(pytester, 'lasting')}",
            "the test left behind 2 things, 2,097,152 bytes in all:",
            "  2,097,152 bytes on virtual:0, freed and still held: *",
        ]
    )


def test_leaks_list_objects_of_node_that_test_left(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    local = peerlane_node[0].allocate(4096)
    kept.append(peerlane_node[1].allocate(8192))  # memory
    kept.append(peerlane_node[1].create_stream())  # stream
    with pytest.raises(pl.InvalidValue):
        pl.enter_node("devices=0")  # nothing was left
    assert not local.is_closed
    pl.enter_node("devices=3")
    kept.append(pl.devices()[2].allocate(64))  # after
    pl.leave_node()

def test_of_pyacl(acl):
    acl.rt.set_device(1)
    for _ in range(2):
        acl.rt.malloc(4096, 2)  # malloc
    acl.rt.create_event()  # event
    pl.leave_node()

def test_dropped(peerlane_node):
    local = peerlane_node[0].allocate(4096)
    stream = peerlane_node[0].create_stream()
    pl.leave_node()
    assert local.is_closed and stream.is_closed
""",
    )
    done.assert_outcomes(passed=3, errors=2)
    of = "of a node that the test left, made at"
    done.stdout.fnmatch_lines(
        [
            "the test left behind 3 things, 8,256 bytes in all:",
            f"  memory: 8,192 bytes on virtual:1, {of} {marked_line(pytester, 'memory')}",
            f"  stream * on virtual:1: idle, {of} {marked_line(pytester, 'stream')}",
            f"  memory: 64 bytes on virtual:2, {of} {marked_line(pytester, 'after')}",
            "the test left behind 3 things, 8,192 bytes in all:",
            f"  2 times memory, 8,192 bytes on virtual:1 {of} {marked_line(pytester, 'malloc')}",
            f"  event 0x* of device 1, {of} {marked_line(pytester, 'event')}",
        ]
    )


def test_leaks_list_freed_bytes_that_are_still_held(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    buffer = peerlane_node[0].allocate(3 << 20)
    kept.append(memoryview(buffer))
    buffer.close()

def test_queued_and_dropped(peerlane_node):
    d0 = peerlane_node[0]
    stream = d0.create_stream()
    buffer = d0.allocate(3 << 20, stream=stream)
    buffer.fill(1, stream=stream)
    buffer.close()
""",
    )
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(["  4,194,304 bytes on virtual:0, freed and still held: by a *"])


def test_plugin_interrupted_test_leaves_its_node(pytester: pytest.Pytester) -> None:
    directory = pytester.mkdir("runtime")
    directory.chmod(0o700)
    source = f"""{HEAD}
os.environ["PEERLANE_RUNTIME_DIR"] = {str(directory)!r}

def test_it(peerlane_node):
    kept.append(peerlane_node[0].allocate(5))
    raise KeyboardInterrupt
"""
    done = run(pytester, textwrap.dedent(source))
    assert done.ret == pytest.ExitCode.INTERRUPTED
    assert not re.search("(?m)^Traceback", done.stderr.str())
    assert list(directory.iterdir()) == []
