"""Processes that a test starts join its node; those that it leaves behind are listed and killed."""

from __future__ import annotations

import pytest

from helpers.inner_pytest import HEAD, marked_line, passes, run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def test_plugin_subprocess_of_test_joins_its_node(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import subprocess
        import sys
        import pytest

        @pytest.mark.peerlane(devices=3, memory="64MiB")
        def test_it(acl, peerlane_node):
            with peerlane_node[2].allocate(32 << 20):
                code = "import acl; acl.rt.set_device(2); print(acl.rt.get_mem_info(1))"
                child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
                assert child.stdout == f"({32 << 20}, {64 << 20}, 0)\\n", child.stderr
        """,
    )


def test_plugin_forked_children_of_test_join_its_node(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import multiprocessing
        import os
        import pytest
        import peerlane as pl

        pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

        def work(number):
            d0, d1 = pl.devices()[:2]
            with d0.allocate(3 << 20) as a, d1.allocate(3 << 20) as b, d0.create_stream() as s:
                a.fill(number, stream=s)
                b.copy_from(a, stream=s)
                s.sync(timeout=30)
                assert (b.view() == number).all()
            return os.getpid(), len(pl.devices()), d0.backend.config.name

        @pytest.mark.parametrize("count", [2, 5])
        def test_it(peerlane_node, count):
            for _ in range(2):
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    given = pool.map(work, range(4), chunksize=1)
                    pool.close()
                    pool.join()
                assert {each[1:] for each in given} == {(2, peerlane_node[0].backend.config.name)}
                assert os.getpid() not in {pid for pid, *_ in given}
            work(9)  # from now on the device is in use
            child = multiprocessing.get_context("fork").Process(target=work, args=(1,))
            child.start()
            child.join(30)
            assert child.exitcode == 1
        """,
        passed=2,
    )


def test_plugin_forkserver_children_join_node_of_present_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        work="""
        import multiprocessing, os, subprocess, sys

        def report():
            import acl
            import peerlane as pl
            return len(pl.devices()), pl.devices()[0].backend.config.name, acl.rt.get_device_count()[0], os.getppid()

        def no_dialect():
            import importlib.util
            return importlib.util.find_spec("acl") is None and os.environ.get("PEERLANE_SCHEDULE")

        def child_of_child():
            code = "import work; *given, _ = work.report(); print(given)"
            return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

        class Kept(multiprocessing.get_context("forkserver").Process):
            def run(self):
                import acl
                assert acl.rt.get_device_count()[0] == 4
        """
    )
    passes(
        pytester,
        """
        import multiprocessing
        import os
        import pytest
        import work

        servers = set()
        forkserver = multiprocessing.get_context("forkserver")

        @pytest.fixture(scope="module")
        def pool():
            with forkserver.Pool(1) as pool:
                assert pool.apply(work.no_dialect) == os.environ.get("PEERLANE_SCHEDULE")
                yield pool

        def test_before(pool):
            pass

        @pytest.mark.parametrize("count", [2, 3])
        def test_it(acl, peerlane_node, count, request):
            for _ in range(2):
                with forkserver.Pool(1) as pool:
                    *given, server = pool.apply(work.report)
                    assert given == [2, peerlane_node[0].backend.config.name, 2]
                    assert pool.apply(work.child_of_child) == f"{given}\\n"
                servers.add(server)
            assert len(servers) == 1

        @pytest.mark.peerlane(devices=4)
        def test_a_class_of_its_own(acl):
            process = work.Kept()
            process.start()
            process.join(30)
            assert process.exitcode == 0 and "_peerlane_carried" not in vars(process)

        def test_without_a_dialect(peerlane_node, monkeypatch):
            monkeypatch.setenv("PEERLANE_SCHEDULE", "lazy")
            with forkserver.Pool(1) as pool:
                assert pool.apply(work.no_dialect) == "lazy"

        def test_the_older_pool_goes_on(pool):
            assert pool.apply(len, ([1, 2],)) == 2
        """,
        passed=6,
    )


