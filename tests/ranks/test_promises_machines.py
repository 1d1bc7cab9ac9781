"""Groups over several machines: how their ranks meet, what they know of each other, and how they leave."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane as pl
from helpers.launched import until
from helpers.namespaces import other_network
from helpers.ports import free_port
from helpers.promises import Node
from helpers.two_machines import (
    SECRET,
    Environment,
    by_address,
    ended,
    hear,
    run,
    slurm,
    started,
    torchrun,
)
from peerlane.errors import Fault
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer
from peerlane.support.machine_identity import own_machine

pytestmark = pytest.mark.any_schedule

RunMachines = Callable[..., "list[Environment]"]

MEETS = """
with joined(timeout=30) as group:
    say(group.rank, [each.machine for each in group.members], [each.pid_here > 0 for each in group.members])
    assert [each.pid_here for each in group.members if each.rank == group.rank] == [os.getpid()]
    for peer in (each.rank for each in group.members if each.is_here and each.rank != group.rank):
        channel = group.channel(peer, timeout=30)
        channel.write(bytes([group.rank]), notify=0)
        channel.wait(0, timeout=30)
        assert group.window.view()[0] == peer
"""


def program_of(machines: str, rank: int) -> str:
    is_near = [machine == machines[rank] for machine in machines]
    return f"{rank} {list(machines)} {is_near}\n"


@pytest.mark.parametrize("run_machines", [torchrun, slurm, by_address])
@pytest.mark.parametrize("machines", ["ab", "aabb", "abab", "abc"])
def test_group_over_machines_has_members_of_all_and_channels_within_each(
    run_machines: RunMachines, machines: str
) -> None:
    ends = run(MEETS, run_machines(machines, free_port()))
    assert ends == [(0, program_of(machines, rank), "") for rank in range(len(machines))]


def test_group_over_two_networks_pid_namespaces_and_directories_meets(tmp_path: Path) -> None:
    """Nothing names the machines: they tell themselves apart.  The pids of one are other processes of the other."""
    program = """
with joined(timeout=30) as group:
    machines = [each.machine for each in group.members]
    say(os.getpid() in (1, 2), len(set(machines)), [each.is_here for each in group.members])
    for peer in (each.rank for each in group.members if each.is_here and each.rank != group.rank):
        channel = group.channel(peer, timeout=30)
        channel.notify(0)
        channel.wait(0, timeout=30)
"""
    with other_network() as network:
        environs = by_address("aab", free_port(), PEERLANE_MACHINE="")
        for environ in environs:
            environ["PLACE"] = environ["PLACE"].replace("127.0.0.1", network.near)
            del environ["PEERLANE_INTERFACE"]
        environs[2]["PEERLANE_RUNTIME_DIR"] = str(tmp_path / "there")
        apart = [*network.prefix, "unshare", "--pid", "--fork", "--mount-proc"]
        ends = run(program, environs, [[], [], apart])
    assert ends == [
        (0, "False 2 [True, True, False]\n", ""),
        (0, "False 2 [True, True, False]\n", ""),
        (0, "True 2 [False, False, True]\n", ""),
    ]


@pytest.mark.parametrize("run_machines", [torchrun, by_address])
def test_groups_of_one_job_over_machines_follow_one_another(run_machines: RunMachines) -> None:
    program = """
for number in range(3):
    with joined(timeout=30), joined(timeout=30, name="other") as other: say(number, other.size)
