"""Ranks with two threads each, which agree or do not: the counterparts of OpenMP's constructs (folder ``hybrid``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from .case import DEADLINE, OWN, WINDOW, World, case


def team(*bodies: Callable[[], None]) -> None:
    """Run each function in a thread of its own, and wait for all."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    if errors:
        raise errors[0]


class Turns:
    """Lets the iterations of a loop go one after the other, whatever threads have them."""

    def __init__(self) -> None:
        self._next = 0
        self._changed = threading.Condition()

    def take(self, iteration: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._next == iteration, DEADLINE)

    def give(self) -> None:
        with self._changed:
            self._next += 1
            self._changed.notify_all()


def _target_looks(w: World) -> None:
    """Meet, and let the target load what the origin has only read."""
    w.group.barrier()
    if w.rank == 1:
        assert w.window.view()[0] == WINDOW + 1


# At the origin: rank 0's own memory.


@case("hybrid-001", race="local")
def loop_without_order(w: World) -> None:
    if w.rank == 0:

        def iteration_0() -> None:
            w.to[1].read(w.own[:4], nonblocking=True)  # first
            w.to[1].drain()

        def iteration_1() -> None:
            w.note(w.own.view()[0])  # second

        team(iteration_0, iteration_1)
    _target_looks(w)


@case("hybrid-002")
def loop_in_order(w: World) -> None:
    if w.rank == 0:
        turns = Turns()

        def iteration_0() -> None:
            turns.take(0)
            w.to[1].read(w.own[:4], nonblocking=True)
            w.to[1].drain()
            turns.give()

        def iteration_1() -> None:
            turns.take(1)
            assert w.own.view()[0] == WINDOW + 1
            turns.give()

        team(iteration_0, iteration_1)
    _target_looks(w)


@case("hybrid-003")
def first_thread_reads_and_all_meet(w: World) -> None:
    if w.rank == 0:
        met = threading.Barrier(2, timeout=DEADLINE)

        def body(number: int) -> None:
            if number == 0:
                w.to[1].read(w.own[:4], nonblocking=True)
                w.to[1].drain()
            met.wait()
            assert w.own.view()[0] == WINDOW + 1

        team(lambda: body(0), lambda: body(1))
    _target_looks(w)


@case("hybrid-004", race="local")
def first_thread_reads_and_none_meet(w: World) -> None:
    if w.rank == 0:

        def body(number: int) -> None:
            if number == 0:
                w.to[1].read(w.own[:4], nonblocking=True)  # first
                w.to[1].drain()
            w.note(w.own.view()[0])  # second

        team(lambda: body(0), lambda: body(1))
    _target_looks(w)


@case("hybrid-005")
def any_thread_reads_and_all_meet(w: World) -> None:
    if w.rank == 0:
        free, met = threading.Lock(), threading.Barrier(2, timeout=DEADLINE)

        def body() -> None:
            if free.acquire(blocking=False):
                w.to[1].read(w.own[:4], nonblocking=True)
                w.to[1].drain()
            met.wait()
            assert w.own.view()[0] == WINDOW + 1

        team(body, body)
    _target_looks(w)


@case("hybrid-006", race="local")
def any_thread_reads_and_none_meet(w: World) -> None:
    if w.rank == 0:
        free = threading.Lock()

        def body() -> None:
            if free.acquire(blocking=False):
                w.to[1].read(w.own[:4], nonblocking=True)  # first
                w.to[1].drain()
            w.note(w.own.view()[0])  # second

        team(body, body)
    _target_looks(w)


@case("hybrid-007")
def sections_one_after_the_other(w: World) -> None:
    if w.rank == 0:
        met = threading.Barrier(2, timeout=DEADLINE)

        def first() -> None:
            w.to[1].read(w.own[:4], nonblocking=True)
            w.to[1].drain()
            met.wait()

        def second() -> None:
            met.wait()
            assert w.own.view()[0] == WINDOW + 1

        team(first, second)
    _target_looks(w)


@case("hybrid-008", race="local")
def sections_at_once(w: World) -> None:
    if w.rank == 0:
        begun = threading.Barrier(2, timeout=DEADLINE)  # else one thread of the pool may do both
        with ThreadPoolExecutor(2) as pool:

            def first() -> None:
                begun.wait()
                w.to[1].read(w.own[:4], nonblocking=True)  # first
                w.to[1].drain()

            def second() -> None:
                begun.wait()
                w.note(w.own.view()[0])  # second

            done = [pool.submit(first), pool.submit(second)]
        for each in done:
            each.result()
    _target_looks(w)


@case("hybrid-009")
def task_that_is_awaited(w: World) -> None:
    if w.rank == 0:
        begun = threading.Event()

        def task() -> None:
            begun.set()
            w.to[1].read(w.own[:4], nonblocking=True)
            w.to[1].drain()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(task)
            begun.wait(DEADLINE)
            done.result()
            assert w.own.view()[0] == WINDOW + 1
    _target_looks(w)


@case("hybrid-010", race="local")
def task_that_is_not_awaited(w: World) -> None:
    """The task has begun before the load; that it is over nobody knows."""
    if w.rank == 0:
        begun = threading.Event()

        def task() -> None:
            begun.set()
            w.to[1].read(w.own[:4], nonblocking=True)  # first
            w.to[1].drain()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(task)
            begun.wait(DEADLINE)
            w.note(w.own.view()[0])  # second
        done.result()
    _target_looks(w)


