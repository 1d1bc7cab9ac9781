"""A meeting place for the ranks of a program: a small key-value store, barriers and gathers over a Unix socket.

``peerlane launch`` serves one to the processes that it starts; ``RendezvousServer`` serves one to processes
that were started in another way.  It is for exchanging handles, not for data: nothing here touches a device,
and a program that uses nothing else of peerlane may use it.
"""

from peerlane.rendezvous.client import Rendezvous
from peerlane.rendezvous.server import RendezvousServer

__all__ = ["Rendezvous", "RendezvousServer"]
