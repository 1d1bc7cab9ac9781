"""Which devices of the node a process sees: ``ASCEND_RT_VISIBLE_DEVICES``, as the vendor's runtime reads it.

The sources are the vendor's documentation of the variable, and the unit tests of hicann/runtime.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import islice, pairwise

from peerlane import Device
from peerlane.dialects._shared.environment import positions

VARIABLE = "ASCEND_RT_VISIBLE_DEVICES"
_NUMBERS = re.compile(r"[0-9]*(?:,[0-9]+)*")  # a space, or any other character, ends the list
_LONGEST = 9


def visible(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that the variable shows, which the program numbers from 0; all devices without it.

    A list that names a device twice, or is not in ascending order, shows none.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return tuple(devices)
    numbers = _NUMBERS.match(text)
    assert numbers is not None  # it matches the empty text
    shown = list(islice(positions(numbers[0], len(devices), _number), len(devices)))
    if any(after <= before for before, after in pairwise(shown)):
        return ()
    return tuple(devices[position] for position in shown)


def _number(entry: str) -> int | None:
    return int(entry) if entry and len(entry.lstrip("0")) <= _LONGEST else None
