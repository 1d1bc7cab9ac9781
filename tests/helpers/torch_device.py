"""Programs on the torch device, each a process with a deadline; what each has found."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

from peerlane.testing.procs import run_python

_HEAD = """
import json, sys
import torch
import peerlane.torch

torch.set_num_threads(1)
found = {}


def caught(call, *args, **options):
    \"\"\"Return the kind and the text of what a call raises.\"\"\"
    try:
        call(*args, **options)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


"""
_TAIL = """
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


def run_on_device(folder: Path, program: str, *, schedule: str = "eager", node: str = "devices=2") -> Any:
    """Run a program that puts what it finds into ``found``, and return that."""
    source, result = folder / "program.py", folder / "found.json"
    source.write_text(_HEAD + textwrap.dedent(program) + _TAIL)
    settings = {"PEERLANE_SCHEDULE": schedule, "PEERLANE_NODE": node, "OMP_NUM_THREADS": "1"}
    # The first one compiles the device.
    done = run_python([str(source), str(result)], timeout=280, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text())