"""
    ends = run(program, run_machines("aab", free_port()))
    assert ends == [(0, "0 3\n1 3\n2 3\n", "")] * 3


def test_group_without_secret_over_machines_is_refused_in_each_rank() -> None:
    ends = run("refused(lambda: joined(timeout=30))", torchrun("ab", free_port(), PEERLANE_SECRET=""))
    for _, output, _ in ends:
        assert output.startswith("AccessDenied PEER_UNREACHABLE Group: other machines need a secret"), output
        assert "PEERLANE_SECRET" in output
    ends = run("refused(lambda: joined(timeout=30))", by_address("ab", free_port(), PEERLANE_SECRET=""))
    for rank, (_, output, _) in enumerate(ends):
        who, mine = f"rank {1 - rank} is on machine '{'ba'[rank]}'", f"this rank on '{'ab'[rank]}'"
        assert output.startswith(f"AccessDenied PEER_UNREACHABLE Group: {who}, and {mine}"), output
        assert "PEERLANE_SECRET" in output


@pytest.mark.parametrize("run_machines", [torchrun, by_address])
def test_group_with_another_secret_is_refused_and_rank_0_names_who_did_not_come(
    run_machines: RunMachines,
) -> None:
    environs = run_machines("ab", free_port())
    environs[1]["PEERLANE_SECRET"] = "what only this rank knows"
    (_, first, _), (_, second, _) = run("refused(lambda: joined(timeout=10))", environs)
    assert second.startswith("AccessDenied PEER_UNREACHABLE Group: rank 0 cannot be reached: "), second
    assert "was started with another secret: set the same PEERLANE_SECRET on all machines" in second
    assert first.startswith("WaitTimeout WAIT_TIMEOUT Group: rank 1 "), first
    assert "did not come" in first


@pytest.mark.parametrize("run_machines", [torchrun, by_address])
@pytest.mark.parametrize("absent", [0, 2])
def test_group_names_rank_that_did_not_come(run_machines: RunMachines, absent: int) -> None:
    environs = run_machines("aab", free_port())
    del environs[absent]
    ends = run("refused(lambda: joined(timeout=8))", environs)
    waits = (
        rf"(Group: rank \d of 3 has waited 5 s for rank {absent}; .*\n)?"
        if run_machines is by_address
        else ""
    )
    assert [code for code, _, _ in ends] == [0, 0]
    assert all(re.fullmatch(waits, errors) for _, _, errors in ends), ends
    first, second = (output for _, output, _ in ends)
    if absent:
        assert first.startswith("WaitTimeout WAIT_TIMEOUT Group: rank 2 "), first
        assert "did not come" in first
        assert second.startswith(
            ("WaitTimeout WAIT_TIMEOUT Group: rank 2 ", "PeerLost PEER_LOST Group: rank ")
        ), second
    else:
        who = (
            "the first rank of this machine did not come"
            if run_machines is torchrun
            else "rank 0 did not answer at tcp://"
        )
        assert first.startswith(f"WaitTimeout WAIT_TIMEOUT Group: {who}"), first
        who = (
            "rank 0 cannot be reached: RendezvousRelay: no rendezvous answered at tcp://"
            if run_machines is torchrun
            else who
        )
        assert second.startswith(f"WaitTimeout WAIT_TIMEOUT Group: {who}"), second


@pytest.mark.parametrize("victim", [2, 3])
def test_group_rank_elsewhere_killed_while_they_meet_is_named(victim: int) -> None:
    """Rank 4 never comes; rank 2 has the relay of its machine."""
    program = """
from peerlane.ranks.conversation import Conversation
send = Conversation.send
def send_and_report(self, word, value):
    send(self, word, value)
    if word == "hello": say("came")
Conversation.send = send_and_report
refused(lambda: joined(timeout=40))
"""
    environs = torchrun("aabbb", free_port())[:4]
    with started(program, environs) as children:
        assert [hear(child) for child in children] == ["came"] * 4
        begin = time.monotonic()
        children[victim].send_signal(signal.SIGKILL)
        ends = ended(children)
    assert time.monotonic() - begin < 20
    for rank in (0, 1):
        assert ends[rank][1].startswith("PeerLost PEER_LOST Group: rank "), ends[rank]
        assert f"rank {victim} (pid {children[victim].pid} on " in ends[rank][1]


def test_group_rank_elsewhere_that_closes_ends_waits_for_its_messages() -> None:
    program = """
group = joined(timeout=30)
if group.rank == 1:
    group.close()
else:
    begin = time.monotonic()
    error = refused(lambda: group._conversation.receive("Group.channel", "nothing", 1, begin + 40))
    assert time.monotonic() - begin < 20 and error.rank == 1 and error.detail.pid == 0
    group.close()
"""
    ends = run(program, torchrun("aba", free_port()))
    for rank in (0, 2):
        assert ends[rank] == (
            0,
            "PeerLost PEER_LOST Group.channel: rank 1 did not come: it has closed its group\n",
            "",
        )
    assert ends[1] == (0, "", "")


def test_group_over_machines_leaves_nothing_in_a_rendezvous_that_goes_on(node: Node) -> None:
    node()
    program = "for _ in range(2): joined(timeout=30).close()"
    with (
        RendezvousServer(4, machines="127.0.0.1:0", secret=SECRET.encode()) as server,
        RendezvousRelay(f"127.0.0.1:{server.machines[1]}", secret=SECRET.encode()) as relay,  # type: ignore[index]
    ):
        environs = torchrun("aabb", 1)
        for rank, environ in enumerate(environs):
            environ |= (relay if rank > 1 else server).environment(rank, rank % 2)
        ends = run(program, environs)
        assert ends == [(0, "", "")] * 4
        until(lambda: not any(server._loop.meeting._folders.values()))


def test_group_over_machines_accuses_no_rank_that_waits_for_one_elsewhere() -> None:
    """Rank 0 waits for rank 1, which waits for rank 2; within a machine a true deadlock is named."""
    program = """
group = joined(timeout=30)
if group.rank == 2:
    time.sleep(3)  # longer than the detector needs
    group._conversation.send("go", b"on")
    group.close()
