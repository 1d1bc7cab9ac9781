"""What `peerlane check` sees of graphs: a launch has the operations of its nodes, ordered by its edges alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

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


@pytest.mark.parametrize("second", ["stream", "other"])
@pytest.mark.parametrize("edge", [", first", ""])
def test_check_names_nodes_of_a_graph_that_no_edge_orders(tmp_path: Path, edge: str, second: str) -> None:
    """Launches of one executable graph are ordered, on two streams too."""
    program = tmp_path / "graph.py"
    program.write_text(PROGRAM.replace("EDGE", edge).replace("OTHER", second))
    done = run_python(["-m", "peerlane", "check", "--dialect", "hip", str(program)], timeout=120)
    assert done.returncode == (0 if edge else 3), done.stderr
    if not edge:
        text = done.stdout + done.stderr
        assert "race (certain): hipGraphLaunch writes, hipGraphLaunch writes the same bytes" in text
        assert "graph.py:23" in text


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
    done = run_python(["-m", "peerlane", "check", "--dialect", "hip", str(program)], timeout=120)
    assert done.returncode == (0 if before == "use" else 3), done.stderr
    if before != "use":
        assert "use-after-free (certain" in done.stdout + done.stderr
