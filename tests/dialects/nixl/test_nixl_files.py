"""The dialect nixl and files: back-end POSIX in one process."""

from __future__ import annotations

import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.nixl_calls import SECONDS, address_of, finish, over
from helpers.promises import Node
from peerlane.diagnostics import live_objects
from peerlane.dialects.nixl import _bindings as b
from peerlane.dialects.nixl._api import nixl_agent, nixl_agent_config
from peerlane.dialects.nixl._files import _warn_of_vram

pytestmark = pytest.mark.schedules_in_turn

SIZE = 1 << 16


class Files:
    """An agent with back-end POSIX, and a file of SIZE random bytes; memory of each kind is registered."""

    def __init__(self, folder: Path, *backends: str) -> None:
        self.folder = folder
        self.agent = nixl_agent(
            "a", nixl_agent_config(backends=list(backends or ("POSIX",)), capture_telemetry=True)
        )
        self.content = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
        (folder / "file").write_bytes(self.content.tobytes())
        self.fd = os.open(folder / "file", os.O_RDWR)
        self.opened = [self.fd]
        self.array, self.buffer = np.zeros(SIZE, np.uint8), pl.devices()[1].allocate(SIZE)
        self.buffer.fill(0)
        self.addresses = {"DRAM": (address_of(self.array), 0), "VRAM": (self.buffer.address, 1)}
        for mem, (address, device) in self.addresses.items():
            self.agent.register_memory([(address, SIZE, device, "")], mem)
        self.registered = self.agent.register_memory([(0, SIZE, self.fd, "")], "FILE")

    def open(self, name: str, content: bytes = b"", flags: int = os.O_RDWR | os.O_CREAT) -> int:
        """Open one more file of the folder, and register all of it."""
        if content:
            (self.folder / name).write_bytes(content)
        fd = os.open(self.folder / name, flags)
        self.opened.append(fd)
        self.agent.register_memory([(0, 0, fd, "")], "FILE")
        return fd

    def make(
        self,
        operation: str,
        rows: list[tuple[int, int, int]],
        mem: str = "DRAM",
        fd: int | None = None,
        **more: Any,
    ) -> Any:
        """Make a transfer of rows (offset in memory, offset in the file, bytes)."""
        address, device = self.addresses[mem]
        near = [(address + at, size, device) for at, _, size in rows]
        far = [(at, size, self.fd if fd is None else fd) for _, at, size in rows]
        descs = self.agent.get_xfer_descs(near, mem), self.agent.get_xfer_descs(far, "FILE")
        return self.agent.initialize_xfer(operation, *descs, "a", **more)

    def bytes_of(self, mem: str) -> bytes:
        """Return the memory's bytes."""
        return self.array.tobytes() if mem == "DRAM" else bytes(self.buffer)

    def close(self) -> None:
        """Close its files."""
        for fd in self.opened:
            os.close(fd)


@pytest.fixture
def files(node: Node, tmp_path: Path) -> Iterator[Files]:
    node("devices=2,memory=512MiB")
    bench = Files(tmp_path)
    yield bench
    bench.close()
    del bench
    gc.collect()


@pytest.mark.parametrize("size", [1, 4096, SIZE])
@pytest.mark.parametrize("mem", ["DRAM", "VRAM"])
def test_nixl_read_of_a_file_brings_its_bytes_to_each_kind_of_memory(
    files: Files, mem: str, size: int
) -> None:
    assert finish(files.agent, files.make("READ", [(0, SIZE - size, size)], mem)) == "DONE"
    assert files.bytes_of(mem)[:size] == files.content[SIZE - size :].tobytes()
    assert not any(files.bytes_of(mem)[size:])


@pytest.mark.parametrize("size", [1, 4096, SIZE])
@pytest.mark.parametrize("mem", ["DRAM", "VRAM"])
def test_nixl_write_of_each_kind_of_memory_brings_its_bytes_to_a_file(
    files: Files, mem: str, size: int
) -> None:
    files.array[:] = files.content
    files.buffer.view()[:] = files.content
    fd = files.open("new")
    assert finish(files.agent, files.make("WRITE", [(SIZE - size, 100, size)], mem, fd)) == "DONE"
    assert (files.folder / "new").read_bytes() == bytes(100) + files.content[SIZE - size :].tobytes()