else:
    channel = group.channel(1 - group.rank)
    if group.rank == 1:
        assert group._conversation.receive("Group", "go", 2, time.monotonic() + 30) == b"on"
        channel.notify(0)
    else:
        channel.wait(0, timeout=40)
    error = refused(lambda: channel.wait(1, timeout=40))
    assert "rank 0" in str(error) and "rank 1" in str(error)
"""
    ends = run(program, torchrun("aab", free_port()))
    for code, output, errors in ends[:2]:
        assert (code, errors) == (0, "")
        assert output.startswith("Deadlock DEADLOCK"), output
    assert ends[2] == (0, "", "")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"MASTER_ADDR": ""}, "set MASTER_ADDR, the address of rank 0's machine, or"),
        ({"PEERLANE_PORT": ""}, "set PEERLANE_PORT, a free port there, or"),
        ({"SLURM_LOCALID": ""}, "set LOCAL_RANK, each rank's number on its machine, or"),
        ({"PEERLANE_PORT": "70000"}, "PEERLANE_PORT is '70000'; valid are 1 to 65535"),
        ({"PEERLANE_PORT": "", "MASTER_PORT": "65535"}, "MASTER_PORT is '65535'; valid are 1 to 65534"),
        ({"PEERLANE_SECRET": "short"}, "the secret has 5 bytes; 16 are the least"),
        ({"PEERLANE_MACHINE": "b\n"}, "PEERLANE_MACHINE is 'b\\n'; valid are 1 to 64 printable ASCII"),
    ],
)
def test_group_over_machines_with_impossible_variable_is_refused(
    change: dict[str, str], named: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node()
    environment = slurm("ab", 1, **change)[1]
    for name in set(os.environ) - set(environment):
        monkeypatch.delenv(name)
    for name, value in environment.items():
        if name.startswith(("SLURM", "PEERLANE_P", "PEERLANE_SECRET", "PEERLANE_MACHINE", "MASTER")):
            monkeypatch.setenv(name, value)
    with pytest.raises(pl.InvalidValue) as refused:
        pl.Group(timeout=5)
    assert named in str(refused.value)


def test_group_over_machines_whose_port_is_taken_raises_busy() -> None:
    with socket.create_server(("", 0)) as taken:
        number = str(taken.getsockname()[1])
        (ended_first,) = run("refused(joined)", torchrun("ab", 1, PEERLANE_PORT=number)[:1])
    assert ended_first[1].startswith("Busy BUSY Group: PEERLANE_PORT, the same on all"), ended_first
    assert f"cannot listen at tcp://0.0.0.0:{number}" in ended_first[1]


def test_group_over_machines_with_unlike_nodes_is_refused() -> None:
    environs = by_address("ab", free_port())
    for rank, environ in enumerate(environs):
        environ["PEERLANE_NODE"] = f"name=unlike-{os.getpid()}-{rank},devices={rank + 2}"
    ends = run("refused(lambda: joined(timeout=20))", environs)
    assert any("NODE_MISMATCH" in output and "PEERLANE_NODE" in output for _, output, _ in ends), ends


def test_group_by_callable_over_machines_is_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node()

    def other(content: bytes) -> list[bytes]:
        mine = own_machine().encode()
        return [content, content.replace(mine, b"elsewhere")]

    with pytest.raises(
        pl.AccessDenied, match="rank 1 is on machine 'elsewhere', and this rank on"
    ) as refused:
        pl.Group(0, 2, rendezvous=other, timeout=5)
    assert refused.value.fault is Fault.PEER_UNREACHABLE
    assert "tcp://host:port" in str(refused.value)


def test_machine_is_same_in_all_processes_and_differs_by_runtime_directory(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folders = [str(tmp_path_factory.mktemp("runtime", numbered=True)) for _ in range(2)]
    first, second, again = (own_machine({"PEERLANE_RUNTIME_DIR": each}) for each in (*folders, folders[0]))
    assert first == again != second
    assert own_machine({"PEERLANE_MACHINE": "a name"}) == "a name"


def test_relay_lingers_until_processes_of_its_machine_have_left(node: Node) -> None:
    node()
    with RendezvousServer(3, machines="127.0.0.1:0", secret=SECRET.encode()) as server:
        assert server.machines is not None
        relay = RendezvousRelay(f"127.0.0.1:{server.machines[1]}", secret=SECRET.encode())
        lines = [Rendezvous(relay.address, rank, 3) for rank in (1, 2)]
        relay.linger(20)
        lines[0].close()
        lines[1].put("still", b"here")
        lines[1].close()
        until(lambda: relay._is_closing)
        assert Rendezvous(server.address, 0, 3).get("still", timeout=10) == b"here"
