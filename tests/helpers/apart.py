"""Run a script, or ``-m`` and a module; its ranks take each other for ranks of other machines.

The ranks are processes, and ``RANK`` names each.
"""

from __future__ import annotations

import os
import runpy
import sys

from helpers.two_machines import TCP
from peerlane.ranks import joining

os.environ.update(TCP)
joining.own_machine = lambda: f"machine of rank {os.environ.get('RANK', os.getpid())}"

del sys.argv[0]
if sys.argv[0] == "-m":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
