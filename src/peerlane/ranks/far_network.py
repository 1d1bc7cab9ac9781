"""What the engine for other machines needs of this machine's network before it starts: an interface, and routes.

UCX goes on without an interface that is not up yet, and for good.  Where the longest route to a peer leads by another
interface than those it uses, it cannot connect, and a connection of the peer ends this process (facts/ucx 2).
So both are looked at before the peer learns where this process's engine is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from peerlane.errors import Refused, Unsupported, WaitTimeout
from peerlane.support import netlink
from peerlane.support.network import interfaces_of

_DEVICES = "UCX_NET_DEVICES"
_LOOK_SECONDS = 0.02

_routes: list[netlink.Route] | None = None  # as UCX has read them, which it does once in a process


def interfaces(environ: Mapping[str, str] = os.environ, master: str = "", peer: str = "") -> list[str]:
    """Return the network interfaces that the engine is to use for a peer's address; none: UCX chooses.

    They are those of ``UCX_NET_DEVICES``, else those of :func:`~peerlane.support.network.interfaces_of`.
    """
    chosen = environ.get(_DEVICES, "")
    if chosen and chosen != "all":
        return [each for each in chosen.split(",") if each]
    return interfaces_of(environ, master, peer)


def wait_until_up(call: str, names: Sequence[str], deadline: float) -> None:
    """Wait until network interfaces pass frames and have addresses.

    Raises WaitTimeout: one of them was not ready in time; the text names it and its state.
    """
    began = time.monotonic()
    for name in names:
        while True:
            try:
                interface = netlink.interface_named(name)
            except OSError:
                return  # the kernel does not answer: UCX looks by itself
            lacks = (
                interface.lacks if interface else ""
            )  # an RDMA device, or none: the engine's start refuses it
            if not lacks:
                break
            if time.monotonic() >= deadline:
                seconds = time.monotonic() - began
                raise WaitTimeout(
                    f"{call}: the network interface {name} of this machine is not ready after {seconds:.3g} s: "
                    f"{lacks}. See `ip address show {name}`; PEERLANE_INTERFACE names another one",
                    call=call,
                    detail=Refused(
                        reason="interface_not_ready", interface=name, lacks=lacks, seconds=seconds
                    ),
                )
            time.sleep(_LOOK_SECONDS)


def check_route(call: str, names: Sequence[str], address: str, peer: str) -> None:
    """Refuse a peer to which the longest route of any table leads by an interface that the engine does not use.

    Raises Unsupported: the text names the route and its interface.
    """
    global _routes
    try:
        own = [netlink.interface_named(name) for name in names]
        routes = netlink.routes() if _routes is None else _routes
    except OSError:
        return
    used = {each.number for each in own if each is not None}
    if not address or not used or None in own:  # not known, UCX chooses, or there is RDMA besides
        return
    leading = sorted((each for each in routes if each.covers(address)), key=lambda each: -each.bits)
    longest = leading[0].bits if leading else 0
    if any(each.bits == longest and each.interface in used for each in leading):
        _routes = routes
        return
    what = f"the longest route to {address} is {leading[0]}" if leading else f"no route leads to {address}"
    raise Unsupported(
        f"{call}: {peer} cannot be reached by the network interface {', '.join(names)}: {what}. UCX looks at all "
        "routing tables, also at those that no rule uses, and connects only by the interface of the longest route. "
        "Take that route away (`ip route show table all`), or name its interface with PEERLANE_INTERFACE; "
        + ("then start this process again, for UCX has read the routes" if _routes else "then try again"),
        call=call,
        detail=Refused(
            reason="route_elsewhere",
            peer=peer,
            address=address,
            interfaces=tuple(names),
            route=str(leading[0]) if leading else "",
        ),
    )
