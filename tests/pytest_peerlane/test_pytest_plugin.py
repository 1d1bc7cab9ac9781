"""The pytest plugin: fresh nodes, settings, the acl fixture, and other plugins and styles of tests beside it."""

from __future__ import annotations

import re
import sys

import pytest

from helpers.inner_pytest import SECONDS, marked_line, passes, run
from peerlane.testing.procs import run_python

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def test_plugin_each_test_has_a_node_of_its_own(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import os
        import peerlane as pl

        seen = set()

        def check(devices):
            assert devices == pl.devices() and len(devices) == 2
            assert not pl.devices()[0].peers and not devices[0].is_closed
            devices[0].peers.add(devices[1])
            assert all(old.is_closed for old, _ in seen)
            seen.add(devices)
            assert devices[0].backend.config.spec == os.environ["PEERLANE_NODE"]

        def test_one(peerlane_node):
            check(peerlane_node)

        def test_two(peerlane_node):
            check(peerlane_node)

        def test_after():
            import peerlane.backend.registry
            assert not peerlane.backend.registry.is_entered()
            assert "PEERLANE_NODE" not in os.environ and len(seen) == 2
            assert not [name for name in os.listdir(os.environ["PEERLANE_RUNTIME_DIR"]) if "pytest-" in name]
        """,
        passed=3,
    )


@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_plugin_option_that_no_test_could_obey_is_reported(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    own = "def test_own():\n    import peerlane as pl\n    pl.devices()[0].allocate(8).close()"
    done = run(pytester, own, "--peerlane-check", "--peerlane-leaks=warn", *workers)
    text = "peerlane: no test took devices of the plugin, so --peerlane-check, --peerlane-leaks had no effect; let"
    assert done.ret == 0 and text in done.stdout.str()
    done = run(pytester, "def test_own(peerlane_node): pass", "--peerlane-check", *workers)
    assert done.ret == 0 and "had no effect" not in done.stdout.str()


def test_plugin_markers_of_module_class_and_test_are_merged(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import pytest
        import peerlane as pl

        pytestmark = pytest.mark.peerlane(devices=6, memory="64MiB")

        @pytest.mark.peerlane(switch=2)
        class TestClass:
            @pytest.mark.peerlane(devices=4)
            def test_all(self, peerlane_node):
                config = peerlane_node[0].backend.config
                assert (config.devices, config.switch, config.memory[0]) == (4, 2, 64 << 20)

            @pytest.mark.parametrize("n", [1, pytest.param(3, marks=pytest.mark.peerlane(devices=3))])
            def test_parameter(self, n):
                assert len(pl.devices()) == (3 if n == 3 else 6)

        def test_no_fixture_is_needed():
            assert len(pl.devices()) == 6
        """,
        passed=4,
    )


@pytest.mark.parametrize(
    ("ini", "words", "marker", "expected"),
    [
        ("", (), "", "2 default eager"),
        ("peerlane_devices = 3", (), "", "3 default eager"),
        ("peerlane_devices = 3", ("--peerlane-devices=5",), "", "5 default eager"),
        ("peerlane_devices = 3", ("--peerlane-node=profile=hgx",), "", "8 hgx eager"),
        ("peerlane_node = beside.toml", (), "", "7 default eager"),
        ("peerlane_profile = ascend-a2\npeerlane_schedule = lazy", (), "", "8 ascend-a2 lazy"),
        (
            "",
            ("--peerlane-profile=ascend-310p", "--peerlane-schedule=seeded:5"),
            "",
            "4 ascend-310p seeded:5",
        ),
        (
            "",
            ("--peerlane-devices=5", "--peerlane-schedule=lazy"),
            "devices=1, schedule='eager'",
            "1 default eager",
        ),
        ("", ("--peerlane-schedule=seeded:5",), "schedule='seeded'", "2 default seeded:5"),
    ],
)
def test_plugin_marker_overrides_option_which_overrides_ini(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ini: str,
    words: tuple[str, ...],
    marker: str,
    expected: str,
) -> None:
    monkeypatch.delenv("PEERLANE_SCHEDULE")
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makefile(".toml", beside="[node]\ndevices = 7\n")
    passes(
        pytester,
        f"""
        import pytest
        from peerlane.backends.virtual.node import schedule

        @pytest.mark.peerlane({marker})
        def test_it(peerlane_node):
            config = peerlane_node[0].backend.config
            assert f"{{config.devices}} {{config.profile.name}} {{schedule.present()}}" == {expected!r}
        """,
        *words,
    )


