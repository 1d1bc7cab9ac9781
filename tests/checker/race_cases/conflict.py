"""An access of a channel beside another access to the same bytes, in each combination."""

from __future__ import annotations

from .case import OWN, WINDOW, World, case

# At the origin: rank 0's own memory.


@case("conflict-001")
def write_then_load(w: World) -> None:
    if w.rank == 0:
        w.own.view()[0] = 1
        w.to[1].write(w.own[:4], nonblocking=True)
        assert w.own.view()[0] == 1
        w.to[1].drain()


@case("conflict-002", race="local")
def write_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)  # first
        w.own.view()[0] = 42  # second
        w.to[1].drain()


@case("conflict-003")
def write_and_write_from_one_source(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)
        w.to[1].write(w.own[:4], at=16, nonblocking=True)
        w.to[1].drain()


@case("conflict-004", race="local")
def read_then_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.note(w.own.view()[0])  # second
        w.to[1].drain()


@case("conflict-005", race="local")
def read_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.own.view()[0] = 42  # second
        w.to[1].drain()


@case("conflict-006", race="local")
def read_then_write_of_the_same_bytes(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].write(w.own[:4], at=16, nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-007", race="local")
def two_reads_into_the_same_bytes(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].read(w.own[:4], at=16, nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-008")
def write_of_a_list_then_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)
        assert w.own.view()[8] == OWN
        w.to[1].drain(stream=w.stream)


@case("conflict-009", race="local")
def write_of_a_list_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.own.view()[8] = 42  # second
        w.to[1].drain(stream=w.stream)


@case("conflict-010", race="local")
def read_of_a_list_then_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.note(w.own.view()[8])  # second
        w.to[1].drain(stream=w.stream)


@case("conflict-011", race="local")
def read_of_a_list_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.own.view()[0] = 42  # second
        w.to[1].drain(stream=w.stream)


@case("conflict-012")
def write_with_notify_then_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)
        assert w.own.view()[0] == OWN
        w.to[1].drain()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-013", race="local")
def write_with_notify_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)  # first
        w.own.view()[0] = 42  # second
        w.to[1].drain()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-014", race="local")
def read_with_notify_then_load(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read(w.own[:4], stream=w.stream)  # first
            w.stream.notify(signal)
            w.note(w.own.view()[0])  # second
            w.stream.wait(signal)
            w.stream.sync()


@case("conflict-015", race="local")
def read_with_notify_then_store(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read(w.own[:4], stream=w.stream)  # first
            w.stream.notify(signal)
            w.own.view()[0] = 42  # second
            w.stream.wait(signal)
            w.stream.sync()


@case("conflict-016")
def write_of_a_list_with_notify_then_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], notify=0, stream=w.stream)
        assert w.own.view()[0] == OWN
        w.stream.sync()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-017", race="local")
def write_of_a_list_with_notify_then_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], notify=0, stream=w.stream)  # first
        w.own.view()[0] = 42  # second
        w.stream.sync()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-018", race="local")
def read_of_a_list_with_notify_then_load(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
            w.stream.notify(signal)
            w.note(w.own.view()[8])  # second
            w.stream.wait(signal)
            w.stream.sync()


@case("conflict-019", race="local")
def read_of_a_list_with_notify_then_store(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
            w.stream.notify(signal)
            w.own.view()[8] = 42  # second
            w.stream.wait(signal)
            w.stream.sync()


# At the target: rank 1's window.


@case("conflict-020")
def read_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
    if w.rank == 1:
        assert w.window.view()[0] == WINDOW + 1


@case("conflict-021", ranks=3)
def read_beside_read(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()
    if w.rank == 2:
        w.to[1].read(w.own[:4], nonblocking=True)
        w.to[1].drain()


@case("conflict-022", race="remote")
def read_beside_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.window.view()[0] = 42  # second


@case("conflict-023", race="remote", ranks=3)
def read_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 2:
        w.to[1].write(w.own[:4], nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-025", race="remote")
def write_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.note(w.window.view()[0])  # second


@case("conflict-026", race="remote")
def write_beside_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.window.view()[0] = 42  # second


@case("conflict-027", race="remote", ranks=3)
def write_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 2:
        w.own.view()[0] = 42
        w.to[1].write(w.own[:4], nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-032", race="remote")
def write_of_a_list_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.to[1].drain(stream=w.stream)
    if w.rank == 1:
        w.note(w.window.view()[8])  # second


@case("conflict-033", race="remote", ranks=3)
def write_of_a_list_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.to[1].drain(stream=w.stream)
    if w.rank == 2:
        w.to[1].write(w.own[:4], at=8, nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-034")
def read_of_a_list_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)
        w.to[1].drain(stream=w.stream)
    if w.rank == 1:
        assert w.window.view()[8] == WINDOW + 1


@case("conflict-035", race="remote", ranks=3)
def read_of_a_list_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
        w.to[1].drain(stream=w.stream)
    if w.rank == 2:
        w.to[1].write(w.own[:4], at=8)  # second


@case("conflict-036", race="remote")
def write_with_notify_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)  # first
        w.to[1].drain()
    if w.rank == 1:
        w.note(w.window.view()[0])  # second
        w.to[0].wait(0)


@case("conflict-037", race="remote", ranks=3)
def write_with_notify_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, stream=w.stream)  # first
        w.stream.sync()
    if w.rank == 2:
        w.to[1].write(w.own[:4], nonblocking=True)  # second
        w.to[1].drain()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-038")
def read_with_notify_beside_load(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read(w.own[:4], stream=w.stream)
            w.stream.notify(signal)
            w.stream.wait(signal)
            w.stream.sync()
    if w.rank == 1:
        assert w.window.view()[0] == WINDOW + 1


@case("conflict-039", race="remote", ranks=3)
def read_with_notify_beside_write(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read(w.own[:4], stream=w.stream)  # first
            w.stream.notify(signal)
            w.stream.wait(signal)
            w.stream.sync()
    if w.rank == 2:
        w.to[1].write(w.own[:4], nonblocking=True)  # second
        w.to[1].drain()


@case("conflict-040", race="remote")
def write_of_a_list_with_notify_beside_load(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], notify=0, stream=w.stream)  # first
        w.stream.sync()
    if w.rank == 1:
        w.note(w.window.view()[8])  # second
        w.to[0].wait(0)


@case("conflict-041", race="remote", ranks=3)
def write_of_a_list_with_notify_beside_write(w: World) -> None:
    if w.rank == 0:
        w.to[1].write_blocks(w.own, [[0, 0, 4], [8, 8, 4]], notify=0, stream=w.stream)  # first
        w.stream.sync()
    if w.rank == 2:
        w.to[1].write(w.own[:4], stream=w.stream)  # second
        w.stream.sync()
    if w.rank == 1:
        w.to[0].wait(0)


@case("conflict-042")
def read_of_a_list_with_notify_beside_load(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)
            w.stream.notify(signal)
            w.stream.wait(signal)
            w.stream.sync()
    if w.rank == 1:
        assert w.window.view()[0] == WINDOW + 1


@case("conflict-043", race="remote", ranks=3)
def read_of_a_list_with_notify_beside_write(w: World) -> None:
    if w.rank == 0:
        with w.group.device.create_notify() as signal:
            w.to[1].read_blocks(w.own, [[0, 0, 4], [8, 8, 4]], stream=w.stream)  # first
            w.stream.notify(signal)
            w.stream.wait(signal)
            w.stream.sync()
    if w.rank == 2:
        w.to[1].write(w.own[:4], nonblocking=True)  # second
        w.to[1].drain()
