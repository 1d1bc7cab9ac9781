"""What a rendezvous and shared memory say where the system gives no thread, no inode and no descriptor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.prepared import run_python

SECONDS = 60.0

NO_THREADS = """
import os, threading
import peerlane as pl
from peerlane.rendezvous import RendezvousServer
buffer = pl.devices()[0].allocate(1 << 21)
def held():
    sockets = [each for each in os.listdir(os.environ["PEERLANE_RUNTIME_DIR"]) if "sock" in each]
    return sorted(os.listdir("/proc/self/fd")), sockets
RendezvousServer(2).close()
def starts(*_, **__):  # what the C library answers beyond RLIMIT_NPROC or pids.max
    raise RuntimeError("can't start new thread")
before = held()
start = threading.Thread.start
threading.Thread.start = starts
for _ in range(5):
    try: RendezvousServer(2)
    except pl.OutOfMemory as error:
        assert error.fault is pl.Fault.OUT_OF_RESOURCES, error
        assert "RLIMIT_NPROC" in str(error) and "pids.max" in str(error), error
    else: raise AssertionError
assert held() == before, (before, held())
threading.Thread.start = start
RendezvousServer(2).close()
"""

EXPORT = """
import os, resource
import peerlane as pl
buffer = pl.devices()[0].allocate(1 << 21, peer=True)
folder = os.environ["PEERLANE_RUNTIME_DIR"]
os.chown(folder, 65534, 65534)
for each in os.listdir(folder): os.chown(f"{folder}/{each}", 65534, 65534)
os.setresuid(65534, 65534, 65534)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try: buffer.export(allow="user")
except pl.OutOfMemory as error:
    print(error.fault.name, "RLIMIT_NPROC, 1 here" in str(error), "max_map_count" in str(error))
"""


def test_server_without_a_thread_leaves_nothing_and_names_the_limits(tmp_path: Path) -> None:
    environ = os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / "own")}
    done = run_python(["-c", NO_THREADS], timeout=SECONDS, env=environ)
    assert (done.returncode, done.stderr) == (0, "")


def test_export_without_a_thread_names_its_limits(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("to become a user with no thread left needs root")
    folder = tmp_path / "own"
    folder.mkdir(mode=0o700)
    for above in (tmp_path, *tmp_path.parents):  # the other user must come to it
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o011)
    done = run_python(["-c", EXPORT], timeout=SECONDS, env=os.environ | {"PEERLANE_RUNTIME_DIR": str(folder)})
    assert (done.returncode, done.stdout) == (0, "OUT_OF_RESOURCES True False\n"), done.stderr


def test_directory_without_inodes_is_out_of_resources_and_keeps_nothing(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir(mode=0o700)
    words = ["mount", "-t", "tmpfs", "-o", "nr_inodes=2,mode=0700", "none", str(small)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        program = """
import os, sys
import peerlane as pl
from peerlane.rendezvous import RendezvousServer
folder = os.environ["PEERLANE_RUNTIME_DIR"]
open(folder + "/last", "w").close()
for make in (lambda: RendezvousServer(2), lambda: pl.devices()[0].allocate(8)):
    before = len(os.listdir("/proc/self/fd"))
    try: make()
    except pl.OutOfMemory as error:
        print(error.fault.name, "inodes" in str(error), len(os.listdir("/proc/self/fd")) - before)
print(os.listdir(folder))
"""
        done = run_python(
            ["-c", program], timeout=SECONDS, env=os.environ | {"PEERLANE_RUNTIME_DIR": str(small)}
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == "OUT_OF_RESOURCES True 0\n" * 2 + "['last']\n", done.stdout
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_full_descriptor_table_is_out_of_resources_also_where_a_module_is_loaded_late(tmp_path: Path) -> None:
    program = """
import os, resource
import peerlane as pl
device = pl.devices()[0]
taken = []
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
try:
    while True: taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError: pass
for make in (lambda: pl.Group(0, 1), lambda: device.allocate(4 << 20), lambda: pl.as_buffer(b"12345678")):
    try: make()
    except pl.OutOfMemory as error: print(error.fault.name, "ulimit -n" in str(error))
    else: print("made")
for each in taken: os.close(each)
with pl.Group(0, 1) as group: group.barrier()
"""
    done = run_python(
        ["-c", program],
        timeout=SECONDS,
        env=os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / "own")},
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.splitlines()) <= {"OUT_OF_RESOURCES True", "made"}
    assert done.stdout.splitlines()[0] == "OUT_OF_RESOURCES True"


def test_limit_of_file_sizes_in_errors_of_nodes_and_memory_is_out_of_resources(tmp_path: Path) -> None:
    program = """
import resource, sys
import peerlane as pl
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
try: pl.devices()[0].allocate(64 << 20)
except pl.OutOfMemory as error: print(error.fault.name, "ulimit -f" in str(error), "max_map_count" in str(error))
"""
    for most in 4096, 32 << 20:
        done = run_python(
            ["-c", program, str(most)],
            timeout=SECONDS,
            env=os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / str(most))},
        )
        assert (done.returncode, done.stdout) == (0, "OUT_OF_RESOURCES True False\n"), done.stderr


def test_limit_of_file_sizes_that_is_lowered_in_the_run_leaves_exit_and_memory_as_they_are(
    tmp_path: Path,
) -> None:
    environ = os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / "own")}
    program = """
import os, resource, sys
import peerlane as pl
near, far = (each.allocate(2 << 20) for each in pl.devices()[:2])
child = os.posix_spawn(sys.executable, [sys.executable, "-c", "import os, peerlane as pl; "
    "kept = pl.devices()[0].allocate(2 << 20); os._exit(0)"], os.environ)
os.waitpid(child, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
near.fill(7)
pl.copy(far, near)
print(bytes(far.view()) == b"\\7" * (2 << 20), near.device.total_bytes - near.device.free_bytes)
"""
    done = run_python(["-c", program], timeout=SECONDS, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"True {4 << 20}\n", "")
    later = "import peerlane as pl; d = pl.devices()[0]; print(d.total_bytes - d.free_bytes)"
    done = run_python(["-c", later], timeout=SECONDS, env=environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_node_without_proc_is_unsupported_and_names_it(tmp_path: Path) -> None:
    program = """
import peerlane as pl
try: pl.devices()
except pl.Unsupported as error: print(error.detail.reason, "mount" in str(error), "make room" in str(error))
"""
    words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if subprocess.run([*words, "true"], capture_output=True, timeout=SECONDS, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    done = subprocess.run(
        [*words, sys.executable, "-c", program],
        env=os.environ | {"PEERLANE_RUNTIME_DIR": str(tmp_path / "own")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "no_proc True False\n"), done.stderr
