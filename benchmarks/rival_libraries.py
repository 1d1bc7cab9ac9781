"""The libraries that peerlane is compared with, what each can do, and the modes in which it is run.

An MPI has several methods for shared memory and leaves the choice to its user.  Each method is a variant, and at
each size the quickest one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from peerlane.cli.bench.ranks import (
    ALL_GATHER,
    ALL_REDUCE,
    BARRIER,
    BROADCAST,
    COLLECTIVES,
    MESSAGE,
    TASKS,
    WRITE,
)


@dataclass(frozen=True, slots=True)
class Variant:
    """One mode of a library.

    Attributes
    ----------
    settings : dict
        The variables of the environment that choose it.
    tasks : tuple of str
        The tasks to which it makes a difference.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[str, ...] = TASKS


@dataclass(frozen=True, slots=True)
class Launcher:
    """How an MPI starts its ranks.

    Attributes
    ----------
    words : tuple of str
        Its own program with options; plain ``mpiexec`` belongs to the MPI that was installed last.
    bound : tuple of str
        More options where each rank can have a core of its own: MPIs advise to bind it there.
    """

    words: tuple[str, ...]
    bound: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rival:
    """How to find and start a library.

    Attributes
    ----------
    tasks : tuple of str
        The tasks that it can do.
    modules : tuple of str
        The modules that its Python must have.
    kind : str
        Its name in ``rival_rank.py``.
    launcher : Launcher or None
        None: its ranks are started one by one.
    variants : dict
        Its modes by name.
    fewer : int
        It repeats an operation so many times less often than others, because it is slow.
    """

    tasks: tuple[str, ...]
    modules: tuple[str, ...]
    kind: str
    launcher: Launcher | None = None
    variants: Mapping[str, Variant] = field(default_factory=lambda: {"": Variant()})
    fewer: int = 1


RIVALS = {
    "mpich": Rival(
        TASKS,
        ("mpi4py", "numpy"),
        "mpi",
        Launcher(("mpiexec.hydra",), ("-bind-to", "core")),
        {
            "shared memory": Variant(),
            "messages": Variant(
                {"MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD": "2147483647"}, (BARRIER, BROADCAST, ALL_REDUCE)
            ),
        },
    ),
    "openmpi": Rival(
        TASKS,
        ("mpi4py", "numpy"),
        "mpi",
        # Its waiting ranks yield where it finds more ranks than cores; those of MPICH always do.
        Launcher(("prterun", "--map-by", ":OVERSUBSCRIBE", "--allow-run-as-root"), ("--bind-to", "core")),
        {
            "one copy": Variant(),
            "two copies": Variant(
                {"OMPI_MCA_smsc": "^cma,knem,xpmem"}, (MESSAGE, BROADCAST, ALL_GATHER, ALL_REDUCE)
            ),
            "coll sm": Variant({"OMPI_MCA_coll_sm_priority": "40"}, (BARRIER, BROADCAST, ALL_REDUCE)),
        },
    ),
    "nixl": Rival((WRITE, MESSAGE), ("nixl_cu12", "numpy"), "nixl"),
    "gloo": Rival((MESSAGE, *COLLECTIVES), ("torch",), "gloo", fewer=10),
    "pipe": Rival((MESSAGE,), (), "pipe"),
    "tcp": Rival((WRITE, MESSAGE), ("numpy",), "tcp"),
}
#: Those that are compared with peerlane on one machine, and with its transport between machines.
ON_ONE_MACHINE, BETWEEN_MACHINES = ("mpich", "openmpi", "nixl", "gloo", "pipe"), ("tcp", "nixl", "gloo")
