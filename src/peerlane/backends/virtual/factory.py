"""How a node of virtual devices is entered and left."""

from __future__ import annotations

import os
import weakref

from peerlane import _core
from peerlane.backends.virtual.backend import VirtualBackend, refuse_other_window
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.state import refuse_other_shape


class VirtualFactory:
    """The factory of back-end ``virtual``; see :class:`~peerlane.backend.interface.Factory`."""

    def configure(self, settings: str, source: str) -> NodeConfig:
        _core.check_usable()
        return NodeConfig.resolve(settings, source=source)

    def enter(self, config: NodeConfig, present: VirtualBackend | None) -> VirtualBackend:
        _core.check_usable()
        if present is not None and present.config == config:
            present.ready()
            return present
        if present is not None and present.config.name == config.name:
            # Both nodes use one file: the process must give up its own slot there first.
            refuse_other_window(config)
            refuse_other_shape(config)
            present.close()
        backend = VirtualBackend(config)
        _entered.add(backend)
        return backend


_entered: weakref.WeakSet[VirtualBackend] = weakref.WeakSet()


def _after_fork() -> None:
    if _core.begin_anew():
        for backend in _entered:
            if not backend.is_closed:
                backend.inherit()


os.register_at_fork(after_in_child=_after_fork)

FACTORY = VirtualFactory()