@pytest.mark.parametrize("mem", ["DRAM", "VRAM"])
def test_nixl_transfer_of_many_descriptors_moves_each_to_its_own_bytes(files: Files, mem: str) -> None:
    drawn = np.random.default_rng(2)
    first, second = files.fd, files.open("other", files.content[::-1].tobytes())
    count, size = SIZE // 32, 32
    positions = drawn.permutation(count).tolist()
    address, device = files.addresses[mem]
    near = [(address + at * size, size, device) for at in range(count)]
    far = [(position * size, size, (first, second)[at % 2]) for at, position in enumerate(positions)]
    descs = files.agent.get_xfer_descs(near, mem), files.agent.get_xfer_descs(far, "FILE")
    assert finish(files.agent, files.agent.initialize_xfer("READ", *descs, "a")) == "DONE"
    contents = files.content.tobytes(), files.content[::-1].tobytes()
    wanted = b"".join(contents[at % 2][position * size :][:size] for at, position in enumerate(positions))
    assert files.bytes_of(mem) == wanted


def test_nixl_large_transfer_moves_all_bytes_and_can_be_posted_again(files: Files) -> None:
    size = (32 << 20) + 12345
    content = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    fd = files.open("large", content.tobytes())
    target = np.zeros(size, np.uint8)
    files.agent.register_memory([(address_of(target), size, 0, "")], "DRAM")
    descs = ([(address_of(target), size, 0)], "DRAM"), ([(0, size, fd)], "FILE")
    read = files.agent.initialize_xfer("READ", *(files.agent.get_xfer_descs(*each) for each in descs), "a")
    for _ in range(2):
        target[:] = 0
        assert finish(files.agent, read) == "DONE"
        assert (target == content).all()
    target[:] ^= 255
    write = files.agent.initialize_xfer("WRITE", *(files.agent.get_xfer_descs(*each) for each in descs), "a")
    assert finish(files.agent, write) == "DONE"
    assert (folder_bytes(files, "large") == content ^ 255).all()
    telemetry = files.agent.get_xfer_telemetry(write)
    assert (telemetry.totalBytes, telemetry.descCount) == (size, 1)


def folder_bytes(files: Files, name: str) -> np.ndarray:
    """Return the bytes of a file."""
    return np.frombuffer((files.folder / name).read_bytes(), np.uint8)


def test_nixl_prepared_lists_move_the_bytes_of_their_indices(files: Files) -> None:
    near = files.agent.prep_xfer_dlist(
        "", [(files.addresses["DRAM"][0] + i * 512, 512, 0) for i in range(8)], "DRAM"
    )
    far = files.agent.prep_xfer_dlist("a", [(i * 512, 512, files.fd) for i in range(8)], "FILE")
    handle = files.agent.make_prepped_xfer("READ", near, [0, 1, 5], far, [0, 1, 7])
    assert finish(files.agent, handle) == "DONE"
    telemetry = files.agent.get_xfer_telemetry(handle)
    assert (telemetry.totalBytes, telemetry.descCount) == (1536, 2)
    assert (files.array[:1024] == files.content[:1024]).all()
    assert (files.array[5 * 512 : 6 * 512] == files.content[7 * 512 : 8 * 512]).all()
    assert files.agent.query_xfer_backend(handle) == "POSIX"


