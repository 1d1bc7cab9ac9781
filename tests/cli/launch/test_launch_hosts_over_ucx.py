"""Programs under ``peerlane launch --hosts`` whose ranks reach each other over UCX: ``topo``, and one of HCOMM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.absent import needs_engine
from helpers.hcomm_servers import PROGRAM, rank_table
from helpers.launched import Run
from helpers.namespaces import OtherNetwork, other_network
from helpers.two_machines import JOINED

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120), needs_engine]


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as second_network:
        yield second_network


def words(network: OtherNetwork, *more: str) -> list[str]:
    options = ["--ssh", " ".join(network.prefix[:-1]), "--address", network.near, "--env", "UCX_TLS=tcp,self"]
    return [*options, "--hosts", f"localhost:2,{network.prefix[-1]}:1", *more]


def over_ucx(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != "PEERLANE_INTERFACE"} | {
        "UCX_TLS": "tcp,self"
    }


def test_topo_of_a_job_shows_machines_and_transports(
    network: OtherNetwork, run: Run, env: dict[str, str]
) -> None:
    done = run(*words(network, "-m", "peerlane", "topo", "--json"), env=over_ucx(env))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("[0] ")
    near, there = json.loads(line[4:])["machines"]
    assert [near["identity"], there["identity"]] == ["localhost", network.prefix[-1]]
    assert (near["ranks"], there["ranks"]) == ([0, 1], [2])
    assert (near["interface"], near["address"]) == (network.interfaces[0], network.near)
    assert (there["interface"], there["address"]) == (network.interfaces[1], network.far)
    for one, other in ((near, there), (there, near)):
        assert one["engine"]["version"] and not one["why_no_engine"]
        assert one["settings"] == {"UCX_TLS": "tcp,self"}
        assert one["ways"] == {other["identity"]: [f"tcp/{one['interface']}"]}


def test_topo_of_a_job_is_a_table_for_people(network: OtherNetwork, run: Run, env: dict[str, str]) -> None:
    done = run(*words(network, "-m", "peerlane", "topo"), env=over_ucx(env))
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("[0] ").split() for line in done.stdout.splitlines()]
    name, (mine, theirs) = network.prefix[-1], network.interfaces
    assert lines[0] == ["machine", "ranks", "host", "network", "engine"]
    assert lines[1][:2] == ["localhost", "0,1"] and lines[1][3:6] == [mine, network.near, "UCX"]
    assert lines[2][:2] == [name, "2"]
    at = lines.index(["Transports", "that", "UCX", "took,", "from", "row", "to", "column:"])
    assert lines[at + 1 : at + 4] == [
        ["localhost", name],
        ["localhost", "X", f"tcp/{mine}"],
        [name, f"tcp/{theirs}", "X"],
    ]


def test_topo_of_a_job_without_an_engine_on_a_machine_names_what_to_install(
    network: OtherNetwork, run: Run, env: dict[str, str]
) -> None:
    more = ["--env", "PEERLANE_UCX=/nowhere/libucp.so.0", "-m", "peerlane", "topo"]
    done = run(*words(network, *more), env=over_ucx(env))
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("[0] ") for line in done.stdout.splitlines()]
    name = network.prefix[-1]
    assert ["localhost", "X", "--"] in [line.split() for line in lines]
    (why,) = [line for line in lines if line.startswith(f"{name}: ")]
    assert "pip install peerlane[ucx]" in why and "/nowhere/libucp.so.0" in why


@pytest.mark.parametrize("how", ["RANK_TABLE_FILE", "ROOT_INFO"])
def test_hosts_hcomm_program_runs_unmodified(
    network: OtherNetwork, run: Run, tmp_path: Path, env: dict[str, str], how: str
) -> None:
    path = tmp_path / "said"
    if how == "RANK_TABLE_FILE":
        path.write_text(rank_table([2, 2]))
    over_ucx = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "UCX_TLS": "tcp,self",
        "HCCL_BUFFSIZE": "16",
        "HCCL_CONNECT_TIMEOUT": "40",
        how: str(path),
    }
    words = [f"{word}={value}" for word, value in over_ucx.items()]
    options = [each for word in words for each in ("--env", word)]
    name = network.prefix[-1]
    options += ["--ssh", " ".join(network.prefix[:-1]), "--address", network.near, "--devices", "2"]
    own = {key: value for key, value in env.items() if key != "PEERLANE_INTERFACE"}
    done = run(*options, "--hosts", f"localhost:2,{name}:2", "-c", JOINED + PROGRAM, env=own | over_ucx)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] far far" for rank in range(4)]
