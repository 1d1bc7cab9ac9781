"""Processes that a check does not see, and that use memory of those that it sees, are named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checker.checking import checked_program, described
from peerlane.checker import texts

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(240)]

MAKER = """\
import socket
import peerlane as pl
listener = socket.create_server(("127.0.0.1", 0))
listener.settimeout(100)
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.settimeout(100)
with pl.devices()[0].allocate(4096) as memory:
    memory.fill(1)
    opener = int(peer.recv(16))
    peer.sendall(bytes(memory.export(allow=[opener])))
    peer.recv(1)
"""
OPENER = """\
import os, socket, sys
import peerlane as pl
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=100)
peer.sendall(b"%d" % os.getpid())
with pl.Buffer.open(peer.recv(4096)) as memory:
    print(int(memory.view()[0]))
peer.sendall(b"x")
"""
CHECK = (sys.executable, "-m", "peerlane", "check", "--json")


#: How memory is made and named for any process, and how it is opened: by the neutral API and by the dialects.
TO_EVERYONE = {
    "neutral": (
        "import peerlane as pl\nmemory = pl.devices()[0].allocate(4096)\nmemory.fill(1)\n"
        "name = bytes(memory.export(allow='user'))",
        "import peerlane as pl\nprint(int(pl.Buffer.open(name).view()[0]))",
    ),
    "hip": (
        "from hip import hip\n_, memory = hip.hipMalloc(4096)\nhip.hipMemset(memory, 1, 4096)\n"
        "_, handle = hip.hipIpcGetMemHandle(memory)\nname = bytes(handle.reserved)",
        "from hip import hip\nfound = bytearray(1)\n_, memory = hip.hipIpcOpenMemHandle(name, 1)\n"
        "hip.hipMemcpy(found, memory, 1, hip.hipMemcpyKind.hipMemcpyDeviceToHost)\nprint(found[0])",
    ),
    "acl": (
        "import acl\nacl.rt.set_device(0)\nmemory, _ = acl.rt.malloc(4096, 0)\n"
        "acl.rt.memset(memory, 4096, 1, 4096)\nkey, _ = acl.rt.ipc_mem_get_export_key(memory, 4096, 65, 1)\n"
        "name = key if isinstance(key, bytes) else key.encode()",
        "import acl\nacl.rt.set_device(0)\nmemory, code = acl.rt.ipc_mem_import_by_key(name.decode(), 0)\n"
        "import numpy as np\nfound = np.zeros(1, np.uint8)\n"
        "acl.rt.memcpy(found.ctypes.data, 1, memory, 1, 2)\nprint(found[0])",
    ),
    "nixl": (
        "from nixl._api import nixl_agent\nimport peerlane as pl\nagent = nixl_agent('maker')\n"
        "memory = pl.devices()[0].allocate(4096)\nmemory.fill(1)\n"
        "rows = [(memory.address, 4096, 0)]\nagent.register_memory([(*rows[0], '')], 'VRAM')\n"
        "name = agent.get_serialized_descs((agent.get_agent_metadata(), rows))",
        "from nixl._api import nixl_agent\nimport peerlane as pl\nagent = nixl_agent('opener')\n"
        "memory = pl.devices()[0].allocate(4096)\nrows = [(memory.address, 4096, 0)]\n"
        "agent.register_memory([(*rows[0], '')], 'VRAM')\n"
        "metadata, there = agent.deserialize_descs(name)\nagent.add_remote_agent(metadata)\n"
        "near, far = (agent.get_xfer_descs(each, 'VRAM') for each in (rows, there))\n"
        "handle = agent.initialize_xfer('READ', near, far, 'maker', b'')\nagent.transfer(handle)\n"
        "while agent.check_xfer_state(handle) != 'DONE': pass\nprint(int(memory.view()[0]))",
    ),
}
MAKER_FOR_ALL = """\
import socket
MAKE
listener = socket.create_server(("127.0.0.1", 0))
listener.settimeout(100)
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
peer.settimeout(100)
peer.sendall(name)
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
"""
OPENER_FOR_ALL = """\
import socket, sys
peer = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=100)
name = b"".join(iter(lambda: peer.recv(1 << 16), b""))
OPEN
peer.sendall(b"x")
"""


def run_both(folder: Path, maker: list[str], opener: list[str], case: str = "") -> tuple[str, str]:
    """Run both programs, the one with the words before it, and return their standard errors."""
    texts = MAKER, OPENER
    if case:
        make, open_ = TO_EVERYONE[case]
        texts = MAKER_FOR_ALL.replace("MAKE", make), OPENER_FOR_ALL.replace("OPEN", open_)
    for name, text in zip(("maker.py", "opener.py"), texts, strict=True):
        (folder / name).write_text(text)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": folder}
    with subprocess.Popen([*maker, "maker.py"], **pipes) as making:  # type: ignore[call-overload]
        try:
            port = making.stdout.readline().strip()
            done = subprocess.run([*opener, "opener.py", port], **pipes, timeout=150, check=False)  # type: ignore[call-overload]
            _, outputs = making.communicate(timeout=60)
        finally:
            making.kill()
    assert (making.returncode, done.returncode, done.stdout) == (0, 0, "1\n"), (outputs, done.stderr)
    return outputs, done.stderr


def test_two_checks_name_the_process_of_the_other(tmp_path: Path) -> None:
    outputs = run_both(tmp_path, [*CHECK, "maker.json"], [*CHECK, "opener.json"])
    reports = [json.loads((tmp_path / f"{each}.json").read_text()) for each in ("maker", "opener")]
    (of_opener,), (of_maker,) = (each["unseen"] for each in reports)
    assert of_opener["shares_with"] == [of_maker["pid"]] and of_maker["shares_with"] == [of_opener["pid"]]
    assert "opener.py" in of_opener["argv"] and "maker.py" in of_maker["argv"]
    for text in outputs:
        assert " ".join(text.split()).count("which this check does not see") == 1


def test_process_without_a_check_is_named(tmp_path: Path) -> None:
    outputs, _ = run_both(tmp_path, [*CHECK, "maker.json"], [sys.executable])
    (unseen,) = json.loads((tmp_path / "maker.json").read_text())["unseen"]
    assert "opener.py" in unseen["argv"] and f"process {unseen['pid']} (" in outputs


@pytest.mark.parametrize("case", list(TO_EVERYONE))
def test_process_that_opens_what_everyone_may_open_is_named(tmp_path: Path, case: str) -> None:
    opener = [sys.executable, "-m", "peerlane", "run"]
    outputs, _ = run_both(tmp_path, [*CHECK, "maker.json"], opener, case)
    (unseen,) = json.loads((tmp_path / "maker.json").read_text())["unseen"]
    assert "opener.py" in unseen["argv"] and f"process {unseen['pid']} (" in outputs


@pytest.mark.parametrize("case", list(TO_EVERYONE))
def test_check_names_the_maker_of_what_everyone_may_open(tmp_path: Path, case: str) -> None:
    maker = [sys.executable, "-m", "peerlane", "run"]
    _, outputs = run_both(tmp_path, maker, [*CHECK, "opener.json"], case)
    (unseen,) = json.loads((tmp_path / "opener.json").read_text())["unseen"]
    assert "maker.py" in unseen["argv"] and f"process {unseen['pid']} (" in outputs


def test_children_of_one_check_are_seen(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(
        "import subprocess, sys\n"
        "maker = subprocess.Popen([sys.executable, 'maker.py'], stdout=subprocess.PIPE, text=True)\n"
        "port = maker.stdout.readline().strip()\n"
        "subprocess.run([sys.executable, 'opener.py', port], timeout=100, check=True)\n"
        "maker.wait(60)\n"
    )
    run_both(tmp_path, [sys.executable], [sys.executable])
    words = [*CHECK, "both.json", "both.py"]
    subprocess.run(words, cwd=tmp_path, timeout=150, check=True, capture_output=True)
    assert "unseen" not in json.loads((tmp_path / "both.json").read_text())


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_what_an_unseen_process_may_have_done_is_never_missed_with_certainty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    program = Path(__file__).parent / "programs" / "unseen_partner.py"
    right, racy = tmp_path / "right", tmp_path / "racy"
    right.mkdir(), racy.mkdir()

    done = checked_program(program, "right", str(right))
    assert done.code == 0, done.output
    assert {(each["kind"], each["certain"]) for each in done.findings} <= {
        ("unwritten-read", False),
        ("lost-notify", False),
    }, described(done.findings)
    assert all("does not see" in each["why"] for each in done.findings)

    done = checked_program(program, "racy", str(racy))
    (certain,) = (each for each in done.findings if each["certain"])
    assert done.code == 3 and certain["kind"] == "race", described(done.findings)
    line = certain["sites"][1]["line"]
    assert program.read_text().splitlines()[line - 1].endswith("# racy")


def test_sentence_names_the_command_and_who_shares() -> None:
    text = texts.unseen_text({"pid": 7, "argv": ["a b", "\x1b"], "shares_with": [8, 9]})
    assert text.startswith("process 7 ('a b' ") and "memory of process 8, 9: races" in text
