"""``peerlane topo``: its tables for people and its JSON for programs."""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import pytest

from helpers.launcher_variables import without_launcher
from helpers.prepared import run_python
from peerlane.backends.virtual.node import Topology
from peerlane.cli import topo, topo_machines
from peerlane.errors import Fault, InvalidValue

pytestmark = pytest.mark.any_schedule


LOCAL = {
    "identity": "a",
    "host": "of-a",
    "engine": {"version": "1.22.0", "library": "/libucp.so.0"},
    "why_no_engine": "",
    "interface": "eth0",
    "address": "192.0.2.1",
    "rdma": ["mlx5_0:1"],
    "settings": {"UCX_TLS": "tcp,self"},
}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEERLANE_NODE", raising=False)
    monkeypatch.setattr(topo_machines, "is_rank", lambda: False)
    monkeypatch.setattr(topo_machines, "this_machine", lambda: LOCAL)  # the tests' process starts no engine
    monkeypatch.setenv("COLUMNS", "40")


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    topo.add_arguments(parser)
    return topo.run(parser.parse_args(arguments))


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--dialect", "cuda", "--profile", "hgx")])
def test_topo_of_1024_devices_asks_for_no_single_pair(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    check = Topology._check
    monkeypatch.setattr(Topology, "_check", lambda self, *of: (asked.append(of), check(self, *of)))
    assert run("--devices", "1024", *arguments) == 0
    assert len(asked) < 10 * 1024
    assert capsys.readouterr().out


def test_topo_of_two_switches_prints_links_and_peer_access(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--node", "name=ci,devices=3,switch=2,memory=2MiB/2MiB/1GiB") == 0
    reason = "virtual:0 is on switch 0, virtual:2 on\n        switch 1; peer access needs one switch"
    assert (
        capsys.readouterr().out
        == f"""\
ci: 3 devices on 2 switches, 2 MiB to 1 GiB, profile default, host access guard

           virtual:0  virtual:1  virtual:2  switch  memory
virtual:0  X          PIX        SYS        0       2 MiB
virtual:1  PIX        X          SYS        0       2 MiB
virtual:2  SYS        SYS        X          1       1 GiB

Legend:
  X    = the device itself
  SYS  = PCIe and the interconnect between NUMA nodes (QPI, UPI, Infinity
         Fabric)
  PIX  = at most one PCIe bridge or switch

Peer access, from row to column:
           virtual:0  virtual:1  virtual:2
virtual:0  X          OK         --
virtual:1  OK         X          --
virtual:2  --         --         X

Legend:
  X   = the device itself
  OK  = peer access can be enabled
  --  = no peer access; for example, {reason}

To other machines:
  machine  a
  engine   UCX 1.22.0, /libucp.so.0
  network  eth0 192.0.2.1
  RDMA     mlx5_0:1
  UCX_TLS  tcp,self
"""
    )


def test_topo_of_8_devices_prints_every_cell_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--profile", "mi300x") == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split() for line in lines if line.startswith("virtual:")]
    for i, (links, peers) in enumerate(zip(rows[:8], rows[8:], strict=True)):
        assert links == [
            f"virtual:{i}",
            *("X" if j == i else "XGMI" for j in range(8)),
            *("0", "192", "GiB"),
        ]
        assert peers == [f"virtual:{i}", *("X" if j == i else "OK" for j in range(8))]
    assert not any("--" in line or "SYS" in line for line in lines), "the legend lists what is shown"


@pytest.mark.parametrize(
    ("node", "links", "peers"),
    [
        (
            "profile=two-islands,devices=64",
            [
                "0-31     0       16 GiB  PIX         SYS to 32-63",
                "32-63    1       16 GiB  PIX         SYS to 0-31",
            ],
            ["0-31     OK          -- to 32-63", "32-63    OK          -- to 0-31"],
        ),
        (
            "devices=32,link=0-9:NODE",
            [
                "0        0       16 GiB  X           PIX to 1-8, 10-31; NODE to 9",
                "1-8      0       16 GiB  PIX         PIX to all others",
                "9        0       16 GiB  X           NODE to 0; PIX to 1-8, 10-31",
                "10-31    0       16 GiB  PIX         PIX to all others",
            ],
            ["0        X           OK to all others", "1-8      OK          OK to all others"],
        ),
    ],
)
def test_topo_of_many_devices_prints_sets_that_are_alike(
    node: str, links: list[str], peers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--node", node) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for shown in (links, peers):
        at = lines.index(shown[0])
        assert lines[at : at + len(shown)] == shown


def test_topo_of_many_devices_that_differ_lists_what_each_reaches(capsys: pytest.CaptureFixture[str]) -> None:
    """A set has the same links and rights for each of its devices, whatever the matrix is."""
    dice = random.Random(7)
    wanted = [[int(a != b and dice.random() < 0.9) for b in range(30)] for a in range(30)]
    matrix = "/".join("".join(map(str, row)) for row in wanted)
    assert run("--node", f"devices=30,p2p={matrix}") == 0
    shown = capsys.readouterr().out.partition("Peer access, from row to column:")[2].partition("Legend")[0]
    rows, printed = shown.split("\n")[2:], [[0] * 30 for _ in range(30)]
    for text in re.sub(r"\n  +", " ", "\n".join(rows)).strip().splitlines():
        devices, inside, others = re.fullmatch(r"(\S+) +(\S+) *(.*)", text).groups()  # type: ignore[union-attr]
        for a in _numbers(devices):
            for b in _numbers(devices):
                printed[a][b] = int(inside == "OK" and a != b)
            for each in others.split("; "):
                kind, _, where = each.partition(" to ")
                for b in (b for word in where.split(", ") for b in _numbers(word)):
                    printed[a][b] = int(kind == "OK")
    assert printed == wanted


def _numbers(word: str) -> range:
    first, _, last = word.partition("-")
    return range(int(first), int(last or first) + 1)


def test_topo_json_to_a_file_prints_the_tables_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--json", str(tmp_path / "topo.json")) == 0
    assert capsys.readouterr().out.startswith("node-")
    assert json.loads((tmp_path / "topo.json").read_text())["machine"] == LOCAL
    with pytest.raises(InvalidValue, match=r"--json .* cannot be written"):
        run("--json", str(tmp_path / "nowhere" / "topo.json"))


def test_topo_json_has_node_links_and_peer_access(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--node", "name=ci,p2p=01/00,link=0-1:NODE") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["node"]["name"], shown["node"]["profile"]) == ("ci", "default")
    assert shown["devices"][1] == {"name": "virtual:1", "switch": 0, "memory": 16 << 30}
    assert shown["link"] == [["X", "NODE"], ["NODE", "X"]]
    assert shown["p2p"] == [[False, True], [False, False]]
    assert list(shown["legend"]) == ["X", "NODE"]
    assert shown["machine"] == LOCAL


def test_topo_of_a_dialect_is_in_the_words_of_its_tool(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dialect", "cuda", "--node", "profile=h100-8,devices=4,switch=3") == 0
    first, _, second = capsys.readouterr().out.partition("Peer access, from row to column:\n")
    links, access = (
        [line.split() for line in part.splitlines() if line[:3] == "GPU"] for part in (first, second)
    )
    assert [row[:5] for row in links] == [
        ["GPU0", "X", "NV18", "NV18", "SYS"],
        ["GPU1", "NV18", "X", "NV18", "SYS"],
        ["GPU2", "NV18", "NV18", "X", "SYS"],
        ["GPU3", "SYS", "SYS", "SYS", "X"],
    ]
    assert access[0] == ["GPU0", "X", "OK", "OK", "TNS"]
    assert "NV#  = # NVLinks together" in first and "TNS  =" in second and "GNS" not in second


def test_topo_of_a_chip_without_peer_access_shows_gns(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dialect", "cuda", "--profile", "rtx4090-2") == 0
    assert "GPU0  X     GNS" in capsys.readouterr().out


def test_topo_refuses_a_dialect_whose_tool_it_does_not_know() -> None:
    with pytest.raises(InvalidValue, match=r"--dialect acl: .* valid: cuda"):
        run("--dialect", "acl")


def test_topo_colours_appear_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    run()
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    run()
    assert "\x1b[32mOK\x1b[0m" in capsys.readouterr().out


def test_topo_options_override_node_which_overrides_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "name=from-environment,devices=4")
    run()
    assert capsys.readouterr().out.startswith("from-environment: 4 devices on 1 switch,")
    path = tmp_path / "node.toml"
    path.write_text('[node]\nname = "from-file"\ndevices = 6\n')
    run("--node", str(path), "--switch", "3")
    assert capsys.readouterr().out.startswith("from-file: 6 devices on 2 switches,")
    run("--node", str(path), "--devices", "1", "--profile", "mi300x")
    assert "1 device on 1 switch, 192 GiB each, profile mi300x" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--devices", "0"), "command line: node.devices is 0"),
        (("--switch", "3"), "command line: node.switch is 3"),
        (("--profile", "mi300"), "command line: node.profile is 'mi300'.*did you mean 'mi300x'"),
        (("--node", "devices=x"), "--node: node.devices is 'x'"),
        (("--node", "no.toml"), "no.toml: No such file"),
        (
            ("--node", "backend=reference"),
            "--node: backend is 'reference', and only a node of virtual devices",
        ),
    ],
)
def test_topo_bad_node_raises_invalid_value(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidValue, match=text) as caught:
        run(*arguments)
    assert caught.value.fault is Fault.BAD_CONFIG
    assert capsys.readouterr().out == ""


def shown_by(**environ: str) -> dict[str, object]:
    """Return what ``peerlane topo --json`` says of this machine."""
    done = run_python(["-m", "peerlane", "topo", "--json"], env={**without_launcher(), **environ}, timeout=60)
    assert done.returncode == 0, done.stderr
    printed: dict[str, object] = json.loads(done.stdout)["machine"]
    return printed


def test_topo_of_a_shell_names_machine_engine_and_network() -> None:
    more = {"PEERLANE_INTERFACE": "lo", "UCX_NET_DEVICES": "lo"}
    printed = shown_by(PEERLANE_MACHINE="mine", **more)
    assert (printed["identity"], printed["interface"], printed["address"]) == ("mine", "lo", "127.0.0.1")
    assert printed["settings"] == {"UCX_NET_DEVICES": "lo"}
    assert bool(printed["engine"]) != bool(printed["why_no_engine"])
    assert shown_by(PEERLANE_INTERFACE="", MASTER_ADDR="127.0.0.1")["address"] == "127.0.0.1"
    assert shown_by(PEERLANE_INTERFACE="no-such-one")["address"] == ""


def test_topo_without_an_engine_names_what_to_install() -> None:
    printed = shown_by(PEERLANE_UCX="/nowhere/libucp.so.0")
    assert printed["engine"] is None
    assert "pip install peerlane[ucx]" in str(printed["why_no_engine"])