# At the target: rank 1's window.


def _origin_reads(w: World) -> None:
    w.to[1].read(w.own[:4], nonblocking=True)
    w.to[1].drain()
    w.group.barrier()


@case("hybrid-011")
def loop_in_order_with_barrier_and_store(w: World) -> None:
    if w.rank == 0:
        _origin_reads(w)
    else:
        turns = Turns()

        def iteration_0() -> None:
            turns.take(0)
            w.group.barrier()
            turns.give()

        def iteration_1() -> None:
            turns.take(1)
            w.window.view()[0] = 42
            turns.give()

        team(iteration_0, iteration_1)


@case("hybrid-012", race="remote")
def loop_without_order_with_barrier_and_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
        w.group.barrier()
    else:

        def iteration_0() -> None:
            w.group.barrier()

        def iteration_1() -> None:
            w.window.view()[0] = 42  # second

        team(iteration_0, iteration_1)


@case("hybrid-013")
def first_thread_waits_and_all_meet(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)
        w.to[1].drain()
    else:
        met = threading.Barrier(2, timeout=DEADLINE)

        def body(number: int) -> None:
            if number == 0:
                w.to[0].wait(0)
            met.wait()
            assert w.window.view()[0] == OWN

        team(lambda: body(0), lambda: body(1))


@case("hybrid-014", race="remote")
def first_thread_waits_and_none_meet(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, nonblocking=True)  # first
        w.to[1].drain()
    else:

        def body(number: int) -> None:
            if number == 0:
                w.to[0].wait(0)
            w.note(w.window.view()[0])  # second

        team(lambda: body(0), lambda: body(1))


@case("hybrid-015")
def any_thread_waits_and_all_meet(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, stream=w.stream)
        w.stream.sync()
    else:
        free, met = threading.Lock(), threading.Barrier(2, timeout=DEADLINE)

        def body() -> None:
            if free.acquire(blocking=False):
                w.to[0].wait(0)
            met.wait()
            assert w.window.view()[0] == OWN

        team(body, body)


@case("hybrid-016", race="remote")
def any_thread_waits_and_none_meet(w: World) -> None:
    if w.rank == 0:
        w.to[1].write(w.own[:4], notify=0, stream=w.stream)  # first
        w.stream.sync()
    else:
        free = threading.Lock()

        def body() -> None:
            if free.acquire(blocking=False):
                w.to[0].wait(0)
            w.note(w.window.view()[0])  # second

        team(body, body)


@case("hybrid-017")
def sections_one_after_the_other_with_barrier_and_store(w: World) -> None:
    if w.rank == 0:
        _origin_reads(w)
    else:
        met = threading.Barrier(2, timeout=DEADLINE)

        def first() -> None:
            w.group.barrier()
            met.wait()

        def second() -> None:
            met.wait()
            w.window.view()[0] = 42

        team(first, second)


@case("hybrid-018", race="remote")
def sections_at_once_with_barrier_and_store(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
        w.group.barrier()
    else:
        begun = threading.Barrier(2, timeout=DEADLINE)
        with ThreadPoolExecutor(2) as pool:

            def first() -> None:
                begun.wait()
                w.group.barrier()

            def second() -> None:
                begun.wait()
                w.window.view()[0] = 42  # second

            done = [pool.submit(first), pool.submit(second)]
        for each in done:
            each.result()


@case("hybrid-019")
def task_with_barrier_that_is_awaited(w: World) -> None:
    if w.rank == 0:
        _origin_reads(w)
    else:
        begun = threading.Event()

        def task() -> None:
            begun.set()
            w.group.barrier()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(task)
            begun.wait(DEADLINE)
            done.result()
            w.window.view()[0] = 42


@case("hybrid-020", race="remote")
def task_with_barrier_that_is_not_awaited(w: World) -> None:
    if w.rank == 0:
        w.to[1].read(w.own[:4], nonblocking=True)  # first
        w.to[1].drain()
        w.group.barrier()
    else:
        begun = threading.Event()

        def task() -> None:
            begun.set()
            w.group.barrier()

        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(task)
            begun.wait(DEADLINE)
            w.window.view()[0] = 42  # second
        done.result()


@case("hybrid-021", race="remote")
def another_thread_of_the_origin_meets_the_target(w: World) -> None:
    if w.rank == 0:

        def reader() -> None:
            w.to[1].read(w.own[:4], nonblocking=True)  # first
            w.to[1].drain()

        team(reader, w.group.barrier)
    else:
        w.group.barrier()
        w.window.view()[0] = 42  # second


@case("hybrid-022", race="remote")
def another_thread_of_the_origin_sends_to_the_target(w: World) -> None:
    if w.rank == 0:

        def reader() -> None:
            w.to[1].read(w.own[:4], nonblocking=True)  # first
            w.to[1].drain()

        def sender() -> None:
            w.group.send(w.own[16:20], 1)

        team(reader, sender)
    else:
        w.group.recv(w.own[16:20], 0)
        w.window.view()[0] = 42  # second