def test_plugin_node_of_environment_is_base_and_restored(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "name=mine,devices=5")
    passes(
        pytester,
        """
        import os

        def test_it(peerlane_node):
            assert len(peerlane_node) == 5 and "name=mine" not in os.environ["PEERLANE_NODE"]

        def test_after():
            assert os.environ["PEERLANE_NODE"] == "name=mine,devices=5"
        """,
        passed=2,
    )


@pytest.mark.parametrize(
    ("marker", "text"),
    [
        (
            "device=4",
            "@pytest.mark.peerlane: device= is not a setting (did you mean 'devices'[?])*name, *strict",
        ),
        ("leak='warn'", "@pytest.mark.peerlane: leak= is not a setting (did you mean 'leaks'[?])*"),
        ("backend='reference'", "@pytest.mark.peerlane: backend= is not a setting*valid: name, devices, *"),
        ("'devices=4'", "@pytest.mark.peerlane: 'devices=4' is not a setting; write settings as devices=4*"),
        ("devices=0", "@pytest.mark.peerlane: node.devices is 0; valid: a whole number from 1 to 4096"),
        ("leaks='no'", "peerlane: leaks is 'no'; valid are fail, warn, ignore"),
        (
            "leaks='ignor'",
            "peerlane: leaks is 'ignor' (did you mean 'ignore'[?]); valid are fail, warn, ignore",
        ),
    ],
)
def test_plugin_wrong_marker_fails_its_test_only(pytester: pytest.Pytester, marker: str, text: str) -> None:
    done = run(
        pytester,
        f"""
        import pytest

        @pytest.mark.peerlane({marker})
        def test_wrong():
            pass

        def test_right(peerlane_node):
            pass
        """,
    )
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines([text])


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("--peerlane-devices=many", "command line: node.devices is 'many'; valid: a whole number*"),
        ("--peerlane-node=backend=reference", "*node: backend is 'reference', and only a node of virtual*"),
        ("--peerlane-profile=none", "command line: node.profile is 'none'; valid:*"),
        ("--peerlane-schedule=later", "*schedule*'later'; *valid*eager, lazy, seeded*"),
        ("--peerlane-leaks=never", "peerlane: leaks is 'never'; valid are fail, warn, ignore"),
    ],
)
def test_plugin_wrong_option_ends_pytest_with_usage_error(
    pytester: pytest.Pytester, word: str, text: str
) -> None:
    done = run(pytester, "def test_it():\n    pass", word)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"*{text}"])


def test_acl_fixture_is_new_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(tested="import acl\n\ndef count():\n    return acl.rt.get_device_count()\n")
    passes(
        pytester,
        """
        import sys
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        @pytest.mark.peerlane(devices=3)
        def test_it(acl, number):
            import acl as imported
            from acl import rt
            from acl.rt import malloc
            import tested
            assert imported is acl and rt is acl.rt
            assert tested.count() == (3, 0)
            assert acl.get_recent_err_msg() is None
            assert acl.finalize_reference() == (0, 100037)
            assert acl.init() == 0
            assert rt.get_device()[1] == 107002
            assert rt.set_device(number) == 0
            pointer, code = malloc(4096, 0)
            assert code == 0 and rt.free(pointer) == 0
            assert rt.free(4096) == 107000  # its message is not seen by the next test

        def test_gone():
            assert "acl" not in sys.modules and "acl.rt" not in sys.modules
            with pytest.raises(ImportError):
                import acl
        """,
        passed=3,
    )


def test_plugin_dialects_setting_installs_acl_before_imports(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npeerlane_dialects = acl\npeerlane_devices = 4\n")
    pytester.makepyfile(
        tested="import acl\nfrom acl import rt\n\ndef count():\n    return rt.get_device_count()[0]\n"
    )
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(autouse=True)
        def devices(acl):
            pass
        """
    )
    passes(
        pytester,
        """
        import tested

        def test_one():
            assert tested.count() == 4 and tested.acl.init() == 0

        def test_two():
            assert tested.count() == 4 and tested.acl.init() == 0
        """,
        passed=2,
    )


def test_acl_fixture_other_acl_imported_is_refused(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import sys
        import types

        sys.modules["acl"] = types.ModuleType("acl")

        def test_it(acl):
            pass
        """,
    )
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["cannot install dialect 'acl': 'acl' is imported already*"])


