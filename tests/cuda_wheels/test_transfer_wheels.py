"""Memory of virtual devices moved between processes by the wheels of UCX and NIXL, unmodified."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest

from peerlane.testing.procs import Completed, run_python

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
import multiprocessing, os, signal, sys, time
import numpy as np
SIZE = 1 << 20
def call(name, *words):
    from cuda.bindings import driver
    code, *values = getattr(driver, name)(*words)
    assert int(code) == 0, (name, code)
    return values[0] if len(values) == 1 else values
class Rank:
    def __init__(self, number):
        from nixl_cu12._api import nixl_agent, nixl_agent_config
        call("cuInit", 0)
        call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", number))
        self.memory, self.host = int(call("cuMemAlloc", SIZE)), np.full(SIZE, 7 * (number == 0), np.uint8)
        call("cuMemcpyHtoD", self.memory, self.host.ctypes.data, SIZE)
        self.agent = nixl_agent(f"agent{number}", nixl_agent_config(backends=["UCX"]))
        self.agent.register_memory([(self.memory, SIZE, number, "")], "VRAM")
    def transfer(self, metadata, memory):
        self.agent.add_remote_agent(metadata)
        own, theirs = (
            self.agent.get_xfer_descs([each], "VRAM") for each in ((self.memory, SIZE, 0), (memory, SIZE, 1))
        )
        return self.agent.initialize_xfer("WRITE", own, theirs, "agent1", b"done")
    def run(self, transfer):
        end = time.monotonic() + 30
        state = self.agent.transfer(transfer)
        while state == "PROC" and time.monotonic() < end:
            state = self.agent.check_xfer_state(transfer)
        return state
def target(pipe):
    rank = Rank(1)
    pipe.send((rank.agent.get_agent_metadata(), rank.memory))
    assert pipe.recv() == "written"
    call("cuMemcpyDtoH", rank.host.ctypes.data, rank.memory, SIZE)
    assert (rank.host == 7).all()
    pipe.send("read")
    pipe.recv()
    os._exit(0)  # the agent's destructor may wait for ever: the guide says why
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    one, other = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(other,))
    process.start()
    rank = Rank(0)
    transfer = rank.transfer(*one.recv())
    assert rank.run(transfer) == "DONE"
    one.send("written")
    assert one.recv() == "read"
END
    print("over")
    sys.stdout.flush()
    os._exit(0)
"""
ENDS = """
    one.send("end")
    process.join(60)
    assert process.exitcode == 0
"""
KILLED = """
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
    begun = time.monotonic()
    try:
        while rank.run(transfer) == "DONE" and time.monotonic() < begun + 20:
            time.sleep(0.01)
    except Exception as error:
        print(type(error).__name__, time.monotonic() < begun + 10)
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
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "Final:" in done.stdout, output
    assert "ERROR" not in output and "WARN" not in output, output


def _nixl(folder: Path, end: str) -> Completed:
    if find_spec("nixl_cu12") is None:
        pytest.skip("the wheel nixl-cu12 is not installed")
    program = folder / "prog.py"
    program.write_text(NIXL.replace("END\n", end))
    environment = {**os.environ, "UCX_TLS": TRANSPORTS, "UCX_NET_DEVICES": "lo"}
    return run_python([*RUN, str(program)], env=environment, timeout=SECONDS)


def test_nixl_writes_memory_of_a_device_of_another_process(tmp_path: Path) -> None:
    done = _nixl(tmp_path, ENDS)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["over"]), done.stdout + done.stderr


def test_nixl_names_the_loss_of_an_agent_that_was_killed_and_does_not_hang(tmp_path: Path) -> None:
    done = _nixl(tmp_path, KILLED)
    expected = ["nixlRemoteDisconnectError True", "over"]
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, expected), done.stdout + done.stderr
