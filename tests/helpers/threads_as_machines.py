"""A plugin for an inner pytest: ranks that are threads of one process take each other for ranks of other machines."""

from __future__ import annotations

import threading

from peerlane.ranks import joining

joining.own_machine = lambda: f"machine of thread {threading.get_ident()}"
