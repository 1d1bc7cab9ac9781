"""Memory of virtual devices moved between processes by the wheels of UCX and NIXL, unmodified."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule
SECONDS = 60
RUN = ["-m", "peerlane", "run", "--dialect", "cuda", "--devices", "2"]
TRANSPORTS = "cuda_copy,cuda_ipc,posix,sysv,self,tcp"
PERFTEST = """
perftest="$UCX/bin/ucx_perftest -p $PORT -t $TEST -m cuda -s 65536 -n 50 -w 5"
chmod +x $UCX/bin/ucx_perftest 2> /dev/null
$UCX/bin/ucx_perftest -p $PORT > server.log 2>&1 &
for attempt in $(seq 50); do
    $perftest 127.0.0.1 > client.log 2>&1 && break
    grep -q "Connection refused" client.log || break
    sleep 0.1
done
cat client.log
kill $!
grep -q Final: client.log
"""
NIXL = """
import multiprocessing, os, sys
import numpy as np
SIZE = 1 << 20
def call(name, *words):
    from cuda.bindings import driver
    code, *values = getattr(driver, name)(*words)
    assert int(code) == 0, (name, code)
    return values[0] if len(values) == 1 else values
def rank(number, pipe):
    from nixl_cu12._api import nixl_agent, nixl_agent_config
    call("cuInit", 0)
    call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", number))
    memory, host = int(call("cuMemAlloc", SIZE)), np.full(SIZE, 7 * (number == 0), np.uint8)
    call("cuMemcpyHtoD", memory, host.ctypes.data, SIZE)
    agent = nixl_agent(f"agent{number}", nixl_agent_config(backends=["UCX"]))
    agent.register_memory([(memory, SIZE, number, "")], "VRAM")
    pipe.send((agent.get_agent_metadata(), memory))
    metadata, other = pipe.recv()
    agent.add_remote_agent(metadata)
    if number == 0:
        own, theirs = (agent.get_xfer_descs([each], "VRAM") for each in ((memory, SIZE, 0), (other, SIZE, 1)))
        transfer = agent.initialize_xfer("WRITE", own, theirs, "agent1", b"done")
        state = agent.transfer(transfer)
        while state == "PROC":
            state = agent.check_xfer_state(transfer)
        assert state == "DONE", state
        pipe.send("written")
        assert pipe.recv() == "read"
    else:
        assert pipe.recv() == "written"
        call("cuMemcpyDtoH", host.ctypes.data, memory, SIZE)
        assert (host == 7).all()
        pipe.send("read")
def rank_and_end(number, pipe):
    rank(number, pipe)  # the agent's destructor joins a thread of UCX under the GIL
    sys.stdout.flush()
    os._exit(0)  # when libraries end, a libnl of the wheel has a fault
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    one, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=rank_and_end, args=(1, other))
    process.start()
    rank(0, one)
    process.join(60)
    assert process.exitcode == 0
    print("over")
    sys.stdout.flush()
    os._exit(0)
"""


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.parametrize("test", ["ucp_put_bw", "ucp_get", "tag_bw", "ucp_am_bw"])
def test_ucx_moves_memory_of_devices_between_processes(tmp_path: Path, test: str) -> None:
    spec = find_spec("libucx")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the wheel libucx-cu12 is not installed")
    folder = spec.submodule_search_locations[0]
    script = tmp_path / "perftest.sh"
    script.write_text(PERFTEST)
    variables = {
        "UCX": folder,
        "PORT": str(_free_port()),
        "TEST": test,
        "UCX_TLS": TRANSPORTS,
        "UCX_NET_DEVICES": "lo",  # other tests make interfaces, and take them away
        "UCX_MODULE_DIR": f"{folder}/lib/ucx",
        "LD_LIBRARY_PATH": f"{folder}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}",
    }
    done = run_python(
        [*RUN, "/bin/bash", str(script)], env={**os.environ, **variables}, timeout=SECONDS, cwd=tmp_path
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0 and "Final:" in done.stdout, told
    assert "ERROR" not in told and "WARN" not in told, told


def test_nixl_writes_memory_of_a_device_of_another_process(tmp_path: Path) -> None:
    if find_spec("nixl_cu12") is None:
        pytest.skip("the wheel nixl-cu12 is not installed")
    program = tmp_path / "prog.py"
    program.write_text(NIXL)
    done = run_python(
        [*RUN, str(program)],
        env={**os.environ, "UCX_TLS": TRANSPORTS, "UCX_NET_DEVICES": "lo"},
        timeout=SECONDS,
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["over"]), done.stdout + done.stderr