@pytest.mark.parametrize(
    ("meta", "outcome"),
    [
        ("rw:{}/file", "reads and writes"),
        ("ro:{}/file", "reads"),
        ("ro,noatime,sync:{}/file", "reads"),
        ("rw,create:{}/fresh", "writes"),
        ("rw:{}/missing", "nixlBackendError"),
        ("rw,other:{}/file", "nixlBackendError"),  # no path: the number would be a descriptor, and is none
        ("wo:{}/file", "nixlBackendError"),
        ("{}/file", "nixlBackendError"),
        ("rw:", "nixlBackendError"),
    ],
)
def test_nixl_path_is_opened_as_its_modes_require(files: Files, meta: str, outcome: str) -> None:
    number = 1 << 20
    try:
        registered = files.agent.register_memory([(0, 0, number, meta.format(files.folder))], "FILE")
    except b.nixlBackendError as error:
        assert outcome == type(error).__name__
        return
    done = []
    for operation in ("READ", "WRITE"):
        try:
            assert finish(files.agent, files.make(operation, [(0, 0, 512)], fd=number)) == "DONE"
            done.append(f"{operation.lower()}s")
        except b.nixlBackendError:
            gc.collect()
    assert " and ".join(done) == outcome
    files.agent.deregister_memory(registered)


@pytest.mark.parametrize("meta", ["rw, create:{}/file", "RW:{}/file", " rw:{}/file", "create:{}/file", "rw:"])
def test_nixl_path_with_wrong_modes_is_refused_also_beside_an_open_descriptor(
    files: Files, meta: str
) -> None:
    fd = files.open("open", flags=os.O_RDWR | os.O_CREAT)
    before = open_descriptors()
    with pytest.raises(b.nixlBackendError, match="'ro' or 'rw', then any of 'direct'"):
        files.agent.register_memory([(0, 0, fd, meta.format(files.folder))], "FILE")
    assert open_descriptors() == before


def test_nixl_meta_with_wrong_modes_is_no_path_where_the_policy_is_the_vendors(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "vendor")
    fd = os.open(files.folder / "other", os.O_RDWR | os.O_CREAT)
    files.opened.append(fd)
    files.array[:] = 7
    files.agent.register_memory([(0, 0, fd, f"ro,none:{files.folder}/file")], "FILE")
    assert finish(files.agent, files.make("WRITE", [(0, 0, SIZE)], fd=fd)) == "DONE"
    assert (files.folder / "other").read_bytes() == files.array.tobytes()


def open_descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nixl_registered_file_that_is_left_over_has_no_bytes_of_memory(files: Files) -> None:
    files.agent.register_memory([(0, 0, 7000, f"rw,create:{files.folder}/path")], "FILE")
    [left] = [each for each in live_objects.living() if "path'" in each.text]
    assert (left.kind, left.nbytes) == ("registered memory", 0)
    assert "all bytes" in left.text


def test_nixl_path_is_closed_with_its_registration(files: Files) -> None:
    before = open_descriptors()
    meta = f"rw,create:{files.folder}/path"
    registered = files.agent.register_memory([(0, 0, 7000, meta)], "FILE")
    handle = files.make("WRITE", [(0, 0, SIZE)], fd=7000)
    assert finish(files.agent, handle) == "DONE"
    assert open_descriptors() == before + 1
    with pytest.raises(b.nixlBackendError, match="which another path has"):
        files.agent.register_memory([(0, 0, 7001, meta), (0, 0, 7000, meta)], "FILE")
    assert open_descriptors() == before + 1
    files.agent.deregister_memory(registered)
    assert open_descriptors() == before
    with pytest.raises(b.nixlNotAllowedError, match="has deregistered"):
        files.agent.transfer(handle)
    files.agent.register_memory([(0, 0, 7000, meta)], "FILE")


