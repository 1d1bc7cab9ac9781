"""Process pools of tests and fixtures: which test is charged with one, and that the run ends whatever was killed."""

from __future__ import annotations

import pytest

from helpers.inner_pytest import HEAD, marked_line, passes, run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

HEAD = f"""{HEAD}
from concurrent.futures import ProcessPoolExecutor
import threading
import work

METHOD = "spawn"

def slowly(start):
    def started(process):
        time.sleep(0.4)
        child = start(process)
        time.sleep(0.4)
        return child
    return staticmethod(started)

pytestmark = [pytest.mark.timeout(60), pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]
"""
WORK = """
import os, signal, time

def nothing(number=0):
    return number

def place():
    import peerlane as pl
    return pl.devices()[0].backend.config.name

def replaced(pool, old):
    while (new := pool.apply(os.getpid)) == old:
        pass
    return new

def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
METHODS = ("spawn", "fork", "forkserver")
WIDE = ("module", "session")


@pytest.fixture(autouse=True)
def work(pytester: pytest.Pytester) -> None:
    """Write a module that the workers of the inner tests can import."""
    pytester.makepyfile(work=WORK)


LEFT = {
    "idle Pool": "pool = context.Pool(2)  # here\n    assert pool.apply(work.nothing) == 0",
    "busy Pool": "pool = context.Pool(1)  # here\n    pool.apply_async(time.sleep, (600,))",
    "deaf Pool": (
        "pool = context.Pool(1, work.deaf)  # here\n    assert pool.apply(work.nothing) == 0\n"
        "    pool.apply_async(time.sleep, (600,))"
    ),
    "Pool whose worker was killed": (
        "pool = context.Pool(2)  # here\n    assert pool.apply(work.nothing) == 0\n"
        "    os.kill(multiprocessing.active_children()[0].pid, 9)"
    ),
    "short-lived workers": (
        "pool = context.Pool(1, maxtasksperchild=1)  # here\n    pool.map(work.nothing, range(3), chunksize=1)"
    ),
    # When the test ends, one worker runs that multiprocessing has not recorded yet.
    "workers that start slowly": (
        "context.Process._Popen = slowly(context.Process._Popen)\n"
        "    pool = context.Pool(1, maxtasksperchild=1)  # here\n    pool.map(work.nothing, range(3), chunksize=1)"
    ),
    "idle executor": (
        "pool = ProcessPoolExecutor(2, mp_context=context)  # here\n"
        "    assert pool.submit(work.nothing).result(60) == 0"
    ),
    "busy executor": (
        "pool = ProcessPoolExecutor(1, mp_context=context)  # here\n"
        "    for _ in range(9):\n        pool.submit(time.sleep, 600)"
    ),
}


@pytest.mark.parametrize("what", LEFT)
def test_pool_left_by_test_is_listed_and_ended_with_the_run(pytester: pytest.Pytester, what: str) -> None:
    methods = METHODS if what == "idle Pool" else METHODS[:1]
    for method in methods:
        done = run(
            pytester,
            f"""{HEAD}
context = multiprocessing.get_context("{method}")

def test_it(peerlane_node):
    {LEFT[what]}
    kept.append(pool)

def test_next(peerlane_node):
    assert not multiprocessing.active_children()
""",
        )
        done.assert_outcomes(passed=2, errors=1)
        done.stdout.fnmatch_lines(
            [
                f"  process * (*), started at {marked_line(pytester)}; it was killed",
                "Wait for each process, or end it; leave the `with` block of a pool, or shut it down.",
            ]
        )
        assert "Close each" not in done.stdout.str()


def test_executor_that_notes_late_its_worker_ended_has_no_children(
    pytester: pytest.Pytester,
) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def slowly(status, noted=os.waitstatus_to_exitcode):
    time.sleep(0.5)
    return noted(status)

def test_it(peerlane_node):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))  # here
    assert pool.submit(work.nothing).result(60) == 0
    os.waitstatus_to_exitcode = slowly
    kept.append(pool)

def test_next(peerlane_node):
    assert not multiprocessing.active_children()
""",
    )
    done.assert_outcomes(passed=2, errors=1)


def test_queue_and_manager_of_killed_processes_do_not_block_the_end(
    pytester: pytest.Pytester,
) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=time.sleep, args=(600,), daemon=True)
    process.start()  # here
    queue.put(bytes(1 << 20))
    kept.extend([queue, process, context.Manager()])
