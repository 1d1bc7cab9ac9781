"""Refuses versions of torch that peerlane was never run with, before anything uses their interfaces."""

from __future__ import annotations

from torch.version import __version__ as _version  # which is there while torch is being imported, too

from peerlane.support import torch_name

#: The oldest and the newest version that the tests were run with.
_RUN = {"cuda": ((2, 13), (2, 13))}.get(torch_name.name, ((2, 12), (2, 15)))

if not _RUN[0] <= tuple(map(int, _version.split(".")[:2])) <= _RUN[1]:
    _words = " to ".join(dict.fromkeys(f"{major}.{minor}" for major, minor in _RUN))
    raise ImportError(
        f"peerlane has no device {torch_name.name!r} and no back-end of torch.distributed for torch {_version}: with "
        f"this device it was run with torch {_words} alone. Install torch {_words}, or a newer peerlane"
    )
