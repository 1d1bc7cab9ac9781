"""Ranks as processes on two machines: each process is told by ``PEERLANE_MACHINE`` on which one it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from helpers.launcher_variables import without_launcher
from helpers.namespaces import OtherNetwork
from helpers.ports import free_port

SECONDS = 60.0
# Without UCX_TLS UCX takes shared memory on one machine.
TCP = {"UCX_TLS": "tcp,self", "PEERLANE_INTERFACE": "lo"}
SECRET = "a secret of two machines"

Environment: TypeAlias = "dict[str, str]"
#: By rank: the exit code, what it printed, and its errors.
Ends: TypeAlias = "list[tuple[int, str, str]]"


def torchrun(machines: str, port: int, **more: str) -> list[Environment]:
    """Return what torchrun tells each rank; ``machines`` has a letter for each rank, its machine."""
    return [
        {
            **without_launcher(),
            "PEERLANE_MACHINE": machine,
            "PEERLANE_SECRET": SECRET,
            "PEERLANE_INTERFACE": "lo",
            "RANK": str(rank),
            "WORLD_SIZE": str(len(machines)),
            "LOCAL_RANK": str(machines[:rank].count(machine)),
            "LOCAL_WORLD_SIZE": str(machines.count(machine)),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": f"job {os.getpid()} {port}",
            **more,
        }
        for rank, machine in enumerate(machines)
    ]


def slurm(machines: str, port: int, **more: str) -> list[Environment]:
    """Return what srun tells each rank, and a user who says where rank 0 is."""
    return [
        {
            **without_launcher(),
            "PEERLANE_MACHINE": machine,
            "PEERLANE_SECRET": SECRET,
            "PEERLANE_INTERFACE": "lo",
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": str(len(machines)),
            "SLURM_LOCALID": str(machines[:rank].count(machine)),
            "SLURM_STEP_NUM_NODES": str(len(set(machines))),
            "SLURM_JOB_ID": f"{os.getpid()}{port}",
            "MASTER_ADDR": "localhost",
            "PEERLANE_PORT": str(port),
            **more,
        }
        for rank, machine in enumerate(machines)
    ]


def by_address(machines: str, port: int, **more: str) -> list[Environment]:
    """Return the variables that ``ADDRESSED`` reads."""
    return [
        {
            **without_launcher(),
            "PEERLANE_MACHINE": machine,
            "PEERLANE_SECRET": SECRET,
            "PEERLANE_INTERFACE": "lo",
            "PLACE": f"{rank} {len(machines)} tcp://127.0.0.1:{port}",
            **more,
        }
        for rank, machine in enumerate(machines)
    ]


def on_two(
    network: OtherNetwork, machines: str, **more: str
) -> tuple[list[Environment], list[Sequence[str]]]:
    """Return the environments and the prefixes of ranks on the machines ``a``, here, and ``b``, in the network."""
    environs = by_address(machines, free_port(), **{**TCP, **more})
    for environ, machine in zip(environs, machines, strict=True):
        environ["PLACE"] = environ["PLACE"].replace("127.0.0.1", network.near)
        environ["PEERLANE_INTERFACE"] = network.interfaces[machine == "b"]
    return environs, [network.prefix if machine == "b" else [] for machine in machines]


#: The beginning of a program: `joined` returns its group, as the variables say.
JOINED = """
import os, sys, time
import peerlane as pl
def joined(**options):
    place = os.environ.get("PLACE")
    if place is None:
        return pl.Group(**options)
    rank, size, address = place.split()
    return pl.Group(int(rank), int(size), rendezvous=address, **options)
def over_tcp(channel):
    assert "tcp/" in str(channel.route), channel.route
    return channel
def say(*words):
    print(*words, flush=True)
def refused(make):
    try:
        make()
    except pl.Error as error:
        say(type(error).__name__, error.fault.name, error)
        return error
"""


@contextlib.contextmanager
def started(
    program: str, environs: Sequence[Mapping[str, str]], prefixes: Sequence[Sequence[str]] = ()
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start a process for each environment; kill those that still run at the end."""
    children: list[subprocess.Popen[str]] = []
    try:
        for number, environ in enumerate(environs):
            prefix = prefixes[number] if prefixes else ()
            words = [*prefix, sys.executable, "-c", JOINED + program]
            pipe = subprocess.PIPE
            children.append(
                subprocess.Popen(words, env=environ, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
            )
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def hear(child: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        code, (_, errors) = child.wait(SECONDS), child.communicate(timeout=SECONDS)
        raise AssertionError(f"process {child.pid} ended with {code} before it had said all:\n{errors}")
    return line.rstrip("\n")


def send_line(children: Sequence[subprocess.Popen[str]], line: str = "") -> None:
    """Write a line to the standard input of each."""
    for child in children:
        assert child.stdin is not None
        print(line, file=child.stdin, flush=True)


def ended(children: Sequence[subprocess.Popen[str]], seconds: float = SECONDS) -> Ends:
    """Wait until all have ended by themselves."""
    outputs = [child.communicate(timeout=seconds) for child in children]
    return [(child.returncode, *each) for child, each in zip(children, outputs, strict=True)]


def run(
    program: str,
    environs: Sequence[Mapping[str, str]],
    prefixes: Sequence[Sequence[str]] = (),
    seconds: float = SECONDS,
) -> Ends:
    """Run a process for each environment until all have ended by themselves."""
    with started(program, environs, prefixes) as children:
        return ended(children, seconds)