def test_acl_fixture_vendor_module_with_device_needs_shadow_real(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def test_it(acl):\n    assert acl.rt.get_device_count() == (2, 0)"
    monkeypatch.setenv("PEERLANE_PROBED", "acl=device")
    site = pytester.mkdir("site")
    (site / "acl.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(site))
    done = run(pytester, source)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["cannot install dialect 'acl'*with --peerlane-shadow-real *"])
    passes(pytester, source, "--peerlane-shadow-real")


def test_plugin_classes_unittest_and_coroutines_work(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import asyncio
        import unittest
        import pytest
        import peerlane as pl

        @pytest.fixture(scope="class")
        def shared():
            return []

        @pytest.fixture(params=[1, 2])
        def buffer(request, peerlane_node):
            return peerlane_node[0].allocate(request.param)  # not closed: no reference to it is left after the test

        class TestClass:
            def setup_method(self):
                self.devices = pl.devices()

            def teardown_method(self):
                assert not self.devices[0].is_closed

            def test_the_node_is_there_before(self, buffer, peerlane_node, shared):
                assert self.devices is peerlane_node
                shared.append(1)
                assert len(shared) == buffer.size

        @pytest.mark.usefixtures("acl")
        class TestCase(unittest.TestCase):
            def setUp(self):
                import acl
                assert acl.init() == 0
                self.buffer = pl.devices()[0].allocate(5)
                self.addCleanup(acl.finalize)

            def test_a(self):
                assert self.buffer.size == 5

            @pytest.mark.peerlane(devices=5)
            def test_b(self):
                assert len(pl.devices()) == 5

        def test_coroutine(peerlane_node):
            async def work():
                process = await asyncio.create_subprocess_exec("true")
                with peerlane_node[0].create_stream() as stream, stream.record() as event:
                    event.sync(20)
                return await process.wait()

            assert asyncio.run(work()) == 0
        """,
        passed=5,
    )


def test_plugin_node_entered_before_test_is_left_with_warning(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest
        import peerlane as pl

        @pytest.fixture(scope="module")
        def kept():
            return pl.devices()[0].allocate(77)  # here

        def test_it(kept, peerlane_node):
            assert kept.is_closed
        """,
    )
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(
        [
            "*the fresh node for this test ended 1 thing, 77 bytes in all:*",
            f"*made at {marked_line(pytester)}",
        ]
    )


def test_plugin_failure_under_seeded_shows_seed_that_repeats_it(pytester: pytest.Pytester) -> None:
    source = """
        def test_order(peerlane_node):
            d0, d1 = peerlane_node
            cell, seen = d0.allocate(1), d1.allocate(16)
            with d0.create_stream() as s, d1.create_stream() as t:
                for number in range(16):
                    cell.fill(number, stream=s)
                    seen[number : number + 1].copy_from(cell, stream=t)
            assert False, bytes(seen.view()).hex()

        def test_passes(peerlane_node):
            pass
    """
    done = run(pytester, source, "--peerlane-schedule=seeded")
    done.assert_outcomes(failed=1, passed=1)
    (seed,) = re.findall(r"repeat it with --peerlane-schedule=(seeded:\d+)", done.stdout.str())
    (order,) = set(re.findall(r"AssertionError: ([0-9a-f]{32})", done.stdout.str()))
    again = run(pytester, source, f"--peerlane-schedule={seed}").stdout.str()
    assert f"AssertionError: {order}" in again and f"schedule {seed} " in again


def test_plugin_under_xdist_gives_each_worker_its_nodes(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import os
        import pytest

        held = []

        @pytest.mark.parametrize("number", range(8))
        def test_it(peerlane_node, acl, number, worker_id):
            assert worker_id in ("gw0", "gw1") and acl.init() == 0
            buffer = peerlane_node[0].allocate(9 << 30)  # here; of 16 GiB, which each worker has for itself
            if number == 5:
                held.append(buffer)
            if number == 6:
                assert False, "its own reason"
        """,
        "-n",
        "2",
        "--peerlane-schedule=seeded",
    )
    done.assert_outcomes(passed=7, failed=1, errors=1)
    done.stdout.fnmatch_lines([f"*memory: 9,663,676,416 bytes on virtual:0, made at {marked_line(pytester)}"])
    assert len(re.findall(r"repeat it with --peerlane-schedule=seeded:\d+", done.stdout.str())) == 1


def test_plugin_switched_off_has_no_fixture(pytester: pytest.Pytester) -> None:
    done = run(pytester, "def test_it(peerlane_node):\n    pass", "-p", "no:peerlane")
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*fixture 'peerlane_node' not found"])


def test_plugin_marker_fixtures_and_options_are_listed(pytester: pytest.Pytester) -> None:
    source = "import pytest\n\n@pytest.mark.peerlane(devices=4)\ndef test_it():\n    pass"
    passes(pytester, source, "--strict-markers")
    run(pytester, source, "--markers").stdout.fnmatch_lines(["@pytest.mark.peerlane(devices=..., *"])
    run(pytester, source, "--fixtures").stdout.fnmatch_lines(["peerlane_node -- *", "acl -- *"])
    run(pytester, source, "--help").stdout.fnmatch_lines(["*--peerlane-devices=N*", "*peerlane_dialects*"])


def test_plugin_unused_by_test_imports_nothing(pytester: pytest.Pytester) -> None:
    passes(
        pytester,
        """
        import sys
        import threading

        def test_it(request):
            assert "pytest_peerlane" in sys.modules
            assert not {"peerlane", "numpy", "pytest_peerlane.work"} & set(sys.modules)
            assert "peerlane_node" not in request.fixturenames
            assert request.config.pluginmanager.get_plugin("peerlane-work") is None
            assert threading.active_count() == 1
        """,
        "-p",
        "no:xdist",
        "-p",
        "no:timeout",
        anew=True,
    )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 Python records no columns")
def test_plugin_test_without_a_node_shows_what_to_write_for_refused_lines(pytester: pytest.Pytester) -> None:
    source = """
        import peerlane as pl
        def test_call():
            with pl.device(0).allocate(8) as one, pl.device(1).allocate(8) as other:
                pl.copy(one, other, 3)
        def test_name():
            pl.device(0).malloc(8)
    """
    done = run(pytester, source)
    lines = ["E*TypeError: *; call pl.copy(dst, src, [*], stream=None), with stream by name"]
    done.stdout.fnmatch_lines([*lines, "E*AttributeError: *; peerlane has Device.allocate(nbytes)"])


@pytest.mark.parametrize("before", [[], ["-m", "peerlane", "run"]], ids=["pytest", "peerlane run"])
def test_plugin_with_warnings_as_errors_passes(pytester: pytest.Pytester, before: list[str]) -> None:
    pytester.makepyfile(
        test_it="""
        import subprocess, sys

        def test_acl(acl):
            assert acl.rt.get_device_count() == (2, 0)

        def test_node(peerlane_node):
            subprocess.run([sys.executable, "-W", "error", "-c", "import peerlane; peerlane.devices()"], check=True)
        """
    )
    # The build tool's import hook causes this warning where peerlane is installed for development.
    warnings = ["-W", "error", "-W", "ignore:Module already imported so cannot be rewritten; _editable"]
    words = [*before, "-m", "pytest", *warnings, "-p", "no:cacheprovider", "-n", "1", str(pytester.path)]
    done = run_python(words, timeout=SECONDS, cwd=pytester.path)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout


def test_plugin_after_peerlane_was_imported_works(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_it(acl):\n    assert acl.rt.get_device_count() == (3, 0)")
    words = ["run", "--devices", "3", "-m", "pytest", "-p", "no:cacheprovider", str(pytester.path)]
    done = run_python(["-m", "peerlane", *words], timeout=SECONDS, cwd=pytester.path)
    assert done.returncode == 0, done.stdout
    assert "rewritten; peerlane" not in done.stdout
    assert sys.modules["peerlane"].__doc__


@pytest.mark.parametrize(
    "words", [(), ("-n", "1"), ("--timeout", "60"), ("--timeout", "60", "--timeout-method=thread")]
)
def test_plugin_test_in_deadlock_fails_and_names_waits(
    pytester: pytest.Pytester, words: tuple[str, ...]
) -> None:
    done = run(
        pytester,
        """
        import time
        import peerlane as pl
        import pytest

        def test_hangs(peerlane_node):
            stream, notify = peerlane_node[0].create_stream(), peerlane_node[0].create_notify()
            stream.wait(notify)  # here
            began = time.monotonic()
            try:
                stream.sync()
            finally:
                assert time.monotonic() - began < 10
        """,
        *words,
    )
    done.assert_outcomes(failed=1)
    text = done.stdout.str()
    assert "Deadlock: a deadlock: every thread of this process waits" in text
    assert f"queued, submitted at {marked_line(pytester)})" in text


@pytest.mark.parametrize("backend", ["virtual", "reference"])
def test_backend_of_the_environment_is_taken_or_refused(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", f"backend={backend},devices=3")
    done = run(
        pytester,
        """
        def test_it(peerlane_node):
            assert [each.name for each in peerlane_node] == ["virtual:0", "virtual:1", "virtual:2"]
        """,
    )
    done.assert_outcomes(**({"passed": 1} if backend == "virtual" else {"errors": 1}))
    if backend == "reference":
        text = (
            "PEERLANE_NODE: backend is 'reference', and only a node of virtual devices will do here; valid: *"
        )
        done.stdout.fnmatch_lines([f"*{text}"])
