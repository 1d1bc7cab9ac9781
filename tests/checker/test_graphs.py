"""What `peerlane check` sees of graphs: a launch has the operations of its nodes, ordered by its edges alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.prepared import run_python

pytestmark = pytest.mark.schedules_in_turn

PROGRAM = """
import ctypes
from hip import hip

def done(result):
    assert not int(result[0]), result
    return result[1] if len(result) == 2 else result[1:]

memory = done(hip.hipMalloc(4096))
stream, other = (done(hip.hipStreamCreateWithFlags(1)) for _ in range(2))
graph = done(hip.hipGraphCreate(0))

def fill(value, *before):
    params = hip.hipMemsetParams()
    params.dst, params.value, params.elementSize, params.width, params.height = memory, value, 1, 4096, 1
    nodes = (ctypes.c_uint64 * 1)(*map(int, before))
    return done(hip.hipGraphAddMemsetNode(graph, nodes, len(before), params))

first = fill(1)
second = fill(2EDGE)
executable = done(hip.hipGraphInstantiateWithFlags(graph, 0))
done(hip.hipGraphLaunch(executable, stream))
done(hip.hipGraphLaunch(executable, OTHER))
hip.hipStreamSynchronize(stream)
hip.hipStreamSynchronize(other)
hip.hipGraphExecDestroy(executable)
hip.hipGraphDestroy(graph)
"""


def checked(program: Path, code: int) -> list[dict[str, Any]]:
    """Check a program, and return its findings."""
    report = program.with_suffix(".json")
    words = ["-m", "peerlane", "check", "--dialect", "hip", "--json", str(report), str(program)]
    done = run_python(words, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    findings: list[dict[str, Any]] = json.loads(report.read_text())["findings"]
    return findings


def line_of(program: Path, begin: str) -> int:
    """Return the last line with a beginning."""
    lines = [at for at, each in enumerate(program.read_text().splitlines(), 1) if each.startswith(begin)]
    return lines[-1]


@pytest.mark.parametrize("second", ["stream", "other"])
@pytest.mark.parametrize("edge", [", first", ""])
def test_check_names_nodes_of_a_graph_that_no_edge_orders(tmp_path: Path, edge: str, second: str) -> None:
    """Launches of one executable graph are ordered, on two streams too."""
    program = tmp_path / "graph.py"
    program.write_text(PROGRAM.replace("EDGE", edge).replace("OTHER", second))
    findings = checked(program, 0 if edge else 3)
    if edge:
        assert not findings
        return
    [finding] = findings
    one, two, launch = (line_of(program, each) for each in ("first =", "second =", "executable ="))
    assert (finding["kind"], finding["certain"]) == ("race", True)
    for site, line in zip(finding["sites"], (one, two), strict=True):
        assert (site["call"], site["callers"][0][1]) == ("hipGraphAddMemsetNode", line)
        assert site["launched"][1] == launch + 1
    edge_text = "an edge (hipGraphAddDependencies) from the node of line {} to the node of line {}"
    assert edge_text.format(one, two) in finding["missing"]


TWO_GRAPHS = """
CAPTURE
done(hip.hipGraphLaunch(executable, stream))
done(hip.hipStreamSynchronize(stream))
done(hip.hipGraphLaunch(executable, stream))
done(hip.hipMemsetAsync(memory, 3, 4096, other))
hip.hipStreamSynchronize(stream)
hip.hipStreamSynchronize(other)
"""
CAPTURE = """
done(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal))
done(hip.hipMemsetAsync(memory, 1, 4096, stream))
graph = done(hip.hipStreamEndCapture(stream))
executable = done(hip.hipGraphInstantiateWithFlags(graph, 0))
"""


def test_check_names_the_captured_line_and_the_launch_that_no_wait_follows(tmp_path: Path) -> None:
    begin, _, _ = PROGRAM.partition("graph = done(hip.hipGraphCreate(0))")
    program = tmp_path / "graph.py"
    program.write_text(begin + TWO_GRAPHS.replace("CAPTURE", CAPTURE))
    [finding] = checked(program, 3)
    added, launch, other = (
        line_of(program, each)
        for each in (
            "done(hip.hipMemsetAsync(memory, 1",
            "done(hip.hipGraphLaunch",
            "done(hip.hipMemsetAsync(memory, 3",
        )
    )
    assert [(site["call"], site["line"]) for site in finding["sites"]] == [
        ("hipMemsetAsync", added),
        ("hipMemsetAsync", other),
    ]
    assert [site["launched"] and site["launched"][1] for site in finding["sites"]] == [launch, None]
    assert f"records after line {launch}" in finding["missing"]


def test_missing_order_of_one_line_names_the_launch_and_the_call(tmp_path: Path) -> None:
    begin, _, _ = PROGRAM.partition("graph = done(hip.hipGraphCreate(0))")
    one_line = TWO_GRAPHS.replace("stream))\ndone(hip.hipMemsetAsync", "stream)); done(hip.hipMemsetAsync")
    assert one_line != TWO_GRAPHS
    program = tmp_path / "graph.py"
    program.write_text(begin + one_line.replace("CAPTURE", CAPTURE))
    [finding] = checked(program, 3)
    line = line_of(program, "done(hip.hipGraphLaunch")
    assert f"records after the launch of a graph at line {line}" in finding["missing"]
    assert f"before the hipMemsetAsync at line {line}" in finding["missing"]


MEMORY = """
params = hip.hipMemAllocNodeParams()
params.poolProps.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
params.bytesize = 4096
allocation = done(hip.hipGraphAddMemAllocNode(graph, None, 0, params))
memory = int(params.dptr)
use = fill(1, allocation)
free = done(hip.hipGraphAddMemFreeNode(graph, (ctypes.c_uint64 * 1)(int(BEFORE)), 1, memory))
"""


@pytest.mark.parametrize("before", ["use", "allocation"])
def test_check_names_a_use_of_memory_that_a_graph_may_have_freed(tmp_path: Path, before: str) -> None:
    begin, _, rest = PROGRAM.partition("first = fill(1)\nsecond = fill(2EDGE)\n")
    program = tmp_path / "graph.py"
    program.write_text((begin + MEMORY + rest).replace("BEFORE", before).replace("OTHER", "other"))
    findings = checked(program, 0 if before == "use" else 3)
    assert [each["kind"] for each in findings] == ([] if before == "use" else ["use-after-free"])