def failing(files: Files, name: str) -> Any:
    """Make a transfer that must fail."""
    if name == "short":
        return files.make(
            "READ", [(0, 0, 512), (512, SIZE - 100, 512)], fd=files.open("s", files.content.tobytes())
        )
    if name == "beyond":
        return files.make("READ", [(0, 1 << 40, 512)], fd=files.open("empty"))
    if name == "offset":
        return files.make("WRITE", [(0, 1 << 63, 512)], fd=files.open("empty"))
    if name == "no space":
        fd = os.open("/dev/full", os.O_RDWR)
        files.opened.append(fd)
        files.agent.register_memory([(0, 0, fd, "")], "FILE")
        return files.make("WRITE", [(0, 0, 512)], fd=fd)
    if name == "read only":
        return files.make("WRITE", [(0, 0, 512)], fd=files.open("file", flags=os.O_RDONLY))
    if name == "pipe":
        read, write = os.pipe()
        files.opened += [read, write]
        files.agent.register_memory([(0, 0, read, "")], "FILE")
        return files.make("READ", [(0, 0, 512)], fd=read)
    assert name == "truncated"
    fd = files.open("cut", files.content.tobytes())
    handle = files.make("READ", [(0, 0, SIZE)], fd=fd)
    os.ftruncate(fd, 100)
    return handle


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "short",
            "100 of the 512 bytes of row 1 were read from descriptor .* at offset 65,436: the file ends",
        ),
        ("beyond", "0 of the 512 bytes .*: the file ends there; read what the file has"),
        ("no space", "0 of the 512 bytes of row 0 were written to .*: No space left on device; make room"),
        ("offset", "0 of the 512 bytes .*: Invalid argument; pass offsets below"),
        ("read only", "Bad file descriptor"),
        ("pipe", "Illegal seek; register a file that has offsets"),
        ("truncated", "100 of the 65,536 bytes"),
    ],
)
@pytest.mark.parametrize("policy", ["strict", "vendor"])
def test_nixl_transfer_that_cannot_move_all_bytes_fails_and_the_agent_goes_on(
    files: Files, monkeypatch: pytest.MonkeyPatch, name: str, text: str, policy: str
) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", policy)
    handle = failing(files, name)
    for _ in range(2):
        with pytest.raises(b.nixlBackendError, match=text):
            finish(files.agent, handle)
        with pytest.raises(b.nixlBackendError, match=text):
            files.agent.check_xfer_state(handle)
    files.array[:] = 0
    assert finish(files.agent, files.make("READ", [(0, 0, SIZE)])) == "DONE"
    assert (files.array == files.content).all()


def test_nixl_write_that_a_limit_cuts_fails_with_what_was_written(files: Files) -> None:
    fd = files.open("limited")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, limit[1]))
    try:
        with pytest.raises(
            b.nixlBackendError, match=r"32,768 of the 65,536 .*File too large; raise `ulimit -f`"
        ):
            finish(files.agent, files.make("WRITE", [(0, 0, SIZE)], fd=fd))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.fstat(fd).st_size == SIZE // 2


def test_nixl_unlinked_file_is_used_until_its_descriptor_is_closed(files: Files) -> None:
    (files.folder / "file").unlink()
    handle = files.make("READ", [(0, 0, SIZE)])
    assert finish(files.agent, handle) == "DONE"
    assert (files.array == files.content).all()
    os.close(files.fd)
    files.opened.remove(files.fd)
    with pytest.raises(b.nixlBackendError, match=rf"descriptor {files.fd} is not open"):
        files.agent.transfer(handle)


def test_nixl_descriptor_that_is_another_file_now_is_refused_unless_the_policy_is_the_vendors(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = files.make("WRITE", [(0, 0, 512)])
    other = os.open(files.folder / "innocent", os.O_RDWR | os.O_CREAT)
    os.dup2(other, files.fd)
    files.opened.append(other)
    with pytest.raises(b.nixlBackendError, match=rf"descriptor {files.fd} was closed .* another file's now"):
        files.agent.transfer(handle)
    assert (files.folder / "innocent").read_bytes() == b""
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "vendor")
    files.agent.register_memory([(0, SIZE, files.fd, "")], "FILE")
    assert finish(files.agent, files.make("WRITE", [(0, 0, 512)])) == "DONE"


def test_nixl_closed_descriptor_is_registered_under_the_vendors_policy_alone(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(b.nixlBackendError, match="descriptor 99999 is not open"):
        files.agent.register_memory([(0, 0, 99999, "")], "FILE")
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "vendor")
    files.agent.register_memory([(0, 0, 99999, "")], "FILE")
    with pytest.raises(b.nixlBackendError, match="descriptor 99999 is not open"):
        finish(files.agent, files.make("READ", [(0, 0, 512)], fd=99999))


