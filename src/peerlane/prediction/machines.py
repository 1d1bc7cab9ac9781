"""The links of the machines that profiles name, with the rates that others have measured.

``docs/facts/links.md`` has the source of each figure.  A machine without measured figures is not here.
"""

from __future__ import annotations

from dataclasses import replace

from peerlane.errors import BadArgument, Unsupported
from peerlane.support.records import dataclass

#: The number of the first machine's host among the ends of a copy; those of further machines are below it.
HOST = -1

Link = tuple[str, int, int]  #: its kind, and the devices that it belongs to; ``HOST`` where it has only one


@dataclass(frozen=True, slots=True)
class Machine:
    """The links of a machine, and of several machines of that kind.  All rates are bytes a second in one direction.

    Devices are counted through all machines.
    """

    profile: str  #: the profile that it is for
    devices: int  #: the devices of one machine; more ranks are on several machines
    #: Whether each device has a link of its own to each other one.  Otherwise each has a port at a switch.
    is_mesh: bool
    #: What a copy gets from a port, or from a link of a mesh; 0 if devices do not reach one another.
    peer: float
    collective: float  #: what kernels of the vendor's library get from the same
    host: float  #: the link between a device and the host; 0 if nobody has published it
    memory: float = 0.0  #: a copy within a device; 0 if nobody has published it
    network: float = 0.0  #: the network interface of a device; 0 if nobody has published it
    #: What kernels get from a port where the switch reduces and repeats; 0 if it cannot.
    reducing_switch: float = 0.0
    small: float = 0.0  #: the most that the protocol for small collectives gets

    def rate(self, link: Link) -> float:
        """Return what a copy gets from a link; 0 if it is not known."""
        kind = link[0]
        if kind.startswith("network"):
            return self.network
        if kind == "memory":
            return self.memory
        return self.host if kind in ("from host", "to host") else self.peer

    def device(self, machine: int, number: int) -> int:
        """Return the number of a machine's device among those of all machines."""
        return machine * self.devices + number

    def route(self, src: int, dst: int) -> tuple[Link, ...]:
        """Return the links of a copy; without a link between two devices of a machine it goes through the host."""
        if self._machine_of(src) != self._machine_of(dst):
            return across(self._interface(src, dst), self._interface(dst, src))
        if src == dst:
            return () if src <= HOST else (("memory", src, HOST),)
        if src <= HOST:
            return (("from host", dst, HOST),)
        if dst <= HOST:
            return (("to host", src, HOST),)
        if not self.peer:
            return ("to host", src, HOST), ("from host", dst, HOST)
        if self.is_mesh:
            return (("link", src, dst),)
        return ("out", src, HOST), ("in", dst, HOST)

    def _machine_of(self, end: int) -> int:
        return HOST - end if end <= HOST else end // self.devices

    def _interface(self, end: int, other: int) -> int:
        """Return the device whose network interface an end uses.

        Memory of a host uses that of the device which has the other end's number in its machine, or of the first one.
        """
        return self.device(HOST - end, max(other, 0) % self.devices) if end <= HOST else end


def across(src: int, dst: int) -> tuple[Link, ...]:
    """Return the links from a device's network interface to one of another machine."""
    return ("network out", src, HOST), ("network in", dst, HOST)


#: Seconds until the first byte of a copy moves: our choice, as is said in the guide.
COPY_LATENCY = 2e-6

_GB = 1e9

_H100 = Machine(
    profile="h100-8",
    devices=8,
    is_mesh=False,
    peer=376 * _GB,
    collective=18 * 20.6 * _GB,
    host=52 * _GB,
    memory=1450 * _GB,
    network=48 * _GB,
    reducing_switch=0.85 * 18 * 20.6 * _GB,
    small=141 * _GB,
)

MACHINES = {
    each.profile: each
    for each in (
        _H100,
        replace(_H100, profile="h200-8", memory=2005 * _GB),
        Machine(
            profile="gb200-4",
            devices=4,
            is_mesh=False,
            peer=765 * _GB,
            collective=18 * 40.1 * _GB,
            host=197 * _GB,
            small=141 * _GB,
        ),
        Machine(
            profile="mi300x",
            devices=8,
            is_mesh=True,
            peer=48 * _GB,
            collective=48 * _GB,
            host=55 * _GB,
            memory=2055 * _GB,
            network=48 * _GB,
        ),
        Machine(profile="rtx4090-2", devices=2, is_mesh=False, peer=0.0, collective=0.0, host=26 * _GB),
        Machine(
            profile="ascend-a2",
            devices=8,
            is_mesh=True,
            peer=22.5 * _GB,
            collective=17 * _GB,
            host=0.0,
            network=22.6 * _GB,
        ),
    )
}


def machine_of(profile: str, call: str) -> Machine:
    """Return the machine of a profile.

    Raises Unsupported: nobody has published rates of its links, or no profile has that name.
    """
    try:
        return MACHINES[profile]
    except KeyError:
        raise Unsupported(
            f"{call}: there are no published rates for the links of {profile!r}; valid: {', '.join(MACHINES)}",
            call=call,
            detail=BadArgument("profile", profile, choices=tuple(MACHINES)),
        ) from None


def name_of(link: Link) -> str:
    """Return a link in words."""
    kind, one, other = link
    if kind == "link":
        return f"device {one} to device {other}"
    return {
        "memory": f"memory of device {one}",
        "from host": f"host to device {one}",
        "to host": f"device {one} to host",
        "out": f"port of device {one}, out",
        "in": f"port of device {one}, in",
        "network out": f"network of device {one}, out",
        "network in": f"network of device {one}, in",
    }[kind]
