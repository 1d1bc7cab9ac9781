"""The variables in which launchers tell a process its rank, the number of ranks, and its rank on its machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

from peerlane.support.records import dataclass


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables of a launcher."""

    #: ``rank``, ``size``, ``local_size``, ``local_rank``: those for this rank, the number of ranks, and the same on
    #: this machine.
    rank: str
    size: str
    local_size: str
    local_rank: str
    #: Those that identify a job.  MPICH has none, but its ranks have a common ancestor.
    job: tuple[str, ...]
    machines: str = ""  #: that for the number of machines; empty if there is none


LAUNCHERS = (
    Launcher(
        "RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "LOCAL_RANK",
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
    ),
    Launcher(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"),
    ),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", ()),
    Launcher(
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_LOCALID",
        ("SLURM_JOB_ID", "SLURM_STEP_ID"),
        "SLURM_STEP_NUM_NODES",
    ),
)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The rank of this process, and its job."""

    #: ``rank``, ``size``, ``local_rank``: ``local_rank`` is its number among the ranks of its machine, or its rank if
    #: that is unknown.
    rank: int
    size: int
    local_rank: int
    job: tuple[str, ...] = ()  #: what identifies the job
    variable: str = ""  #: the variable that has the rank; empty if it comes from arguments
    local: str = ""  #: the variable that has the local rank; empty if no variable has it
    spans: bool = False  #: whether the ranks are on several machines, by the launcher's variables


def assignment_of(environ: Mapping[str, str] = os.environ) -> Assignment | None:
    """Return a launcher's variables for this process, None without a launcher."""
    for each in LAUNCHERS:
        rank, size = (_number(environ, name) for name in (each.rank, each.size))
        if rank is None or size is None:
            continue
        local_size, local = _number(environ, each.local_size), _number(environ, each.local_rank)
        machines = _number(environ, each.machines)
        spans = machines > 1 if machines is not None else local_size is not None and local_size != size
        job = tuple(environ.get(name, "") for name in each.job)
        of_local = each.local_rank if local is not None else ""
        return Assignment(rank, size, rank if local is None else local, job, each.rank, of_local, spans)
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 8 else None
