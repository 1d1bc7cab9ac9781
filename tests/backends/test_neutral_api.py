"""A state machine over the neutral API.

Virtual devices are compared with the reference back-end, and the reference back-end with bytearrays.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, ClassVar, Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import peerlane as pl
from helpers.reductions import OPERATIONS, TYPES, combined, special
from peerlane.backend.facts import Caps
from peerlane.diagnostics.memory import allocations

_runs = itertools.count()
SIZES = st.one_of(st.integers(1, 600), st.sampled_from([4096, 70_000, (2 << 20) - 1, 2 << 20, (4 << 20) + 5]))


class Model(Protocol):
    """The bytes that a buffer should have; ``other`` is a model of the same class."""

    def __init__(self, data: bytes) -> None: ...
    def __bytes__(self) -> bytes: ...
    def copy(self, at: int, other: Any, start: int, nbytes: int) -> None: ...
    def reduce(self, at: int, other: Any, start: int, nbytes: int, dtype: str, op: str) -> None: ...
    def fill(self, start: int, stop: int, value: int) -> None: ...


class InBytearray:
    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def copy(self, at: int, other: InBytearray, start: int, nbytes: int) -> None:
        self.data[at : at + nbytes] = bytes(other.data[start : start + nbytes])

    def reduce(self, at: int, other: InBytearray, start: int, nbytes: int, dtype: str, op: str) -> None:
        mine, more = self.data[at : at + nbytes], other.data[start : start + nbytes]
        self.data[at : at + nbytes] = combined(dtype, op, mine, more)

    def fill(self, start: int, stop: int, value: int) -> None:
        self.data[start:stop] = bytes([value]) * (stop - start)


class OnReference:
    def __init__(self, data: bytes) -> None:
        self.buffer = pl.Device("reference:0").allocate(len(data))
        self.buffer.view()[:] = np.frombuffer(data, np.uint8)

    def __bytes__(self) -> bytes:
        return self.buffer.view().tobytes()

    def copy(self, at: int, other: OnReference, start: int, nbytes: int) -> None:
        pl.copy(self.buffer[at : at + nbytes], other.buffer[start : start + nbytes])

    def reduce(self, at: int, other: OnReference, start: int, nbytes: int, dtype: str, op: str) -> None:
        mine, more = self.buffer[at : at + nbytes], other.buffer[start : start + nbytes]
        pl.reduce(mine, more, dtype=dtype, op=op)

    def fill(self, start: int, stop: int, value: int) -> None:
        self.buffer[start:stop].fill(value)


class NeutralApi(RuleBasedStateMachine):
    node: ClassVar[str]
    model: ClassVar[type[Model]]
    buffers: Bundle[int] = Bundle("buffers")

    @initialize()
    def enter(self) -> None:
        self.devices = pl.enter_node(self.node.format(f"stateful-{os.getpid()}-{next(_runs)}"))
        self.live: dict[int, tuple[pl.Buffer, Model]] = {}
        self.dead: dict[int, pl.Buffer] = {}
        self.numbers = itertools.count()

    @rule(
        target=buffers,
        where=st.sampled_from(["0", "1", "host"]),
        nbytes=SIZES,
        seed=st.integers(0, 2**32 - 1),
    )
    def allocate(self, where: str, nbytes: int, seed: int) -> Any:
        if where == "host" and Caps.PINNED_HOST not in self.devices[0].caps:
            with pytest.raises(pl.Unsupported, match="PINNED_HOST"):
                pl.Host().allocate(nbytes)
            return multiple()
        owner = pl.Host() if where == "host" else self.devices[int(where)]
        try:
            buffer = owner.allocate(nbytes)
        except pl.OutOfMemory:
            held = sum(buffer.size for buffer, _ in self.live.values() if buffer.device == owner)
            assert held + nbytes > 24 << 20, "refused although there is room"
            return multiple()
        data = np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8).tobytes()
        pl.copy(buffer, data)
        number = next(self.numbers)
        self.live[number] = (buffer, self.model(data))
        return number

    @rule(to=buffers, source=buffers, data=st.data())
    def copy(self, to: int, source: int, data: st.DataObject) -> None:
        if to not in self.live or source not in self.live:
            return
        (a, model_a), (b, model_b) = self.live[to], self.live[source]
        n = data.draw(st.integers(0, min(a.size, b.size)))
        at, start = data.draw(st.integers(0, a.size - n)), data.draw(st.integers(0, b.size - n))
        pl.copy(a[at : at + n], b[start : start + n])
        model_a.copy(at, model_b, start, n)

    @rule(
        to=buffers,
        source=buffers,
        dtype=st.sampled_from(TYPES),
        op=st.sampled_from(OPERATIONS),
        data=st.data(),
    )
    def reduce(self, to: int, source: int, dtype: str, op: str, data: st.DataObject) -> None:
        if to not in self.live or source not in self.live:
            return
        (a, model_a), (b, model_b) = self.live[to], self.live[source]
        width = special(dtype).itemsize
        n = data.draw(st.integers(0, min(a.size, b.size) // width)) * width
        at, start = (width * data.draw(st.integers(0, (each.size - n) // width)) for each in (a, b))
        if to == source and 0 < abs(at - start) < n:
            with pytest.raises(pl.InvalidValue, match="overlap"):
                pl.reduce(a[at : at + n], b[start : start + n], dtype=dtype, op=op)
            return
        pl.reduce(a[at : at + n], b[start : start + n], dtype=dtype, op=op)
        model_a.reduce(at, model_b, start, n, dtype, op)

    @rule(to=buffers, value=st.integers(0, 255), data=st.data())
    def fill(self, to: int, value: int, data: st.DataObject) -> None:
        if to not in self.live:
            return
        buffer, model = self.live[to]
        start = data.draw(st.integers(0, buffer.size))
        stop = data.draw(st.integers(start, buffer.size))
        buffer[start:stop].fill(value)
        model.fill(start, stop, value)

    @rule(to=buffers, value=st.integers(0, 255))
    def write_through_a_view(self, to: int, value: int) -> None:
        if to in self.live:
            buffer, model = self.live[to]
            buffer.view()[-1] = value
            model.fill(buffer.size - 1, buffer.size, value)

    @rule(which=consumes(buffers))
    def close(self, which: int) -> None:
        if which in self.live:
            buffer, _ = self.live.pop(which)
            buffer.close()
            self.dead[which] = buffer

    @rule(toggle=st.booleans())
    def peers(self, toggle: bool) -> None:
        (self.devices[0].peers.add if toggle else self.devices[0].peers.discard)(self.devices[1])

    @rule(which=buffers)
    def check(self, which: int) -> None:
        if which in self.live:
            buffer, model = self.live[which]
            out = bytearray(buffer.size)
            pl.copy(out, buffer)
            assert out == bytes(model)

    @invariant()
    def the_dead_stay_dead(self) -> None:
        for buffer in list(getattr(self, "dead", {}).values())[-3:]:
            with pytest.raises(pl.Closed):
                buffer.fill(1)

    def teardown(self) -> None:
        for buffer, model in self.live.values():
            assert bytes(buffer.view()) == bytes(model)
            buffer.close()
        assert all(device.free_bytes == device.total_bytes for device in self.devices)
        pl.leave_node()
        assert allocations.live_records() == ()


class OnVirtualDevices(NeutralApi):
    node = "name={},devices=2,memory=64MiB"
    model = OnReference


class OnReferenceDevices(NeutralApi):
    node = "backend=reference,devices=2,memory=64MiB"
    model = InBytearray


# A timeout by signal would raise inside the program: Hypothesis would take that for a failure and run it again.
@pytest.mark.timeout(120, method="thread")
@pytest.mark.schedules_in_turn
@pytest.mark.parametrize("machine", [OnVirtualDevices, OnReferenceDevices])
def test_neutral_api_under_random_program_matches_model(machine: type[NeutralApi]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60,
            stateful_step_count=30,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
