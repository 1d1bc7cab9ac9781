"""`--peerlane-check` and ``check=True``: a test of which there is a certain finding fails with its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.inner_pytest import HEAD, run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

TESTS = (
    HEAD
    + """
def race(device):
    with device.allocate(64) as memory, device.create_stream() as stream:
        memory.fill(3, stream=stream)
        found = int(memory.view()[5])  # nobody has waited
        stream.sync()
    return found

def test_race(peerlane_node):
    race(peerlane_node[0])

def test_right(peerlane_node):
    with peerlane_node[0].allocate(64) as memory, peerlane_node[0].create_stream() as stream:
        memory.fill(3, stream=stream)
        stream.sync()
        assert memory.view()[5] == 3

def test_that_fails(peerlane_node):
    race(peerlane_node[0])
    assert not "its own reason"

def test_without_node():
    pass
"""
)


def test_option_fails_the_test_with_a_race_and_shows_both_lines(pytester: pytest.Pytester) -> None:
    result = run(pytester, TESTS, "--peerlane-check")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_race*",
            "peerlane check: 1 certain finding",
            "race (certain): *",
            "* memory.fill(3, stream=stream)",
            "* found = int(memory.view()[[]5[]])  # nobody has waited",
            "  missing: a synchronization *",
            "*its own reason*",
            "*peerlane: findings of the checker*",
            "*memory.fill(3, stream=stream)",
        ]
    )
    report = result.stdout.str().partition("ERROR at teardown of test_race")[2].partition("FAILURES")[0]
    assert "_pytest" not in report  # no frame of who runs the test


def test_without_option_no_test_is_checked(pytester: pytest.Pytester) -> None:
    run(pytester, TESTS).assert_outcomes(passed=3, failed=1)


def test_marker_decides_before_the_option(pytester: pytest.Pytester) -> None:
    source = TESTS.replace("def test_race", "@pytest.mark.peerlane(check=True)\ndef test_race").replace(
        "def test_that_fails", "@pytest.mark.peerlane(check=False)\ndef test_that_fails"
    )
    run(pytester, source).assert_outcomes(passed=3, failed=1, errors=1)
    result = run(pytester, source, "--peerlane-check")
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.no_fnmatch_line("*peerlane: findings of the checker*")


def test_ini_setting_checks_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npeerlane_check = true")
    run(pytester, TESTS).assert_outcomes(passed=3, failed=1, errors=1)


UNCERTAIN = (
    HEAD
    + """
import socket, threading
def test_socket(peerlane_node):
    here, there = socket.socketpair()
    with here, there, peerlane_node[0].allocate(64) as memory, peerlane_node[0].create_stream() as stream:
        def write():
            memory.fill(3, stream=stream)
            stream.sync()
            here.sendall(b"x")
        thread = threading.Thread(target=write)
        thread.start()
        there.recv(1)
        seen = int(memory.view()[5])
        thread.join()
"""
)


def test_strict_fails_tests_with_uncertain_findings(pytester: pytest.Pytester) -> None:
    result = run(pytester, UNCERTAIN, "--peerlane-check")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*PytestWarning: peerlane check: 1 uncertain finding"])
    result = run(pytester, UNCERTAIN, "--peerlane-strict")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["peerlane check: 1 uncertain finding", "race (uncertain): *"])


def test_marker_and_ini_setting_decide_how_strict_a_test_is(pytester: pytest.Pytester) -> None:
    strict = UNCERTAIN.replace("def test_socket", "@pytest.mark.peerlane(strict=True)\ndef test_socket")
    run(pytester, strict).assert_outcomes(passed=1, errors=1)
    run(pytester, strict.replace("strict=True", "strict=True, check=False")).assert_outcomes(passed=1)
    pytester.makeini("[pytest]\npeerlane_strict = true")
    run(pytester, UNCERTAIN).assert_outcomes(passed=1, errors=1)
    run(pytester, strict.replace("True", "False")).assert_outcomes(passed=1)


def test_marker_refuses_another_value(pytester: pytest.Pytester) -> None:
    source = HEAD + "\n@pytest.mark.peerlane(check='yes')\ndef test_it(): pass\n"
    result = run(pytester, source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*check is 'yes'; valid are True and False*"])


RANKS = """
import peerlane as pl
with pl.Group(window=4096) as group:
    channel = group.channel(1 - group.rank)
    block = group.device.allocate(64)
    block.fill(7)
    if group.rank == 0:
        channel.write(block, at=0)
    else:
        group.window.view()[3]
    group.barrier()
"""


LAUNCHES_RANKS = (
    HEAD
    + """
@pytest.mark.peerlane(devices=2, check=True)
def test_ranks():
    words = ["launch", "-n", "2", "ranks.py", "written"]
    subprocess.run([sys.executable, "-m", "peerlane", *words], check=True, timeout=60)