REFUSED: list[tuple[str, Callable[[Files], Any], type[Exception], str]] = [
    (
        "beyond",
        lambda at: at.make("READ", [(0, SIZE, 512)]),
        b.nixlNotFoundError,
        "lies in no registered memory",
    ),
    (
        "other descriptor",
        lambda at: at.make("READ", [(0, 0, 1)], fd=4),
        b.nixlNotFoundError,
        "lies in no registered memory",
    ),
    (
        "notification",
        lambda at: at.make("READ", [(0, 0, 512)], notif_msg=b"read"),
        b.nixlBackendError,
        "'POSIX' sends no notifications, and this transfer has one of 4 bytes",
    ),
    (
        "file as the local side",
        lambda at: at.agent.initialize_xfer(
            "READ",
            at.agent.get_xfer_descs([(0, 512, at.fd)], "FILE"),
            at.agent.get_xfer_descs([(at.addresses["DRAM"][0], 512, 0)], "DRAM"),
            "a",
        ),
        b.nixlInvalidParamError,
        "'POSIX' moves no bytes between FILE_SEG of this agent and DRAM_SEG",
    ),
    ("metadata", lambda at: at.agent.get_agent_metadata(), b.nixlInvalidParamError, "reaches other agents"),
    ("notifications", lambda at: at.agent.get_new_notifs(), b.nixlBackendError, "sends notifications"),
    (
        "own notification",
        lambda at: at.agent.send_notif("a", b"x"),
        b.nixlBackendError,
        "sends notifications",
    ),
    (
        "BLOCK",
        lambda at: at.agent.register_memory([(0, 1, 0, "")], "BLOCK"),
        b.nixlNotFoundError,
        "takes BLK_SEG",
    ),
    (
        "OBJ",
        lambda at: at.agent.register_memory([(0, 1, 0, "")], "OBJ"),
        b.nixlNotFoundError,
        "takes OBJ_SEG",
    ),
    (
        "costs",
        lambda at: at.agent.estimate_xfer_cost(at.make("READ", [(0, 0, 512)])),
        b.nixlNotSupportedError,
        "estimates no costs",
    ),
    *(
        (
            name,
            lambda at, name=name: at.agent.create_backend(name),
            b.nixlNotFoundError,
            f"plugin '{name}' moves",
        )
        for name in ("GDS", "GDS_MT", "OBJ", "AZURE_BLOB", "INFINIA", "GUSLI", "GPUNETIO", "LIBFABRIC")
    ),
]


