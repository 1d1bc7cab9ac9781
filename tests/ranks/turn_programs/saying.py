"""What a program of this folder saw, for the test to compare."""

from __future__ import annotations

import hashlib
import os
from typing import Any


def say(seen: Any) -> None:
    say_of(int(os.environ["RANK"]), seen)


def say_of(rank: int, seen: Any) -> None:
    print(f"saw {rank} {hashlib.sha256(bytes(seen)).hexdigest()[:16]}", flush=True)