@pytest.mark.parametrize(
    ("start", "command"),
    [
        ("subprocess.Popen(SLEEP)", "* -c import time; time.sleep(600)"),
        ("multiprocessing.get_context('spawn').Process(target=time.sleep, args=(600,))", "*spawn_main*"),
        ("multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,), daemon=True)", "*"),
        ("multiprocessing.get_context('forkserver').Process(target=time.sleep, args=(600,))", "*"),
    ],
    ids=["subprocess", "spawn", "fork", "forkserver"],
)
def test_plugin_process_left_by_test_is_listed_and_killed(
    pytester: pytest.Pytester, start: str, command: str
) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    process = {start}  # made
    if hasattr(process, "start"):
        process.start()  # started
    kept.append(process)

def test_next(peerlane_node):
    process = kept[0]
    code = process.poll() if isinstance(process, subprocess.Popen) else process.exitcode
    assert code == -9 and not os.path.exists(f"/proc/{{process.pid}}")
    assert not multiprocessing.active_children()
""",
    )
    done.assert_outcomes(passed=2, errors=1)
    line = marked_line(pytester, "made" if "Popen" in start else "started")
    done.stdout.fnmatch_lines([f"  process * ({command}), started at {line}; it was killed"])


def test_plugin_posix_spawned_process_and_its_child_are_killed(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
def test_it(peerlane_node):
    code = f"import os, subprocess; subprocess.Popen({{SLEEP!r}}); open('ready', 'w').close(); os.wait()"
    kept.append(os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ))  # here
    while not os.path.exists("ready"):
        time.sleep(0.01)
    kept.append(os.popen(f"ps -o pid= --ppid {{kept[0]}}").read().strip())

def test_next():
    assert kept[1].isdigit() and os.waitpid(kept[0], 0)[1] == 9
    with open(f"/proc/{{kept[1]}}/stat") if os.path.exists(f"/proc/{{kept[1]}}") else open(os.devnull) as file:
        assert file.read().rpartition(")")[2].split()[:1] in ([], ["Z"])
""",
    )
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines([f"  process * (*), started at {marked_line(pytester)}; it was killed"])


@pytest.mark.parametrize("session", [False, True])
def test_plugin_orphans_of_test_are_listed_killed_and_reaped(
    pytester: pytest.Pytester, session: bool
) -> None:
    done = run(
        pytester,
        f"""{HEAD}
START = "import subprocess; print(subprocess.Popen({{!r}}, start_new_session={session}, stdout=-3, stderr=-3).pid)"

def start(command):
    done = subprocess.run([sys.executable, "-c", START.format(command)], capture_output=True, text=True, check=True)
    return int(done.stdout)

def state(pid):
    try:
        with open(f"/proc/{{pid}}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []

def test_it(peerlane_node):
    kept.append(start(SLEEP))
    assert int(state(kept[0])[1]) == os.getpid()

def test_it_is_gone():
    assert state(kept[0]) == []

def test_it_ends(peerlane_node):
    kept.append(start([sys.executable, "-c", "import time; time.sleep(0.3)"]))

def test_nobody_is_left_to_wait_for():
    assert state(kept[1]) == []

def test_not_ours():
    kept.append(start(SLEEP))
    assert int(state(kept[2])[1]) != os.getpid()
    os.kill(kept[2], 9)

def test_of_a_process_that_was_killed(peerlane_node):
    code = START.format(SLEEP) + "; import sys, time; sys.stdout.flush(); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    kept.extend([int(process.stdout.readline()), process])

def test_both_are_gone():
    assert kept[4].poll() == -9 and state(kept[3]) == []
""",
    )
    done.assert_outcomes(passed=7, errors=2)
    done.stdout.fnmatch_lines(
        [
            "the test left behind 1 thing:",
            "  process * (* -c import time; time.sleep(600)), started at an unknown place; it was killed",
        ]
    )


def test_plugin_processes_that_end_by_themselves_are_not_leaks(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        f"""{HEAD}
@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(SLEEP) as process:
        yield
        process.kill()

def test_ends(peerlane_node):
    kept.append(subprocess.Popen([sys.executable, "-c", "input(); import time; time.sleep(0.2)"], stdin=-1))
    kept[-1].stdin.close()

def test_joined(peerlane_node):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(abs, (-3,)) == 3

def test_of_a_wider_fixture(server, peerlane_node):
    pass

def test_it_runs_on(server):
    pass
""",
    )
    done.assert_outcomes(passed=4)
