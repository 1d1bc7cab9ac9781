"""Lets scripts of the build import modules of peerlane that need only the standard library, from their source."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "peerlane"


def use_sources() -> None:
    """Let packages be imported without their ``__init__``, which needs what the build makes."""
    dialects = [f"peerlane.dialects.{each.name}" for each in PACKAGE.glob("dialects/*/")]
    for name in ("peerlane", "peerlane.dialects", *dialects):
        package = ModuleType(name)
        package.__path__ = [str(PACKAGE.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
