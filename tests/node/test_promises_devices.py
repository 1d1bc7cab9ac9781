"""How a program names devices, and what a wrong name says."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane import Fault

pytestmark = pytest.mark.any_schedule


def test_device_by_number_or_name_is_that_of_devices(node: Node) -> None:
    one = node("devices=2")[1]
    assert pl.device(1) is pl.device("virtual:1") is pl.device(np.int64(1)) is pl.Device(1) is one
    assert pl.device() is pl.devices()[0] is pl.devices()[-2]
    assert pl.devices()[1:] == (one,)


@pytest.mark.parametrize(
    ("which", "text"),
    [
        (9, "no device 9; the node has 2 devices, virtual:0 to virtual:1; PEERLANE_NODE=devices=10 before"),
        (-1, "no device -1; the node has 2 devices, virtual:0 to virtual:1"),
        (4096, "no device 4096; the node has 2 devices, virtual:0 to virtual:1"),
        (
            "virtual:2",
            "no device 'virtual:2'; the node has 2 devices, virtual:0 to virtual:1; PEERLANE_NODE=devices=3",
        ),
        ("virtual:02", "no device 'virtual:02'; the node has 2 devices, virtual:0 to virtual:1"),
        ("cuda:0", "no device 'cuda:0'; the node has 2 devices, virtual:0 to virtual:1"),
    ],
)
def test_device_that_the_node_lacks_raises_with_the_count(node: Node, which: int | str, text: str) -> None:
    node("devices=2")
    with pytest.raises(pl.InvalidValue) as raised:
        pl.device(which)
    assert raised.value.fault is Fault.INVALID_DEVICE
    assert str(raised.value).startswith(text)
    assert ("PEERLANE_NODE" in str(raised.value)) is ("PEERLANE_NODE" in text)


@pytest.mark.parametrize("which", [True, 1.0, None, b"virtual:0"])
def test_device_of_another_type_is_refused(node: Node, which: Any) -> None:
    node()
    with pytest.raises(TypeError, match="must be a str like 'virtual:0' or an int from 0"):
        pl.device(which)


def test_index_beyond_the_devices_raises_with_the_count(node: Node) -> None:
    present = node("devices=1")
    with pytest.raises(
        IndexError, match=r"no device 9; the node has 1 device, virtual:0; PEERLANE_NODE=devices=10 "
    ):
        _ = present[9]
    with pytest.raises(IndexError, match=r"no device -2; the node has 1 device, virtual:0$"):
        _ = pl.devices()[-2]
    assert [*present] == [present[0]] and len(present) == 1


def test_number_of_device_in_a_node_of_another_back_end_is_of_that_node() -> None:
    present = pl.enter_node("backend=reference,devices=2")
    assert pl.device(1) is present[1]
    with pytest.raises(IndexError, match="PEERLANE_NODE=backend=reference,devices=4 before"):
        _ = present[3]
    with pytest.raises(pl.InvalidValue, match=r"no device 'virtual:7'; the node has 2 devices, .*virtual:1$"):
        pl.device("virtual:7")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_object_of_one_process_is_neither_pickled_nor_copied(node: Node, copied: Any) -> None:
    device = node("devices=2")[0]
    assert pickle.loads(pickle.dumps(device)) is device
    with device.allocate(64) as buffer, device.create_stream() as stream, pl.StreamGroup(device) as group:
        physical, addresses = pl.Physical(device, device.granularity), pl.AddressRange(device, 2 << 20)
        event, notify = device.create_event(), device.create_notify()
        for each in (buffer, physical, event, notify):
            name = type(each).__name__
            with pytest.raises(TypeError) as raised:
                copied(each)
            head, *lines = str(raised.value).splitlines()
            assert head.startswith(f"cannot pickle or copy {name!r} objects: ")
            handle = bytes(each.export(allow="user"))
            assert f"{name.lower()} = peerlane.{name}.open(handle)" == lines[1].strip()
            assert f"handle = bytes({name.lower()}.export(allow=[pid]))" in lines[0]
            assert pickle.loads(pickle.dumps(handle)) == handle
        for each in (stream, group, addresses):
            with pytest.raises(TypeError, match=f"cannot pickle or copy {type(each).__name__!r} objects: "):
                copied(each)
        for each in (physical, addresses, event, notify):
            each.close()
