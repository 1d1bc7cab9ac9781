"""Which name torch's device has in this process: ``peerlane``, or a vendor's for programs that say so."""

from __future__ import annotations

OWN = "peerlane"

#: Set before torch is imported.
name = OWN
