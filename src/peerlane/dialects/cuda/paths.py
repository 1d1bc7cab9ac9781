"""The links between devices, and what they allow, as the vendor's library and ``nvidia-smi topo`` have them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Container, Sequence

from peerlane.dialects.cuda.hardware import chip_called

NVLINK = "NV"
SWITCH = -1
_STATES = {"OK": "OK", "GPU_NOT_SUPPORTED": "GNS", "IOH_TOPOLOGY_NOT_SUPPORTED": "TNS"}
_LINKS_LEGEND = {"NV#": "# NVLinks together"}
_ACCESS_LEGEND = {"GNS": "the GPU does not support it", "TNS": "the topology does not support it"}


def ends_of(device: int, joined: Sequence[Collection[int]], links: int) -> list[int | None]:
    """Return what is at the other end of each NVLink: a device, ``SWITCH``, or None for a link that is down.

    Three devices or more that are all joined have a switch between them, and all their links go there.  Else a device
    spreads its links evenly, and two devices have as many as the one with more peers has for each (facts/cuda 7.3).

    ``joined``: the devices that each device is joined with.
    ``links``: how many links a device has.
    """
    return _ends(device, joined, links, _on_switches(joined))


def _on_switches(joined: Sequence[Collection[int]]) -> set[int]:
    """Return the devices whose links go to a switch."""
    groups = Counter(frozenset((device, *peers)) for device, peers in enumerate(joined))
    whole = [group for group, members in groups.items() if members == len(group) > 2]
    return set().union(*whole)


def _ends(
    device: int, joined: Sequence[Collection[int]], links: int, switched: Container[int]
) -> list[int | None]:
    if device in switched:
        return [SWITCH] * links
    peers = sorted(joined[device])
    shares = {each: max(1, links // max(len(peers), len(joined[each]))) for each in peers}
    ends = [each for each in peers for _ in range(shares[each])][:links]
    return [*ends, *[None] * (links - len(ends))]


def access_state(*, can_access: bool, is_beside: bool) -> str:
    """Return whether a device may reach another one, which is on its switch or not: a name of nvmlGpuP2PStatus_t."""
    if can_access:
        return "OK"
    return "GPU_NOT_SUPPORTED" if is_beside else "IOH_TOPOLOGY_NOT_SUPPORTED"


def shown(
    name: str, kinds: Sequence[Sequence[str]], access: Sequence[Sequence[bool]], switches: Sequence[int]
) -> tuple[tuple[list[list[str]], dict[str, str]], tuple[list[list[str]], dict[str, str]], dict[str, str]]:
    """Return what ``nvidia-smi topo`` shows of a node.

    ``name``: the name of the devices.
    ``kinds``: the kind of link between each two devices.
    ``access``: which device may reach which.
    ``switches``: the switch of each device.
    Returns the matrix of links with the legend of its own words, that of access likewise, and further columns.
    """
    every = range(len(kinds))
    joined = [frozenset(b for b in every if kinds[a][b] == NVLINK) for a in every]
    switched = _on_switches(joined)
    links = [Counter(_ends(a, joined, chip_called(name).links, switched)) for a in every]

    def link(a: int, b: int) -> str:
        number = links[a][b] + links[a][SWITCH]
        return f"{NVLINK}{number or ''}" if b in joined[a] else kinds[a][b]

    def state(a: int, b: int) -> str:
        is_beside = switches[a] == switches[b]
        return _STATES[access_state(can_access=access[a][b], is_beside=is_beside)] if a != b else kinds[a][b]

    return (
        ([[link(a, b) for b in every] for a in every], _LINKS_LEGEND),
        ([[state(a, b) for b in every] for a in every], _ACCESS_LEGEND),
        {"CPU Affinity": f"0-{(os.cpu_count() or 1) - 1}", "NUMA Affinity": "0", "GPU NUMA ID": "N/A"},
    )
