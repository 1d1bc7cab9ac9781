"""A state machine over the whole neutral API with streams, under each schedule, against the reference back-end.

The same program runs on both.  The reference back-end runs every operation when it is submitted.  The machine
therefore inserts the waits that make the order of submission the only one: a reader waits for the last writer, a
writer for it and for the readers since.  Bytes of the reference back-end are read through host views.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

import peerlane as pl
from helpers.reductions import OPERATIONS, TYPES, special
from peerlane.diagnostics.memory import allocations

# A timeout by signal would raise inside the program: Hypothesis would take that for a failure and run it again.
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120, method="thread")]

_runs = itertools.count()
SIZES = st.one_of(st.integers(1, 600), st.sampled_from([4096, 70_000, 2 << 20, (3 << 20) + 5]))
WHERE = st.one_of(st.none(), st.integers(0, 7))
SECONDS = 20
Use = tuple[pl.Stream, pl.Event]


@dataclass(eq=False)
class Held:
    """A buffer, the bytes that it has after all submitted operations, and the operations that use it until then."""

    buffer: pl.Buffer
    model: pl.Buffer
    writer: Use | None = None
    readers: list[Use] = field(default_factory=list)


@dataclass(eq=False)
class Table(Held):
    """A copy list; each end of a pair is (buffer, start, bytes)."""

    pairs: list[tuple[tuple[Held, int, int], tuple[Held, int, int]]] = field(default_factory=list)


class Streams(RuleBasedStateMachine):
    schedule: ClassVar[str]
    buffers: Bundle[Held] = Bundle("buffers")
    tables: Bundle[Table] = Bundle("tables")
    events: Bundle[pl.Event] = Bundle("events")

    @initialize(target=buffers, seed=st.integers(0, 2**32 - 1))
    def enter(self, seed: int) -> Any:
        name = f"seeded:{seed}" if self.schedule == "seeded" else self.schedule
        self.devices = pl.enter_node(
            f"name=streams-{os.getpid()}-{next(_runs)},devices=2,memory=48MiB,schedule={name}"
        )
        group = pl.StreamGroup(self.devices[0])
        self.grouped = [group.default, group.create_stream()]
        self.streams = [*self.grouped, *(device.create_stream() for device in self.devices for _ in (0, 1))]
        self.live: list[Held] = []
        self.launched: list[tuple[Held, pl.Event]] = []
        self.called: dict[int, list[int]] = {}
        self.expected: dict[int, list[int]] = {}
        self.targets: list[tuple[pl.Event, np.ndarray[Any, Any], bytes]] = []
        owners = (*self.devices, pl.Host())
        self.live += [self.filled(owner.allocate(nbytes)) for owner in owners for nbytes in (1000, 70_000)]
        return multiple(*self.live)

    def filled(self, buffer: pl.Buffer, stream: pl.Stream | None = None, seed: int = 1) -> Held:
        content = np.random.default_rng(seed).integers(0, 256, buffer.size, dtype=np.uint8)
        pl.copy(buffer, content, stream=stream)
        held = Held(buffer, self.on_reference(content))
        self.used(stream, [], [held])
        return held

    @staticmethod
    def on_reference(content: np.ndarray[Any, Any]) -> pl.Buffer:
        twin = pl.Device("reference:0").allocate(content.size)
        twin.view()[:] = content
        return twin

    def stream(self, where: int | None) -> pl.Stream | None:
        return None if where is None else self.streams[where % len(self.streams)]

    def order(
        self, data: st.DataObject, stream: pl.Stream | None, reads: list[Held], writes: list[Held]
    ) -> None:
        """Insert the waits that an operation needs."""
        uses = {held.writer for held in (*reads, *writes) if held.writer}
        uses |= {use for held in writes for use in held.readers}
        for other, event in sorted(uses, key=lambda use: (use[0].id, use[1]._mark.sequence)):  # type: ignore[union-attr]
            if stream is None:
                event.sync(timeout=SECONDS)
            elif other is not stream:
                self.wait(data, stream, other, event)

    def wait(self, data: st.DataObject, stream: pl.Stream, other: pl.Stream, event: pl.Event) -> None:
        how = (
            "event" if other.is_closed else data.draw(st.sampled_from(["event", "stream", "notify", "early"]))
        )
        if how == "event":
            stream.wait(event)
        elif how == "stream":
            stream.wait(other, timeout=SECONDS)
        else:
            signal = stream.device.create_notify(data.draw(st.sampled_from(["binary", "fifo", "strict"])))
            # Not within the group: the waiting stream would hold up the stream that notifies it.
            early = how == "early" and other not in self.grouped
            if early:
                stream.wait(signal)
            other.notify(signal)
            if not early:
                stream.wait(signal, timeout=SECONDS)

    def used(self, stream: pl.Stream | None, reads: list[Held], writes: list[Held]) -> None:
        """Note which buffers the operation just submitted reads and writes."""
        use = None if stream is None else (stream, stream.record())
        for held in writes:
            held.writer, held.readers = use, []
        for held in reads:
            if use and held not in writes:
                held.readers.append(use)

    def part(self, data: st.DataObject, held: Held, nbytes: int) -> tuple[pl.Buffer, slice]:
        start = data.draw(st.integers(0, held.buffer.size - nbytes))
        return held.buffer[start : start + nbytes], slice(start, start + nbytes)

    def is_gone(self, *all_held: Held) -> bool:
        return any(held not in self.live for held in all_held)

    @rule(
        target=buffers,
        on=st.sampled_from(["0", "1", "host"]),
        nbytes=SIZES,
        seed=st.integers(0, 2**32 - 1),
        where=WHERE,
        owner=WHERE,
        data=st.data(),
    )
    def allocate(
        self, on: str, nbytes: int, seed: int, where: int | None, owner: int | None, data: st.DataObject
    ) -> Any:
        try:
            if on == "host":
                buffer = pl.Host().allocate(nbytes)
            else:
                buffer = self.devices[int(on)].allocate(nbytes, stream=self.stream(owner))
        except pl.OutOfMemory:
            there = [held for held in self.live if held.buffer.device is self.devices[int(on)]]
            blocks = sum(held.buffer.size // (2 << 20) + 1 for held in there)
            assert (blocks << 21) + nbytes > 24 << 20, "refused although there is room"
            return multiple()
        held = self.filled(buffer, self.stream(where), seed)
        self.live.append(held)
        return held

    @rule(to=buffers, source=buffers, where=WHERE, by_address=st.booleans(), data=st.data())
    def copy(self, to: Held, source: Held, where: int | None, by_address: bool, data: st.DataObject) -> None:
        if self.is_gone(to, source):
            return
        nbytes = data.draw(st.integers(0, min(to.buffer.size, source.buffer.size)))
        (a, at), (b, start) = self.part(data, to, nbytes), self.part(data, source, nbytes)
        stream = self.stream(where)
        self.order(data, stream, [source], [to])
        if by_address:
            pl.raw.copy(a.address, b.address, nbytes, stream=stream)
        else:
            pl.copy(a, b, stream=stream)
        pl.copy(to.model[at], source.model[start])
        self.used(stream, [source], [to])

    @rule(
        to=buffers,
        source=buffers,
        where=WHERE,
        by_address=st.booleans(),
        dtype=st.sampled_from(TYPES),
        op=st.sampled_from(OPERATIONS),
        data=st.data(),
    )
    def reduce(
        self,
        to: Held,
        source: Held,
        where: int | None,
        by_address: bool,
        dtype: str,
        op: str,
        data: st.DataObject,
    ) -> None:
        if self.is_gone(to, source):
            return
        width = special(dtype).itemsize
        count = data.draw(st.integers(0, min(to.buffer.size, source.buffer.size) // width))
        ends = []
        for held in (to, source):
            start = width * data.draw(st.integers(0, held.buffer.size // width - count))
            ends.append(slice(start, start + width * count))
        if to is source and 0 < abs(ends[0].start - ends[1].start) < width * count:
            ends[1] = ends[0]
        a, b = to.buffer[ends[0]], source.buffer[ends[1]]
        stream = self.stream(where)
        self.order(data, stream, [source], [to])
        if by_address:
            pl.raw.reduce(a.address, b.address, count, dtype=dtype, op=op, stream=stream)
        else:
            pl.reduce(a, b, dtype=dtype, op=op, stream=stream)
        pl.reduce(to.model[ends[0]], source.model[ends[1]], dtype=dtype, op=op)
        self.used(stream, [source], [to])

    @rule(to=buffers, source=buffers, where=WHERE, data=st.data())
    def copy_2d(self, to: Held, source: Held, where: int | None, data: st.DataObject) -> None:
        if self.is_gone(to, source) or to is source:
            return
        least = min(to.buffer.size, source.buffer.size)
        width = data.draw(st.integers(1, min(least, 5000)))
        height = data.draw(st.integers(1, min(least // width, 40)))
        pitches = [
            width
            + data.draw(
                st.integers(0, (held.buffer.size - width) // (height - 1) - width if height > 1 else 9)
            )
            for held in (to, source)
        ]
        stream = self.stream(where)
        self.order(data, stream, [source], [to])
        pl.copy_2d(to.buffer, pitches[0], source.buffer, pitches[1], width, height, stream=stream)
        pl.copy_2d(to.model, pitches[0], source.model, pitches[1], width, height)
        self.used(stream, [source], [to])

    @rule(
        to=buffers,
        pattern=st.sampled_from([0, 255, b"\1", b"\1\2", b"\1\2\3\4"]),
        where=WHERE,
        data=st.data(),
    )
    def fill(self, to: Held, pattern: int | bytes, where: int | None, data: st.DataObject) -> None:
        if self.is_gone(to):
            return
        unit = bytes([pattern]) if isinstance(pattern, int) else pattern
        nbytes = data.draw(st.integers(0, to.buffer.size)) // len(unit) * len(unit)
        part, at = self.part(data, to, nbytes)
        stream = self.stream(where)
        self.order(data, stream, [], [to])
        part.fill(pattern, stream=stream)
        to.model[at].fill(pattern)
        self.used(stream, [], [to])

    def draw_pairs(self, data: st.DataObject) -> list[tuple[tuple[Held, int, int], tuple[Held, int, int]]]:
        """Return ends of copies that do not overlap: no buffer is both, and none is written twice."""
        chosen = data.draw(st.lists(st.sampled_from(self.live), min_size=2, max_size=6, unique_by=id))
        half = len(chosen) // 2
        pairs = []
        for to, source in zip(chosen[:half], itertools.cycle(chosen[half:]), strict=False):
            nbytes = data.draw(st.integers(0, min(to.buffer.size, source.buffer.size)))
            ends = [(held, self.part(data, held, nbytes)[1].start, nbytes) for held in (to, source)]
            pairs.append((ends[0], ends[1]))
        return pairs

    def run_pairs(self, pairs: list[Any]) -> None:
        for (to, at, nbytes), (source, start, _) in pairs:
            pl.copy(to.model[at : at + nbytes], source.model[start : start + nbytes])

    @staticmethod
    def parts(pairs: list[Any]) -> list[tuple[pl.Buffer, pl.Buffer]]:
        parts = [[held.buffer[at : at + nbytes] for held, at, nbytes in ends] for ends in pairs]
        return [(to, source) for to, source in parts]

    @rule(where=WHERE, data=st.data())
    def batch(self, where: int | None, data: st.DataObject) -> None:
        if len(self.live) < 2:
            return
        pairs, stream = self.draw_pairs(data), self.stream(where)
        writes, reads = [to[0] for to, _ in pairs], [source[0] for _, source in pairs]
        self.order(data, stream, reads, writes)
        ends = self.parts(pairs)
        pl.copy_batch([to for to, _ in ends], [source for _, source in ends], stream=stream)
        self.run_pairs(pairs)
        self.used(stream, reads, writes)

    @rule(target=tables, on=st.integers(0, 1))
    def allocate_a_table(self, on: int) -> Any:
        try:
            table = self.devices[on].allocate(pl.CopyDescriptor.size_for(3))
        except pl.OutOfMemory:
            return multiple()
        return Table(table, table)

    @rule(table=tables, where=WHERE, data=st.data())
    def write_a_list(self, table: Table, where: int | None, data: st.DataObject) -> None:
        if len(self.live) < 2:
            return
        pairs, stream = self.draw_pairs(data), self.stream(where)
        self.order(data, stream, [], [table])
        if stream is None:
            pl.CopyDescriptor.build(table.buffer, self.parts(pairs))
        else:
            content = pl.CopyDescriptor.encode(self.parts(pairs))
            table.buffer[: len(content)].copy_from(content, stream=stream)
        table.pairs = pairs
        self.used(stream, [], [table])

    @rule(table=tables, where=WHERE, data=st.data())
    def launch(self, table: Table, where: int | None, data: st.DataObject) -> None:
        writes, reads = [to[0] for to, _ in table.pairs], [source[0] for _, source in table.pairs]
        if not table.pairs or self.is_gone(*writes, *reads):
            return
        stream = self.stream(where)
        self.order(data, stream, [*reads, table], writes)
        pl.CopyDescriptor(table.buffer).launch(stream)
        self.run_pairs(table.pairs)
        self.used(stream, [*reads, table], writes)
        if stream is not None:
            self.launched += [(held, table.readers[-1][1]) for held in (*writes, *reads)]

    @rule(source=buffers, where=st.integers(0, 7), data=st.data())
    def read_into_an_array(self, source: Held, where: int, data: st.DataObject) -> None:
        if self.is_gone(source):
            return
        stream, target = self.streams[where % len(self.streams)], np.zeros(source.buffer.size, np.uint8)
        self.order(data, stream, [source], [])
        source.buffer.copy_to(target, stream=stream)
        self.used(stream, [source], [])
        self.targets.append((source.readers[-1][1], target, bytes(source.model.view())))

    @rule(at=st.integers(0, 20))
    def look_at_an_array(self, at: int) -> None:
        if self.targets:
            event, target, expected = self.targets.pop(at % len(self.targets))
            event.sync(timeout=SECONDS)
            assert target.tobytes() == expected

    @rule(target=events, where=st.integers(0, 7))
    def record(self, where: int) -> pl.Event:
        return self.streams[where % len(self.streams)].record()

    @rule(event=events, where=st.integers(0, 7))
    def record_again(self, event: pl.Event, where: int) -> None:
        stream = self.streams[where % len(self.streams)]
        if event.device is stream.device:
            stream.record(event)

    @rule(event=events, where=st.integers(0, 7), data=st.data())
    def wait_for_an_event(self, event: pl.Event, where: int, data: st.DataObject) -> None:
        self.streams[where % len(self.streams)].wait(event)

    @rule(event=events, poll=st.booleans())
    def sync_an_event(self, event: pl.Event, poll: bool) -> None:
        before = event.is_done if poll else False
        event.sync(timeout=SECONDS)
        assert event.is_done
        assert event.time_ns > 0
        assert before in (True, False)

    @rule(where=st.integers(0, 7), number=st.integers(0, 1000))
    def callback(self, where: int, number: int) -> None:
        stream = self.streams[where % len(self.streams)]
        stream.launch_callback(self.called.setdefault(stream.id, []).append, number)
        self.expected.setdefault(stream.id, []).append(number)

    @rule(where=st.integers(0, 7))
    def sync(self, where: int) -> None:
        stream = self.streams[where % len(self.streams)]
        before = stream.submitted
        stream.sync(timeout=SECONDS)
        assert stream.completed >= before
        assert stream.is_done
        assert self.called.get(stream.id, []) == self.expected.get(stream.id, [])

    @rule(where=st.integers(0, 7), how=st.sampled_from(["close", "with", "drop"]))
    def end_a_stream(self, where: int, how: str) -> None:
        number = where % len(self.streams)
        stream = self.streams[number]
        if stream in self.grouped:
            return
        self.streams[number] = stream.device.create_stream()
        if how == "close":
            stream.close()
            stream.close()
        elif how == "with":
            with stream:
                pass
        if how != "drop":
            assert stream.is_done
            assert self.called.get(stream.id, []) == self.expected.get(stream.id, [])

    @rule(which=buffers, data=st.data())
    def look_through_a_view(self, which: Held, data: st.DataObject) -> None:
        if not self.is_gone(which):
            view = which.buffer.view()  # made before the wait: a view shows later bytes too
            self.order(data, None, [which], [])
            assert bytes(view) == bytes(which.buffer) == bytes(which.model.view())

    @rule(which=buffers, value=st.integers(0, 255), data=st.data())
    def write_through_a_view(self, which: Held, value: int, data: st.DataObject) -> None:
        if not self.is_gone(which):
            self.order(data, None, [], [which])
            which.buffer.view()[-1] = value
            which.model.view()[-1] = value
            self.used(None, [], [which])

    @rule(which=consumes(buffers))
    def close(self, which: Held) -> None:
        if self.is_gone(which):
            return
        for held, launch in self.launched:  # a list is resolved when it starts: memory must live
            if held is which:
                launch.sync(timeout=SECONDS)
        self.live.remove(which)
        which.buffer.close()
        which.model.close()
        with pytest.raises(pl.Closed):
            which.buffer.fill(1)

    @rule(toggle=st.booleans())
    def peers(self, toggle: bool) -> None:
        (self.devices[0].peers.add if toggle else self.devices[0].peers.discard)(self.devices[1])

    @rule(which=buffers, where=WHERE, data=st.data())
    def check(self, which: Held, where: int | None, data: st.DataObject) -> None:
        if self.is_gone(which):
            return
        out, stream = bytearray(which.buffer.size), self.stream(where)
        self.order(data, stream, [which], [])
        pl.copy(out, which.buffer, stream=stream)
        if stream is not None:
            stream.sync(timeout=SECONDS)
        assert out == bytes(which.model.view())

    def teardown(self) -> None:
        if not hasattr(self, "streams"):
            return
        for stream in self.streams:
            stream.sync(timeout=SECONDS)
        assert all(target.tobytes() == expected for event, target, expected in self.targets if event.is_done)
        for held in self.live:
            if held.writer:  # on a stream that the program let go, which `lazy` does not run
                held.writer[1].sync(timeout=SECONDS)
            assert bytes(held.buffer.view()) == bytes(held.model.view())
            held.buffer.close()
            held.model.close()
        for stream in self.streams:
            stream.close()
        pl.leave_node()
        assert allocations.live_records() == ()


class EagerStreams(Streams):
    schedule = "eager"


class LazyStreams(Streams):
    schedule = "lazy"


class SeededStreams(Streams):
    schedule = "seeded"


MACHINES = (EagerStreams, LazyStreams, SeededStreams)


def _settings(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_streams_under_random_program_match_model(machine: type[Streams]) -> None:
    run_state_machine_as_test(machine, settings=_settings(25, 40))


@pytest.mark.soak
@pytest.mark.timeout(3600, method="thread")
@pytest.mark.parametrize("machine", MACHINES)
def test_streams_under_many_random_programs_match_model(machine: type[Streams]) -> None:
    run_state_machine_as_test(machine, settings=_settings(1500, 60))
