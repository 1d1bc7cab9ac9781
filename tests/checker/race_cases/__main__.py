"""Run cases by name, one after the other, as one rank of the program."""

from __future__ import annotations

import sys

from . import CASES
from .case import run

for name in sys.argv[1:]:
    run(CASES[name])
