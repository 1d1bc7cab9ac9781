"""Refuses versions of torch that peerlane was never run with, before anything uses their interfaces."""

from __future__ import annotations

from torch.version import __version__ as _version  # which is there while torch is being imported, too

_OLDEST, _NEWEST = (2, 12), (2, 15)

if not _OLDEST <= tuple(map(int, _version.split(".")[:2])) <= _NEWEST:
    _major, _minor = _NEWEST
    _range = f"{_OLDEST[0]}.{_OLDEST[1]} to {_major}.{_minor}"
    raise ImportError(
        f"peerlane has no device and no back-end for torch {_version}: this peerlane was run with torch {_range} "
        f"alone. Install one of these (pip install 'torch>={_OLDEST[0]}.{_OLDEST[1]},<{_major}.{_minor + 1}'), or a "
        "newer peerlane"
    )
