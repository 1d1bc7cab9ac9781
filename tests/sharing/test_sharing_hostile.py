"""Lying exporters, full directories, other users and pid namespaces: each gets its own error, and nothing leaks.

``tests/native/test_*_hostile.cpp`` and ``test_broker_refusals.cpp`` test the frames; this file tests what a
program of the neutral API sees.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import peerlane as pl
from helpers.peers import PROGRAM, Peer, PeerError, peer
from helpers.promised import overdue
from peerlane.errors import Fault

G = 2 << 20

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

Node = Callable[..., tuple[pl.Device, ...]]

# A false exporter: it has a slot in the node, and answers whatever `lie` says.
LIAR = """
import fcntl, os, select, socket, struct, threading, time
import peerlane as pl
from peerlane import _core
from peerlane.backend import registry

request, reply = struct.Struct('<IHHQQQIHH'), struct.Struct('<IHHQiiQQQIIIHHQ HHIQQQQQII')
assert (request.size, reply.size) == (40, 128)
state = devices[0].backend._state
place = os.path.join(os.environ['PEERLANE_RUNTIME_DIR'], state.socket_name(state.slot))
with_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
lie = dict(size=G, claim=None, length=None, offset=0, device=0, block=77, entry=2**64 - 1, kind=1, rights=3,
           seals=with_seals, status=0, silent=False, cut=False, files=1)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(place); os.chmod(place, 0o600); listener.listen(50)

def say(link, asked):
    fd = os.memfd_create('lie', os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.ftruncate(fd, lie['size'])
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, lie['seals'])
    claim = lie['size'] if lie['claim'] is None else lie['claim']
    length = claim if lie['length'] is None else lie['length']
    about = (asked[0], asked[1], lie['status'], asked[3], os.getpid(), *[0] * 9, asked[5] | 1 << 40)
    text = reply.pack(*about, lie['kind'], lie['rights'], lie['device'], lie['block'], lie['entry'],
                      claim, lie['offset'], length, 0, 0)
    socket.send_fds(link, [text[:50] if lie['cut'] else text], [fd] * lie['files'])
    os.close(fd)

def serve():
    links = [listener]
    while True:
        for each in select.select(links, [], [])[0]:
            if each is listener:
                links.append(listener.accept()[0])
                continue
            frame = each.recv(100)
            if not frame:
                links.remove(each); each.close()
            elif not lie['silent'] and request.unpack(frame)[2] == 1:
                say(each, request.unpack(frame))

threading.Thread(target=serve, daemon=True).start()
from peerlane.backends.virtual.node import handles
node = devices[0].backend._home.number
fields = handles.HandleFields(tag=handles.node_tag(node), slot=state.slot, entry=0, nonce=5, node=node, kind=1,
                              size=G, pid=os.getpid(), start=0)
