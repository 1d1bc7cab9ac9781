"""The list of live objects and their lines: each kind, what ends it, and which objects it leaves out."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.diagnostics import call_site, live_objects

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def noting() -> Iterator[None]:
    live_objects.begin()
    yield
    live_objects.end()


def _listed() -> list[tuple[str, int, str]]:
    return [(each.kind, each.nbytes, each.where) for each in live_objects.living()]


def _exported(device: pl.Device) -> tuple[pl.Handle, pl.Physical]:
    block = pl.Physical(device, 2 << 20)
    return block.export(), block


MAKERS: dict[str, tuple[Callable[[pl.Device], object], int]] = {
    "memory": (lambda d: d.allocate(100), 100),
    "address range": (lambda d: pl.AddressRange(d, 2 << 20), 2 << 20),
    "physical": (lambda d: pl.Physical(d, 2 << 20), 2 << 20),
    "stream": (lambda d: d.create_stream(), 0),
    "event": (lambda d: d.create_event(), 0),
    "notify": (lambda d: d.create_notify(), 0),
}


@pytest.mark.usefixtures("noting")
@pytest.mark.parametrize("kind", MAKERS)
def test_object_of_each_kind_is_listed_with_line_until_close(node: Node, kind: str) -> None:
    (d0, _), (make, nbytes) = node(), MAKERS[kind]
    owner, line = make(d0), inspect.currentframe().f_lineno  # type: ignore[union-attr]
    (living,) = live_objects.living()
    assert (living.kind, living.nbytes, living.where) == (kind, nbytes, "virtual:0")
    assert living.site is not None and living.site.path == __file__
    assert any(site.path == __file__ and site.line == line for site in (living.site, *living.site.callers))
    owner.close()  # type: ignore[attr-defined]
    assert live_objects.living() == ()


@pytest.mark.usefixtures("noting")
@pytest.mark.parametrize("kind", MAKERS)
def test_object_of_each_kind_dropped_is_not_listed(node: Node, kind: str) -> None:
    (d0, _), (make, _) = node(), MAKERS[kind]
    owner = make(d0)
    assert len(live_objects.living()) == 1
    del owner
    gc.collect()
    assert live_objects.living() == ()


@pytest.mark.usefixtures("noting")
@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "memory"])
def test_object_of_each_kind_after_leave_node_is_not_listed(node: Node, kind: str) -> None:
    (d0, _), (make, _) = node(), MAKERS[kind]
    owner = make(d0)
    pl.leave_node()
    assert live_objects.living() == ()
    del owner


@pytest.mark.usefixtures("noting")
def test_handle_is_listed_until_it_or_its_object_is_closed(node: Node) -> None:
    d0, _ = node()
    handle, block = _exported(d0)
    assert _listed() == [("physical", 2 << 20, "virtual:0"), ("exported handle", 2 << 20, "virtual:0")]
    handle.close()
    assert _listed() == [("physical", 2 << 20, "virtual:0")]
    second = block.export()
    block.close()
    assert _listed() == []
    event = d0.create_event()
    number = int(event.export())  # the Handle object is gone; a process can still open the number
    assert [each.kind for each in live_objects.living()] == ["event", "exported handle"]
    assert f"{number:#x}" in live_objects.living()[1].text
    event.close()
    assert _listed() == []
    del second


@pytest.mark.usefixtures("noting")
def test_event_recorded_and_exported_is_listed_once(node: Node) -> None:
    d0, _ = node()
    with d0.create_stream() as stream, stream.record() as event, event.export():
        assert sorted(each.kind for each in live_objects.living()) == ["event", "exported handle", "stream"]


@pytest.mark.usefixtures("noting")
def test_view_of_closed_buffer_is_listed(node: Node) -> None:
    d0, _ = node()
    buffer = d0.allocate(1024)
    part = buffer.view("u4", (16, 16))[3:5, 1:]
    assert _listed() == [("memory", 1024, "virtual:0")]
    buffer.close()
    assert _listed() == [("view", 1024, "virtual:0")]
    del part
    assert _listed() == []


@pytest.mark.usefixtures("noting")
def test_pinned_buffer_is_listed_at_the_host(node: Node) -> None:
    node()
    with pl.Host().allocate(10):
        assert _listed() == [("pinned memory", 10, "host")]


def test_objects_without_noting_list_memory_only(node: Node) -> None:
    d0, _ = node()
    with d0.allocate(8), d0.create_stream() as stream, stream.record():
        (living,) = live_objects.living()
        assert living.kind == "memory"
        assert living.site is not None and living.site.callers == ()
    assert not live_objects.active and call_site.callers_kept == 0


@pytest.mark.usefixtures("noting")
def test_objects_of_acl_list_only_those_that_the_program_received(node: Node) -> None:
    from peerlane.dialects import acl, begin_anew

    node()
    assert acl.rt.set_device(0) == 0
    event, _ = acl.rt.create_event()
    assert acl.rt.record_event(event, 0) == 0  # makes the default stream
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    stream, _ = acl.rt.create_stream()
    pointer, _ = acl.rt.malloc(4096, 0)
    assert [each.kind for each in live_objects.living()] == ["memory", "event", "stream"]
    assert f"stream {stream:#x} of device 0" in live_objects.living()[2].text
    site = live_objects.living()[2].site
    assert site is not None and (site.path, site.line) == (__file__, line)
    assert acl.rt.destroy_stream(stream) == 0
    assert [each.kind for each in live_objects.living()] == ["memory", "event"]
    assert acl.rt.reset_device(0) == 0
    assert live_objects.living() == ()
    begin_anew("acl")
    assert pointer