"""
)


def test_race_of_ranks_that_a_test_launches_fails_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ranks=RANKS)
    result = run(pytester, LAUNCHES_RANKS)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["race (certain): *", "  rank *", "* channel.write(block, at=0)"])


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_a_test_are_checked(pytester: pytest.Pytester, method: str) -> None:
    pytester.makepyfile(
        work="""
import peerlane as pl
def race():
    device = pl.devices()[0]
    with device.allocate(64) as memory, device.create_stream() as stream:
        memory.fill(3, stream=stream)
        memory.view()[5]
        stream.sync()
def right():
    pl.devices()[0].allocate(64).close()
"""
    )
    source = (
        HEAD
        + f"""
import work

@pytest.mark.peerlane(check=True)
@pytest.mark.parametrize("call", [work.right, work.race, work.right])
def test_child(call):
    child = multiprocessing.get_context({method!r}).Process(target=call)
    child.start()
    child.join(30)
    assert child.exitcode == 0
"""
    )
    result = run(pytester, source)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*ERROR at teardown of test_child[[]race[]]*"])


def test_consequences_stand_under_the_finding_of_a_test(pytester: pytest.Pytester) -> None:
    broken = Path(__file__).parents[1] / "checker" / "programs" / "broken" / "u1_deregistered_early.py"
    pytester.makepyfile(ranks=broken.read_text())
    result = run(pytester, LAUNCHES_RANKS)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "peerlane check: 1 certain finding (2 consequences)",
            "use-after-free (certain): *",
            "  and 2 consequences, which go away with it:",
            "    use-after-free: *",
            "    unconsumed-notify: *",
        ]
    )


def test_process_without_a_log_that_opens_memory_of_a_test_is_a_warning(pytester: pytest.Pytester) -> None:
    source = (
        HEAD
        + """
OPENER = "import peerlane as pl, sys; print(int(pl.Buffer.open(bytes.fromhex(sys.argv[1])).view()[5]))"

def test_opened(peerlane_node):
    with peerlane_node[0].allocate(64) as memory:
        memory.fill(3)
        name = bytes(memory.export(allow="user")).hex()
        environment = {name: text for name, text in os.environ.items() if name != "PEERLANE_LOG"}
        done = subprocess.run(
            [sys.executable, "-c", OPENER, name], env=environment, timeout=60, capture_output=True, text=True
        )
        assert done.stdout.strip() == "3", done.stderr
"""
    )
    result = run(pytester, source, "--peerlane-check")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*PytestWarning: peerlane check: process * which this check does not see*"])


EDGE = (
    HEAD
    + """
import posix_ipc, zmq

def name(folder, is_child):
    return f"{folder.name}-{os.getppid() if is_child else os.getpid()}"

def by_zmq(folder, is_child):
    end = zmq.Context().socket(zmq.PAIR)
    end.rcvtimeo = 30_000
    (end.connect if is_child else end.bind)(f"ipc://@{name(folder, is_child)}")
    return lambda: end.send(b"."), end.recv

def by_semaphore(folder, is_child):
    one = posix_ipc.Semaphore("/" + name(folder, is_child), posix_ipc.O_CREAT)
    if is_child:  # both have it
        one.unlink()
    return one.release, lambda: one.acquire(30)

def write(handle, folder, means, mode, talk):
    tell, _ = means(folder, True)
    with pl.Buffer.open(handle) as memory:
        if mode == "early":
            tell()
            talk.recv()  # a thread of ZeroMQ may send late
        memory.view()[:8] = 7
        if mode == "right":
            tell()
        talk.recv()  # the end of this process would tell that its write is over

@pytest.mark.parametrize("mode", ["right", "early"])
@pytest.mark.parametrize("means", [by_zmq, by_semaphore])
def test_edge(peerlane_node, tmp_path, means, mode):
    _, wait = means(tmp_path, False)
    with peerlane_node[0].allocate(64) as memory:
        handle = bytes(memory.export(allow="user"))
        context = multiprocessing.get_context("spawn")
        talk, other = context.Pipe()
        child = context.Process(target=write, args=(handle, tmp_path, means, mode, other))
        child.start()
        wait()
        if mode == "early":
            talk.send("go on")
            time.sleep(0.2)
        memory.view()[:8].sum()
        talk.send("looked")
        child.join(60)
        assert child.exitcode == 0
"""
)


def test_order_that_a_native_library_carries_excuses_and_its_use_elsewhere_does_not(
    pytester: pytest.Pytester,
) -> None:
    result = run(pytester, EDGE, "--peerlane-check")
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_edge[[]*-early]*", "*ERROR at teardown of test_edge[[]*-early]*"]
    )
    assert "ERROR at teardown of test_edge[by_zmq-right]" not in result.stdout.str()
    assert "ERROR at teardown of test_edge[by_semaphore-right]" not in result.stdout.str()
