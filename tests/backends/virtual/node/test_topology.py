"""Which devices reach each other, by which link, and the reason where they do not."""

from __future__ import annotations

import time

import pytest

from peerlane.backends.virtual.node import LinkKind, NodeConfig, Topology
from peerlane.errors import Fault, InvalidValue

pytestmark = pytest.mark.any_schedule

ISLANDS = NodeConfig({"profile": "two-islands"}).topology


def test_reachable_is_true_only_within_one_switch() -> None:
    for a in range(8):
        for b in range(8):
            assert ISLANDS.reachable(a, b) == (a != b and a // 4 == b // 4)
            assert (ISLANDS.reason(a, b) == "") == ISLANDS.reachable(a, b)


def test_reason_of_unreachable_pair_names_the_cause() -> None:
    assert ISLANDS.reason(0, 5) == (
        "virtual:0 is on switch 0, virtual:5 on switch 1; peer access needs one switch"
    )
    assert "the device itself" in ISLANDS.reason(3, 3)
    closed = NodeConfig({"p2p": [[0, 1], [0, 0]]}).topology
    assert "p2p[1][0], from virtual:1 to virtual:0, is 0" in closed.reason(1, 0)
    incapable = Topology(devices=2, switch_of=(0, 0), peer_access=False)
    assert not incapable.reachable(0, 1)
    assert incapable.reason(0, 1) == "this chip has no peer access"


def test_p2p_matrix_overrides_switches_in_each_direction() -> None:
    node = NodeConfig({"devices": 2, "switch": 1, "p2p": [[0, 1], [0, 0]]}).topology
    assert node.reachable(0, 1)
    assert not node.reachable(1, 0)
    assert not node.reachable(0, 0)


@pytest.mark.parametrize(
    ("profile", "inside"),
    [
        ("default", LinkKind.PIX),
        ("mi300x", LinkKind.XGMI),
        ("ascend-a2", LinkKind.HCCS),
        ("ascend-950", LinkKind.UB),
        ("hgx", LinkKind.NV),
    ],
)
def test_link_follows_profile_and_switch(profile: str, inside: LinkKind) -> None:
    node = NodeConfig({"profile": profile, "devices": 3, "switch": 2}).topology
    assert node.link(0, 0) is LinkKind.SELF
    assert node.link(0, 1) is node.link(1, 0) is inside
    assert node.link(0, 2) is LinkKind.SYS
    assert [node.switch(i) for i in range(3)] == [0, 0, 1]


def test_named_link_changes_link_kind_and_not_reachable() -> None:
    node = NodeConfig({"devices": 4, "switch": 2, "link": [{"a": 2, "b": 1, "kind": "NV"}]}).topology
    assert node.link(1, 2) is node.link(2, 1) is LinkKind.NV
    assert not node.reachable(1, 2)


@pytest.mark.parametrize("device", [-1, 8])
def test_topology_query_of_unknown_device_raises_invalid_device(device: int) -> None:
    for query in (ISLANDS.reachable, ISLANDS.link, ISLANDS.reason):
        for pair in ((0, device), (device, 0)):
            with pytest.raises(InvalidValue, match=f"device {device} does not exist.* 0 to 7") as caught:
                query(*pair)
            assert caught.value.fault is Fault.INVALID_DEVICE
    with pytest.raises(InvalidValue):
        ISLANDS.switch(device)


@pytest.mark.parametrize(
    "node",
    [
        {"devices": 7, "switch": 3},
        {"profile": "two-islands"},
        {"devices": 3, "p2p": [[0, 1, 0], [0, 0, 1], [1, 1, 1]]},
        {"devices": 4, "link": [{"a": 3, "b": 1, "kind": "NV"}, {"a": 0, "b": 1, "kind": "SYS"}]},
    ],
)
def test_rows_of_topology_are_the_answers_for_each_pair(node: dict[str, object]) -> None:
    topology = NodeConfig(node).topology
    every = range(topology.devices)
    assert topology.link_rows() == [[topology.link(a, b).value for b in every] for a in every]
    assert topology.reach_rows() == [[topology.reachable(a, b) for b in every] for a in every]


def test_topology_of_1024_devices_makes_no_table() -> None:
    node = NodeConfig({"devices": 1024, "switch": 8})
    assert len(node.topology.links) == 0
    assert node.topology.p2p is None

    def seconds(topology: Topology) -> float:
        rounds = []
        for _ in range(7):
            start = time.perf_counter()
            for a in range(500):
                topology.reachable(a % topology.devices, 1)
            rounds.append(time.perf_counter() - start)
        return min(rounds)

    assert seconds(node.topology) < 10 * seconds(NodeConfig().topology)


def test_link_kind_has_printed_name_and_own_legend() -> None:
    assert [kind.value for kind in LinkKind] == [
        "X",
        "SYS",
        "NODE",
        "PHB",
        "PXB",
        "PIX",
        "NV",
        "XGMI",
        "HCCS",
        "UB",
    ]
    assert len({kind.legend for kind in LinkKind}) == len(LinkKind)
