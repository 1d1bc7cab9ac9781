"""The machine of a vendor's dialect, put together of its concepts."""

from __future__ import annotations

from peerlane.dialects.gpu.attributes import Attributes
from peerlane.dialects.gpu.batches import Batches
from peerlane.dialects.gpu.callbacks import Callbacks
from peerlane.dialects.gpu.contexts import Contexts
from peerlane.dialects.gpu.copies import Copies
from peerlane.dialects.gpu.events import Events
from peerlane.dialects.gpu.failures import Failures
from peerlane.dialects.gpu.graphs.graphs import Graphs
from peerlane.dialects.gpu.ipc import Ipc
from peerlane.dialects.gpu.locations import Locations
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.managed import Managed
from peerlane.dialects.gpu.memory import Memory
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.pool_sharing import PoolSharing
from peerlane.dialects.gpu.pools import Pools
from peerlane.dialects.gpu.regions import Regions
from peerlane.dialects.gpu.reuse import Reuse
from peerlane.dialects.gpu.streams import Streams
from peerlane.dialects.gpu.unusable import Unusable
from peerlane.dialects.gpu.values import Values
from peerlane.dialects.gpu.vendor import Vendor
from peerlane.dialects.gpu.virtual_memory import VirtualMemory


class Gpu:
    """The machine of one vendor's dialect, one concept an attribute."""

    def __init__(self, vendor: Vendor) -> None:
        self.vendor = vendor
        self.machine = GpuMachine(vendor)
        self.failures = Failures(self.machine)
        self.contexts = Contexts(self.machine)
        self.streams = Streams(self.machine)
        self.unusable = Unusable(self.machine, self.streams)
        self.callbacks = Callbacks(self.machine, self.streams)
        self.locations = Locations(self.machine)
        self.regions = Regions(self.machine)
        self.peers = Peers(self.machine, self.regions)
        self.reuse = Reuse(self.machine, self.streams)
        self.copies = Copies(self.machine, self.streams, self.regions, self.peers)
        self.events = Events(self.machine, self.streams, self.reuse)
        self.memory = Memory(self.machine, self.streams, self.regions, self.peers, self.reuse)
        self.pools = Pools(self.machine, self.peers, self.reuse, self.memory)
        self.virtual_memory = VirtualMemory(self.machine, self.streams, self.regions, self.peers, self.reuse)
        self.ipc = Ipc(self.machine, self.streams, self.peers, self.pools, self.virtual_memory)
        self.pool_sharing = PoolSharing(self.machine, self.pools, self.ipc)
        self.managed = Managed(self.machine, self.streams, self.regions)
        self.attributes = Attributes(self.machine, self.regions, self.virtual_memory)
        self.values = Values(self.machine, self.streams, self.regions, self.peers)
        self.batches = Batches(vendor, self.unusable.reported)
        self.graphs = Graphs(self.machine, self.streams, self.regions, self.peers)

    def reset_device(self) -> None:
        """End all that this process has on this thread's device: memory, streams, events, peer access, flags.

        Queued work is waited for.

        Raises Error: the first failure of that work; everything has ended nevertheless.
        """
        ordinal = self.machine.context().device.ordinal
        self.machine.flags.drop(ordinal)
        self.peers.forget(ordinal)
        self.machine.release(ordinal, all_references=True)

    def begin_anew(self) -> None:
        """Reset to the state of a new process, which has not asked for devices yet."""
        self.machine.begin_anew()
        self.failures.forget()