result = handles.encode_int(fields)
"""


@pytest.fixture
def spec(node: Node) -> str:
    text = f"name=hostile-{os.getpid()},devices=2,memory=1GiB"
    node(text)
    return text


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _refused(kind: type[pl.Error], fault: Fault, work: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        work()
    assert refused.value.fault is fault, str(refused.value)
    return str(refused.value)


def test_open_notify_of_unknown_kind_raises_false_claim(spec: str) -> None:
    with peer(spec) as liar:
        number = liar.run(
            "from peerlane import _core\n"
            "from peerlane.backend.facts import HandleKind\n"
            "from peerlane.backends.virtual.handle import VirtualHandle\n"
            "backend = devices[0].backend\n"
            "signal = _core.Signal(backend.ledger)\n"
            "offer = lambda all: backend.offer_signal(HandleKind.NOTIFY, signal, 0, all, notify_kind=7)\n"
            "h = VirtualHandle._make(signal, 'user', offer)\n"
            "result = int(h)\n"
        )
        text = _refused(pl.BadHandle, Fault.FALSE_CLAIM, lambda: pl.Notify.open(number))
        assert "a notify of kind 7; the kinds are 0, 1, 2" in text


def test_open_from_lying_exporter_raises_false_claim(spec: str) -> None:
    device = pl.devices()[0]
    with peer(spec) as liar, peer(spec) as honest:
        number = liar.run(LIAR)
        good = honest.run("b = pl.Physical(devices[0], G); h = b.export(allow='user'); result = int(h)")
        pl.Physical.open(good).close()
        before, free = _descriptors(), device.free_bytes
        for lie, message in (
            ({"claim": G + 1}, f"claims {G + 1:,} bytes, and its descriptor has {G:,}"),
            ({"claim": 1 << 63}, "claims"),
            ({"claim": 0}, "claims memory of 0 bytes"),
            ({"length": G + 1}, "claims"),
            ({"offset": 1 << 62}, "claims"),
            ({"seals": 0}, "could truncate"),
            ({"seals": 1}, "could truncate"),
            ({"rights": 1}, "other rights"),
            ({"rights": 11}, "are not an answer"),
            ({"kind": 9}, "are not an answer"),
            ({"status": 200}, "are not an answer"),
            ({"cut": True}, "are not an answer"),
            ({"files": 0}, "are not an answer"),
            ({"files": 2}, "are not an answer"),
            ({"device": 2}, "claims device 2, which this node lacks"),
            ({"device": 2**32 - 2}, "which this node lacks"),
        ):
            liar.run(f"honesty = dict(lie); lie.update({lie})")
            text = _refused(pl.BadHandle, Fault.FALSE_CLAIM, lambda: pl.Physical.open(number))
            assert message in text, (lie, text)
            liar.run("lie.update(honesty)")
            pl.Physical.open(good).close()  # an honest exporter still serves
        liar.run("lie['silent'] = True")
        began = time.monotonic()
        _refused(pl.WaitTimeout, Fault.WAIT_TIMEOUT, lambda: pl.Physical.open(number, timeout=0.2))
        assert time.monotonic() - began < overdue(0.2)
        liar.run("lie['silent'] = False")
        pl.Physical.open(number).close()
        liar.kill()
        _refused(pl.PeerLost, Fault.PEER_LOST, lambda: pl.Physical.open(number))
        assert _descriptors() <= before
        assert device.free_bytes == free


def _use(block: pl.Physical) -> None:
    """Map, fill and read imported memory, and check that nothing behind its end is reached."""
    device = pl.devices()[0]
    with pl.AddressRange(device, 4 * G) as rng:
        rng.map(block, at=G)
        rng[G : G + block.size].fill(1)
        assert bytes(rng[G : G + block.size].view()) == b"\1" * block.size
        with pytest.raises(pl.BadAddress):
            rng[G + block.size : G + block.size + 1].fill(1)


def test_open_of_odd_sizes_works_or_raises_and_charges_right(spec: str) -> None:
    device = pl.devices()[0]
    free = device.free_bytes
    with peer(spec) as liar:
        number = liar.run(LIAR)
        for size in (1, 4095, 4096, G - 1, G + 1, 2 * G + 5):
            # A new block each time, because a known block keeps its size.
            liar.run(f"lie.update(size={size}, block=lie['block'] + 1)")
            with pl.Physical.open(number) as block:
                assert block.size == size
                _use(block)
        liar.run("lie.update(size=1 << 46)")  # the file has this size, and no page of it
        text = _refused(pl.BadHandle, Fault.FALSE_CLAIM, lambda: pl.Physical.open(number))
        assert "70,368,744,177,664 bytes on virtual:0, which has 1,073,741,824" in text
        for entry in (0, 5, 65_535, 65_536, 1 << 63):  # an index in a list that never had the block
            liar.run(f"lie.update(size=G, block=lie['block'] + 1, entry={entry})")
            with pl.Physical.open(number) as block:
                _use(block)
                assert device.free_bytes == free - G
        for kind, opens in ((2, pl.Buffer), (3, pl.Event), (4, pl.Notify)):
            liar.run(f"lie.update(kind={kind}, size=0)")
            text = _refused(pl.BadHandle, Fault.FALSE_CLAIM, lambda opens=opens: opens.open(number))
            assert "0 bytes" in text
        for kind, opens in ((3, pl.Event), (4, pl.Notify)):
            for size in (5, G):
                liar.run(f"lie.update(kind={kind}, size={size})")
                text = _refused(pl.BadHandle, Fault.FALSE_CLAIM, lambda opens=opens: opens.open(number))
                assert f"process {liar.pid} answered with bytes that are not an answer" in text
        liar.run("lie.update(kind=2, size=G)")
        for offset, length in ((0, G), (3, 5), (G, 0), (G - 1, 1)):
            liar.run(f"lie.update(offset={offset}, length={length})")
            try:
                with pl.Buffer.open(number) as buffer:
                    assert buffer.size == length
                    buffer.fill(2)
            except pl.Error as error:
                assert length == 0, error
        deadline = time.monotonic() + 10
        while device.free_bytes != free:
            assert time.monotonic() < deadline


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of 128 KiB."""
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k,mode=0700", "none", str(folder)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs is not allowed here")
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass
    return filler


