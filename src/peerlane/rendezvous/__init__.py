"""The rendezvous of a program's ranks: a small key-value store, barriers and gathers over a Unix socket.

``peerlane launch`` serves one to the processes that it starts; ``RendezvousServer`` serves one to processes
that something else has started.  It is for exchanging handles, not for data.  It uses no device, so that a program
may use it without the rest of peerlane.
"""

from peerlane.rendezvous.client import Rendezvous
from peerlane.rendezvous.relay import RendezvousRelay
from peerlane.rendezvous.server import RendezvousServer

__all__ = ["Rendezvous", "RendezvousRelay", "RendezvousServer"]
