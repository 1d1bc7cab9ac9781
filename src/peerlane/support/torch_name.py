"""Which name torch's device has in this process: ``peerlane``, or ``cuda`` for programs that say so."""

from __future__ import annotations

#: Set before torch is imported.
is_cuda = False
