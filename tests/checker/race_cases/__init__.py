"""Small programs with a known race, or with none, that measure what the checker finds.

Each is the counterpart of a GASPI case of RMARaceBench (RWTH Aachen, BSD-3-Clause), written anew for channels.
``peerlane check -n 2 -m checker.race_cases CASE`` runs one of them, and ``python -m checker.race_cases.score`` runs
all of them and prints precision and recall; both with the folder ``tests`` in ``PYTHONPATH``.  README.md has the
rules by which the cases were carried over, and the cases that have no counterpart.
"""

from . import conflict, misc, sync, threads
from .case import CASES, Case

__all__ = ["CASES", "Case", "conflict", "misc", "sync", "threads"]
