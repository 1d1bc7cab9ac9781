"""Mooncake's transfer engine on virtual devices: ``from mooncake.engine import TransferEngine``.

``docs/reference/mooncake.md`` lists each method.  ``_segments.py`` has what an engine has registered, ``_peers.py``
the engines that it transfers with, ``_service.py`` the requests between engines, and ``_batches.py`` asynchronous
transfers.
"""

from peerlane.dialects.mooncake._failures import explain as explain

__all__ = ["explain"]
