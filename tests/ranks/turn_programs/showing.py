"""What a program of this folder saw, for the test to compare."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def show(seen: Any) -> None:
    show_of(int(os.environ["RANK"]), seen)


def show_of(rank: int, seen: Any) -> None:
    print(f"saw {rank} {hashlib.sha256(bytes(seen)).hexdigest()[:16]}", flush=True)