""",
    )
    done.assert_outcomes(passed=1, errors=1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scope", WIDE)
def test_pool_of_wider_fixture_goes_on(pytester: pytest.Pytester, method: str, scope: str) -> None:
    passes(
        pytester,
        f"""{HEAD}
@pytest.fixture(scope="{scope}")
def pool():
    with multiprocessing.get_context("{method}").Pool(1, maxtasksperchild=1) as pool:
        yield pool

@pytest.mark.parametrize("number", range(3))
def test_it(pool, peerlane_node, number):
    pid = pool.apply(os.getpid)
    assert pool.apply(work.nothing, (number,)) == number
    kept.append(work.replaced(pool, pid))

def test_without_a_node(pool):
    assert pool.apply(work.nothing) == 0

def test_a_worker_is_in_the_node_of_the_test_in_which_it_starts(pool, peerlane_node):
    names = [pool.apply(work.place) for _ in range(2)]
    assert "{method}" == "fork" or names[1] == peerlane_node[0].backend.config.name
""",
        passed=5,
    )


@pytest.mark.parametrize("scope", WIDE)
@pytest.mark.parametrize("asked", ["pool", "request"])
def test_executor_of_wider_fixture_goes_on(pytester: pytest.Pytester, scope: str, asked: str) -> None:
    passes(
        pytester,
        f"""{HEAD}
@pytest.fixture(scope="{scope}")
def pool():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool

@pytest.mark.parametrize("number", range(2))
def test_it(peerlane_node, {asked}, number):
    pool = {"pool" if asked == "pool" else 'request.getfixturevalue("pool")'}
    assert pool.submit(work.nothing, number).result(60) == number
    kept.append(multiprocessing.active_children()[0].pid)

def test_its_workers_are_the_first_ones():
    assert kept[0] == kept[1]
""",
        passed=3,
    )


def test_processes_of_wider_fixture_are_not_leaks_of_first_test(
    pytester: pytest.Pytester,
) -> None:
    passes(
        pytester,
        f"""{HEAD}
@pytest.fixture(scope="module")
def server():
    pool = multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1)
    with subprocess.Popen(SLEEP) as process:
        yield process, pool
        process.kill()
    pool.terminate()

@pytest.mark.parametrize("number", range(2))
def test_it(peerlane_node, request, number):
    process, pool = request.getfixturevalue("server")
    assert process.poll() is None
    work.replaced(pool, pool.apply(os.getpid))
""",
        passed=2,
    )


def test_pool_of_test_is_ended_and_pool_of_fixture_is_kept(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
context = multiprocessing.get_context("spawn")

@pytest.fixture(scope="module")
def pool():
    with context.Pool(1, maxtasksperchild=1) as pool, ProcessPoolExecutor(1, mp_context=context) as executor:
        yield pool, executor

def test_it(pool, peerlane_node):
    pids = [pool[0].apply(os.getpid), pool[1].submit(os.getpid).result(60)]
    kept.append(context.Pool(1))  # here
    kept.extend(pids)

def test_next(pool, peerlane_node):
    work.replaced(pool[0], kept[1])
    assert pool[1].submit(os.getpid).result(60) == kept[2]
""",
    )
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines(
        [
            "the test left behind 1 thing:",
            f"  process * (*), started at {marked_line(pytester)}; it was killed",
        ]
    )


def test_pool_of_earlier_test_is_not_charged_to_later_tests(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
@pytest.mark.peerlane(leaks="ignore")
def test_it():
    kept.append(multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1))
    assert kept[0].apply(work.nothing) == 0

@pytest.mark.parametrize("number", range(3))
def test_next(peerlane_node, number):
    assert kept[0].apply(work.nothing, (number,)) == number
""",
    )
    done.assert_outcomes(passed=4)


def test_pool_under_xdist_fails_only_tests_that_created_one(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
@pytest.mark.parametrize("number", range(8))
def test_it(peerlane_node, number):
    if number < 2:
        kept.append(multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1))
        kept[-1].map(work.nothing, range(2), chunksize=1)
""",
        *("-n", "2", "-v"),
    )
    done.assert_outcomes(passed=8, errors=2)
    for number in range(2):
        done.stdout.fnmatch_lines([f"*ERROR*::test_it[[]{number}[]]*"])