def _fails_for_want_of_room(other: Peer, code: str) -> None:
    with pytest.raises(PeerError) as refused:
        other.run(code)
    assert refused.value.fault == "OUT_OF_RESOURCES", str(refused.value)


def test_export_in_full_runtime_directory_raises_and_works_after_room(small: Path) -> None:
    spec = "name=full,devices=2,memory=64MiB"
    filler = _fill(small)
    late = Peer({**os.environ, "PEERLANE_NODE": spec})
    try:
        _fails_for_want_of_room(late, "devices = pl.devices()")
        filler.unlink()
        late.run("devices = pl.devices(); free = devices[0].free_bytes")
        late.run("block = pl.Physical(devices[0], G); other = pl.Physical(devices[0], G)")
        with peer(spec) as importer:
            filler = _fill(small)
            # The list of shared blocks has no page yet, and the directory has no room for one.
            _fails_for_want_of_room(late, "block.export(allow='user')")
            _fails_for_want_of_room(late, "devices[0].allocate(100).export(allow='user')")
            assert late.run(
                "result = free - devices[0].free_bytes - 2 * G in (0, G)"
            )  # at most one slab stays
            late.run("rng = pl.AddressRange(devices[0], G); rng.map(block); rng[:4].copy_from(b'full')")
            filler.unlink()
            number = late.run("handle = block.export(allow='user'); result = int(handle)")
            importer.run(f"rng = pl.AddressRange(devices[0], G); rng.map(pl.Physical.open({number}))")
            assert importer.run("result = bytes(rng[:4].view()).decode()") == "full"
            _fill(small)
            # With the list's page in place, opening still works.
            assert importer.run(f"result = pl.Physical.open({number}).size") == G
            assert importer.run("rng.close(); result = 1") == 1
            late.run("handle.close(); block.close(); rng.close(); other.close()")
    finally:
        late.kill()


def test_open_by_other_user_raises_other_user(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = Path("/tmp") / f"peerlane-user-{os.getpid()}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(folder))
    try:
        spec = f"name=user-{os.getpid()},devices=2"
        device = node(spec)[0]
        block = pl.Physical(device, G)
        handle = block.export(allow="user")
        with peer(spec) as other:
            handle_for_it = block.export(allow=[other.pid])
            # It entered the node as this user, so everything that it needs is open.
            other.run(
                "import ctypes, os\nos.setgid(65534); os.setuid(65534)\n"
                "assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0"  # lets it read its own /proc/self/fd
            )
            for each in (handle, handle_for_it):
                for mode in (0o600, 0o666):
                    folder.chmod(0o711)
                    for path in folder.glob("*.sock"):
                        path.chmod(mode)
                    with pytest.raises(PeerError) as refused:
                        other.run(f"pl.Physical.open({int(each)})")
                    assert (refused.value.kind, refused.value.fault) == ("AccessDenied", "OTHER_USER")
            folder.chmod(0o700)
        with peer(spec) as friend:
            assert friend.run(f"result = pl.Physical.open({int(handle)}).size") == G
    finally:
        pl.leave_node()
        shutil.rmtree(folder)


class _Apart(Peer):
    """A process in a pid namespace of its own."""

    def begin(self, env: Mapping[str, str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", PROGRAM],
            stdin=stdin,
            stdout=stdout,
            env=dict(env),
            start_new_session=True,
        )


def test_open_across_pid_namespaces_raises_foreign_namespace(spec: str) -> None:
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        pytest.skip("this system allows no pid namespace")
    device = pl.devices()[0]
    block = pl.Physical(device, G)
    handle = block.export(allow="user")
    apart = _Apart({**os.environ, "PEERLANE_NODE": spec})
    try:
        apart.run("devices = pl.devices()")
        for form in (int(handle), bytes(handle)):
            with pytest.raises(PeerError) as refused:
                apart.run(f"pl.Physical.open({form!r})")
            assert (refused.value.kind, refused.value.fault) == ("AccessDenied", "FOREIGN_NAMESPACE")
        theirs = apart.run("b = pl.Physical(devices[0], G); h = b.export(allow='user'); result = int(h)")
        text = apart.run("result = bytes(h).decode()")
        for form in (theirs, text):
            _refused(pl.AccessDenied, Fault.FOREIGN_NAMESPACE, lambda form=form: pl.Physical.open(form))
        # Its memory is charged and its slot kept: no process here can tell whether it lives.
        assert device.free_bytes == device.total_bytes - 2 * G
    finally:
        apart.kill()
