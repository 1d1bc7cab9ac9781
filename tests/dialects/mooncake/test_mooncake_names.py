"""The names under which the dialect mooncake is imported, its fixture, and memory of other dialects."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.inner_pytest import run
from helpers.prepared import run_python
from peerlane.dialects.mooncake.engine import TransferEngine

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

IMPORTS = """
import mooncake.engine
from mooncake.engine import InnerTransferEngine, Read, TransferEngine, TransferNotify, TransferOpcode, Write
from mooncake.engine import SUPPORT_CUDA, SUPPORT_EFA
assert mooncake.engine.TransferEngine is TransferEngine and not SUPPORT_CUDA
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
assert isinstance(engine.get_engine(), InnerTransferEngine)
assert engine.transfer_sync_write("127.0.0.1:1", 4096, 4096, 8) == -1
print("served")
"""


def test_mooncake_engine_is_served_and_a_refusal_is_written_to_standard_error() -> None:
    done = run_python(["-m", "peerlane", "run", "--dialect", "mooncake", "-c", IMPORTS], timeout=60)
    assert (done.returncode, done.stdout) == (0, "served\n"), done.stderr
    assert "TransferEngine.transfer_sync_write returned -1" in done.stderr


def test_mooncake_real_package_without_a_card_is_shadowed_and_with_one_refused(tmp_path: Path) -> None:
    real = tmp_path / "mooncake"
    real.mkdir()
    (real / "__init__.py").write_text("")
    (real / "engine.py").write_text("")
    env = {name: value for name, value in os.environ.items() if name != "PEERLANE_PROBED"}
    env["PYTHONPATH"] = str(tmp_path)
    words = [
        "-m",
        "peerlane",
        "run",
        "--dialect",
        "mooncake",
        "-c",
        "import mooncake; print(mooncake.__name__)",
    ]
    done = run_python(words, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (0, "peerlane.dialects.mooncake\n"), done.stderr
    # The module stands for a machine with a card: it changes what the probe looks for.
    (real / "engine.py").write_text("import glob\nglob.glob = lambda pattern: [pattern]\n")
    done = run_python(words, timeout=60, env=env)
    assert done.returncode == 2
    assert "cannot install dialect 'mooncake'" in done.stderr and "--shadow-real" in done.stderr


def test_mooncake_fixture_gives_fresh_devices_and_names_what_a_test_left(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest

        kept = []

        def started(mooncake):
            engine = mooncake.TransferEngine()
            assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
            return engine

        @pytest.mark.peerlane(devices=3)
        def test_engine(mooncake, peerlane_node):
            buffer = peerlane_node[2].allocate(64)
            engine = started(mooncake)
            assert engine.register_memory(buffer.address, 64) == 0
            assert engine.unregister_memory(buffer.address) == 0

        def test_leaks(mooncake, peerlane_node):
            buffer = peerlane_node[0].allocate(64)
            engine = started(mooncake)
            assert engine.register_memory(buffer.address, 64) == 0
            kept.extend([engine, buffer])
        """,
    )
    done.assert_outcomes(passed=2, errors=1)
    assert "registered memory" in done.stdout.str() and "unregister_memory" in done.stdout.str()


def _transferred(near: int, far: int, size: int) -> None:
    engines = [TransferEngine(), TransferEngine()]
    for each, address in zip(engines, (near, far), strict=True):
        assert each.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "") == 0
        assert each.register_memory(address, size) == 0
    there = f"127.0.0.1:{engines[1].get_rpc_port()}"
    assert engines[0].transfer_sync_write(there, near, far, size) == 0


def test_mooncake_moves_memory_of_hip(hip: ModuleType) -> None:
    source, target = np.arange(256).astype(np.uint8), np.zeros(256, np.uint8)
    near, far = (hip.hipMalloc(256)[1] for _ in range(2))
    hip.hipMemcpy(near, source, 256, hip.hipMemcpyKind.hipMemcpyHostToDevice)
    _transferred(int(near), int(far), 256)
    hip.hipMemcpy(target, far, 256, hip.hipMemcpyKind.hipMemcpyDeviceToHost)
    assert (source == target).all()


def test_mooncake_moves_memory_of_acl(acl: ModuleType) -> None:
    assert acl.rt.set_device(0) == 0
    source, target = np.arange(256).astype(np.uint8), np.zeros(256, np.uint8)
    near, far = (acl.rt.malloc(256, 0)[0] for _ in range(2))
    assert acl.rt.memcpy(near, 256, int(source.ctypes.data), 256, 1) == 0
    _transferred(near, far, 256)
    assert acl.rt.memcpy(int(target.ctypes.data), 256, far, 256, 2) == 0
    assert (source == target).all()


CUDA = """
import ctypes
from mooncake.engine import TransferEngine
runtime = ctypes.CDLL("libcudart.so.12")
near, far = ctypes.c_void_p(), ctypes.c_void_p()
assert runtime.cudaMalloc(ctypes.byref(near), 256) == runtime.cudaSetDevice(1) == 0
assert runtime.cudaMalloc(ctypes.byref(far), 256) == 0
assert runtime.cudaMemset(near, 7, 256) == runtime.cudaMemset(far, 0, 256) == runtime.cudaDeviceSynchronize() == 0
engines = [TransferEngine(), TransferEngine()]
for engine, address in zip(engines, (near, far)):
    engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "")
    assert engine.register_memory(address.value, 256) == 0
there = f"127.0.0.1:{engines[1].get_rpc_port()}"
assert engines[0].transfer_sync_write(there, near.value, far.value, 256) == 0
seen = ctypes.create_string_buffer(256)
assert runtime.cudaMemcpy(seen, far, 256, 2) == 0
print(seen.raw == bytes([7]) * 256)
"""


def test_mooncake_moves_memory_of_cuda() -> None:
    words = ["run", "--dialect", "cuda", "--dialect", "mooncake", "--devices", "2", "-c", CUDA]
    done = run_python(["-m", "peerlane", *words], timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (
            "initialize",
            {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "protocol": "tcp", "device_name": ""},
        ),
        ("unregister_memory", {"buffer_addr": 4096}),
        ("batch_unregister_memory", {"buffer_addresses": [4096]}),
        ("free_managed_buffer", {"buffer_addr": 4096, "length": 1}),
        ("get_first_buffer_address", {"segment_name": "127.0.0.1:1"}),
        ("get_batch_transfer_status", {"batch_ids": []}),
    ],
)
def test_mooncake_refuses_names_of_positional_arguments_as_the_vendors_engine(
    method: str, arguments: dict[str, object]
) -> None:
    engine = TransferEngine()
    with pytest.raises(TypeError):
        getattr(engine, method)(**arguments)
    assert engine.get_engine() is None