@pytest.mark.parametrize(("name", "call", "error", "text"), REFUSED, ids=[each[0] for each in REFUSED])
def test_nixl_call_about_files_that_the_wheel_refuses_is_refused(
    files: Files, name: str, call: Callable[[Files], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(files)


def test_nixl_notification_of_a_post_is_refused_and_stays_as_on_the_wheel(files: Files) -> None:
    handle = files.make("READ", [(0, 0, 512)])
    assert finish(files.agent, handle) == "DONE"
    for message in (b"read", b""):
        with pytest.raises(b.nixlBackendError, match="sends no notifications"):
            files.agent.transfer(handle, message)
        assert files.agent.check_xfer_state(handle) == "DONE"


def test_nixl_vram_and_files_log_one_warning(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    _warn_of_vram.cache_clear()
    handles = [files.make("READ", [(0, 0, 512)], mem) for mem in ("DRAM", "VRAM", "VRAM")]
    assert len(handles) == 3
    assert capsys.readouterr().out.count("NIXL's own needs GDS for it") == 1


def test_nixl_vram_and_files_under_the_vendors_policy_are_for_no_back_end(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NIXL_POLICY", "vendor")
    with pytest.raises(b.nixlNotFoundError, match="takes VRAM_SEG"):
        files.agent.register_memory([(files.buffer.address, SIZE, 1, "")], "VRAM")
    with pytest.raises(b.nixlNotFoundError, match="takes VRAM_SEG and FILE_SEG"):
        files.make("READ", [(0, 0, 512)], "VRAM")


def test_nixl_agent_with_both_back_ends_keeps_their_registrations_apart(node: Node, tmp_path: Path) -> None:
    node("devices=2,memory=64MiB")
    files = Files(tmp_path, "UCX", "POSIX")
    files.buffer.fill(3)
    copy = files.agent.initialize_xfer(
        "WRITE",
        files.agent.get_xfer_descs([(files.buffer.address, 64, 1)], "VRAM"),
        files.agent.get_xfer_descs([(files.addresses["DRAM"][0], 64, 0)], "DRAM"),
        "a",
        b"copied",
    )
    assert finish(files.agent, copy) == "DONE"
    assert files.agent.query_xfer_backend(copy) == "UCX"
    assert files.agent.get_new_notifs() == {"a": [b"copied"]}
    assert finish(files.agent, files.make("READ", [(0, 0, SIZE)])) == "DONE"
    with pytest.raises(b.nixlNotFoundError, match="this call may use UCX"):
        files.make("READ", [(0, 0, SIZE)], backends=["UCX"])
    dram = files.agent.get_reg_descs([(files.addresses["DRAM"][0], SIZE, 0, "")], "DRAM")
    files.agent.deregister_memory(dram, ["POSIX"])
    with pytest.raises(b.nixlNotFoundError, match="which has none with 'POSIX'"):
        files.make("READ", [(0, 0, SIZE)])
    with pytest.raises(b.nixlNotFoundError, match="with POSIX"):
        files.agent.deregister_memory(dram, ["POSIX"])
    assert finish(files.agent, copy) == "DONE"
    files.agent.deregister_memory(dram)
    with pytest.raises(b.nixlNotAllowedError, match="has deregistered"):
        files.agent.transfer(copy)
    files.close()


def test_nixl_files_are_no_part_of_metadata(node: Node, tmp_path: Path) -> None:
    node("devices=2,memory=64MiB")
    files, other = Files(tmp_path, "UCX", "POSIX"), nixl_agent("b")
    other.add_remote_agent(files.agent.get_agent_metadata())
    assert other.check_remote_metadata(
        "a", other.get_xfer_descs([(files.addresses["DRAM"][0], 64, 0)], "DRAM")
    )
    assert not other.check_remote_metadata("a", other.get_xfer_descs([(0, 64, files.fd)], "FILE"))
    with pytest.raises(b.nixlBackendError, match="no back-end reaches FILE_SEG"):
        files.agent.get_partial_agent_metadata(files.registered, True)
    files.close()


def test_nixl_transfer_with_files_lets_the_program_close_them_while_it_runs(files: Files) -> None:
    size = 64 << 20
    source = np.arange(size // 8).view(np.uint8)
    files.agent.register_memory([(address_of(source), size, 0, "")], "DRAM")
    fd = os.open(files.folder / "big", os.O_RDWR | os.O_CREAT)
    files.agent.register_memory([(0, 0, fd, "")], "FILE")
    near = files.agent.get_xfer_descs([(address_of(source), size, 0)], "DRAM")
    handle = files.agent.initialize_xfer(
        "WRITE", near, files.agent.get_xfer_descs([(0, size, fd)], "FILE"), "a"
    )
    state = files.agent.transfer(handle)
    os.close(fd)
    reused = os.open(files.folder / "innocent", os.O_RDWR | os.O_CREAT)
    assert state == "DONE" or over(files.agent, handle) == "DONE"
    assert os.fstat(reused).st_size == 0
    os.close(reused)
    assert (folder_bytes(files, "big") == source).all()


def test_nixl_transfers_of_files_run_at_the_same_time(files: Files) -> None:
    count = 16
    fds = [files.open(f"of {at}", bytes([at]) * SIZE) for at in range(count)]
    arrays = [np.zeros(SIZE, np.uint8) for _ in range(count)]
    handles = []
    for array, fd in zip(arrays, fds, strict=True):
        files.agent.register_memory([(address_of(array), SIZE, 0, "")], "DRAM")
        near = files.agent.get_xfer_descs([(address_of(array), SIZE, 0)], "DRAM")
        handles.append(
            files.agent.initialize_xfer(
                "READ", near, files.agent.get_xfer_descs([(0, SIZE, fd)], "FILE"), "a"
            )
        )
    outcomes: list[str] = []
    threads = [
        threading.Thread(target=lambda each=each: outcomes.append(finish(files.agent, each)))
        for each in handles
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert outcomes == ["DONE"] * count
    assert all((array == at).all() for at, array in enumerate(arrays))


def test_nixl_transfer_with_a_file_that_is_released_leaves_the_agent_usable(files: Files) -> None:
    size = 64 << 20
    target = np.zeros(size, np.uint8)
    files.agent.register_memory([(address_of(target), size, 0, "")], "DRAM")
    fd = files.open("long", bytes(size))
    before = open_descriptors()
    near = files.agent.get_xfer_descs([(address_of(target), size, 0)], "DRAM")
    for _ in range(5):
        handle = files.agent.initialize_xfer(
            "READ", near, files.agent.get_xfer_descs([(0, size, fd)], "FILE"), "a"
        )
        files.agent.transfer(handle)
        files.agent.release_xfer_handle(handle)
    assert finish(files.agent, files.make("READ", [(0, 0, SIZE)])) == "DONE"
    assert (files.array == files.content).all()
    deadline = time.monotonic() + SECONDS
    while open_descriptors() > before:  # a transfer that was given up ends at its next step
        assert time.monotonic() < deadline, "descriptors of transfers stay open"


@pytest.mark.parametrize(
    ("backend", "params"),
    [
        ("POSIX", {"ios_pool_size": "-1"}),
        ("POSIX", {"ios_pool_size": "16 "}),
        ("POSIX", {"ios_pool_size": "1_000"}),
        ("POSIX", {"ios_pool_size": "4294967296"}),
        ("POSIX", {"kernel_queue_size": "0x"}),
        ("POSIX", {"use_uring": "maybe"}),
        ("POSIX", {"use_aio": "true", "use_posix_aio": "Yes"}),
        ("UCX", {"num_workers": ""}),
        ("UCX", {"num_threads": "1.5"}),
        ("UCX", {"ucx_error_handling_mode": "PEER"}),
    ],
)
def test_nixl_wrong_parameters_make_no_back_end(node: Node, backend: str, params: dict[str, str]) -> None:
    node("devices=1")
    agent = nixl_agent("a", nixl_agent_config(backends=[]))
    with pytest.raises(b.nixlBackendError):
        agent.create_backend(backend, params)
    assert agent.get_backend_params(backend) == {}
    agent.create_backend(backend, {})


@pytest.mark.parametrize(
    "size, most", [("1", 64), ("65", 65), ("0x50", 80), ("0", 65536), ("4294967295", 65536)]
)
def test_nixl_a_transfer_of_more_descriptors_than_the_pool_has_moves_nothing(
    node: Node, tmp_path: Path, size: str, most: int
) -> None:
    node("devices=1")
    agent = nixl_agent("a", nixl_agent_config(backends=[]))
    agent.create_backend("POSIX", {"ios_pool_size": size, "use_aio": "ON", "unknown": "?"})
    array = np.ones(1, np.uint8)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    agent.register_memory([(address_of(array), 1, 0, "")], "DRAM")
    agent.register_memory([(0, 0, fd, "")], "FILE")

    def transfer(count: int) -> Any:
        near = agent.get_xfer_descs([(address_of(array), 1, 0)] * count, "DRAM")
        far = agent.get_xfer_descs([(at, 1, fd) for at in range(count)], "FILE")
        return agent.initialize_xfer("WRITE", near, far, "a")

    refused = transfer(most + 1)
    for _ in range(2):
        with pytest.raises(b.nixlNotAllowedError):
            agent.transfer(refused)
        with pytest.raises(b.nixlNotAllowedError):
            agent.check_xfer_state(refused)
    assert os.fstat(fd).st_size == 0
    assert finish(agent, transfer(most)) == "DONE"
    assert os.fstat(fd).st_size == most
    os.close(fd)
