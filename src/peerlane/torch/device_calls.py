"""Calls on tensors of devices: they are queued on streams, and a wait for one makes the current stream wait."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from peerlane.collectives.duplicate import Duplicate
from peerlane.collectives.group import Group
from peerlane.errors import Cancelled, Closed, Error, WaitTimeout
from peerlane.streams.event import Event
from peerlane.streams.stream import Stream
from peerlane.torch import device_module
from peerlane.torch.collective_calls import Caller, OnStream
from peerlane.torch.failures import converted, refused
from peerlane.torch.tensor_bytes import bytes_of, flat, put_back, tensors_in

_LATE_SECONDS = 10.0  # how long a call waits for the streams of the last calls, to learn what has failed
_COLLECTIVES = "collectives"
_idle: defaultdict[int, list[torch.Stream]] = defaultdict(list)  # own streams of groups that have ended


class DeviceCalls:
    """The calls of a process group on tensors of devices.

    Collectives run one after the other.  Messages between two ranks have a stream for each direction, so a send and a
    receive do not wait for each other.

    Parameters
    ----------
    group : Group
        All ranks make their first call on such tensors in the same order of the group's duplicates.
    seconds : float
        How long a call waits for a peer.

    Attributes
    ----------
    latest : device or None
        Of the last collective.
    """

    def __init__(self, group: Group, seconds: float) -> None:
        self._collectives = Duplicate(group, wait_timeout=seconds)
        self._messages = Duplicate(group, wait_timeout=seconds)
        self._streams: dict[tuple[int, str, int], torch.Stream] = {}
        self._rank = group.rank
        self._own = OwnMessages(group.rank)
        self._last_on: torch.Stream | None = None  # of a collective
        self.latest: torch.device | None = None

    def collective(
        self,
        name: str,
        device: torch.device,
        changed: list[torch.Tensor],
        call: Callable[..., None],
        *what: Any,
        is_async: bool,
    ) -> QueuedWork:
        """Queue a collective: on the current stream, or, if it is asynchronous, on one that waits for that."""
        self.latest = device
        current = torch.accelerator.current_stream(device)
        if not is_async:
            return self._queue(name, current, changed, lambda on: call(on, *what), self._collectives)
        stream = self._stream(device.index, _COLLECTIVES, 0)
        stream.wait_stream(current)
        for tensor in tensors_in(what):
            tensor.record_stream(stream)
        return self._queue(name, stream, changed, lambda on: call(on, *what), self._collectives)

    def send(self, tensor: torch.Tensor, peer: int) -> QueuedWork:
        """Queue a send."""
        stream = self._message_stream(tensor, "to", peer)
        if peer == self._rank:
            return self._own.send(tensor, stream)
        return self._queue(
            "send", stream, [tensor], lambda on: on.send(bytes_of(flat(tensor)), peer), self._messages
        )

    def receive(self, tensor: torch.Tensor, peer: int) -> QueuedWork:
        """Queue a receive."""

        def call(on: Caller) -> None:
            contiguous = flat(tensor)
            on.recv(bytes_of(contiguous), peer)
            put_back(tensor, contiguous)

        stream = self._message_stream(tensor, "from", peer)
        if peer == self._rank:
            return self._own.receive(tensor, stream)
        return self._queue("recv", stream, [tensor], call, self._messages, source=peer)

    def _message_stream(self, tensor: torch.Tensor, direction: str, peer: int) -> torch.Stream:
        stream = self._stream(tensor.device.index, direction, peer)
        stream.wait_stream(torch.accelerator.current_stream(tensor.device))
        tensor.record_stream(stream)
        return stream

    def _stream(self, device: int, direction: str, peer: int) -> torch.Stream:
        key = device, direction, peer
        if key not in self._streams:
            idle = _idle[device]
            self._streams[key] = idle.pop() if idle else device_module.own_stream(device)
        return self._streams[key]

    def _queue(
        self,
        name: str,
        stream: torch.Stream,
        changed: list[torch.Tensor],
        call: Callable[[Caller], None],
        group: Group,
        *,
        source: int | None = None,
    ) -> QueuedWork:
        try:
            with stream:
                on = OnStream(group, device_module.stream_of(stream))
                device_module.extension().run_as(name, lambda: call(on))
        except Closed as error:
            raise converted(name, self._first_failure(stream, group) or error) from error
        except Error as error:
            raise converted(name, error) from error
        if group is self._collectives:
            self._last_on = stream
        return QueuedWork(name, changed, stream, source=source)

    def _first_failure(self, stream: torch.Stream, group: Group) -> Error | None:
        """Return why the calls have ended: an operation that is queued before one of them has failed.

        Each collective waits for the one before it, so the last one is cancelled when its stream comes to it.
        Messages wait for those of their direction alone.
        """
        others = [each for (_, direction, _), each in self._streams.items() if direction != _COLLECTIVES]
        if group is self._collectives:
            others = [] if self._last_on is None else [self._last_on]
        now = time.monotonic()
        for each, end in ((stream, now), *((each, now + _LATE_SECONDS) for each in others)):
            try:
                device_module.stream_of(each).sync(max(0.0, end - time.monotonic()))
            except WaitTimeout:
                continue
            except Error as failure:
                return failure
        return None

    def finish(self, seconds: float | None) -> None:
        """Wait so long for the calls that are queued; whoever waited for a stream has got its error."""
        end = None if seconds is None else time.monotonic() + seconds
        waits: list[Stream | Event] = [device_module.stream_of(each) for each in self._streams.values()]
        with contextlib.suppress(Error):
            if (
                self._last_on is not None
            ):  # by an event: the error of the program's stream is left to the program
                waits.append(device_module.stream_of(self._last_on).record())
        for each in waits:
            with contextlib.suppress(Error):
                each.sync(None if end is None else max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """End the calls; streams on which nothing is queued serve other groups."""
        for each in (self._collectives, self._messages):
            with contextlib.suppress(Error):
                each.close()
        for (device, _, _), stream in self._streams.items():
            if device_module.is_settled(stream):
                _idle[device].append(stream)
        self._streams.clear()


class QueuedWork(dist.Work):
    """A call that is queued on a stream.

    Parameters
    ----------
    call : str
        Its name, for texts.
    tensors : list of Tensor
        What it changes.
    stream : torch.Stream
        The stream, on which it is the last operation by now.
    source : int or None
        The rank that sends the bytes.

    Attributes
    ----------
    blocks : bool
        Whether a wait blocks the thread too.
    expire : callable
        Called when the time-out of a wait is over, with the call's name and the seconds; it ends the process group,
        as NCCL does, and returns the error.
    """

    expire: Callable[[str, float], Exception]

    def __init__(
        self, call: str, tensors: Sequence[torch.Tensor], stream: torch.Stream, *, source: int | None = None
    ) -> None:
        super().__init__()
        self._call, self._tensors, self._stream, self._source = call, list(tensors), stream, source
        self._runs_on = device_module.stream_of(stream)
        self._end = self._runs_on.record()
        self.blocks = False

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Let the current stream wait for it; with a time-out let this thread wait, too.

        Raises
        ------
        DistBackendError
            With a time-out: it is over, and the process group has ended, or the call has failed.
        """
        current = torch.accelerator.current_stream(self._stream.device)
        if current != self._stream:
            device_module.stream_of(current).wait(self._end)
        seconds = timeout.total_seconds()
        if seconds > 0 or self.blocks:
            self._block(seconds if seconds > 0 else None)
        return True

    def _block(self, seconds: float | None) -> None:
        try:
            try:
                self._end.sync(seconds)
            except Cancelled:
                self._runs_on.sync(seconds)  # which has the first failure
                raise
        except Error as error:
            if seconds is None or not isinstance(error, WaitTimeout):
                raise converted(self._call, error) from error
            raise self.expire(self._call, seconds) from None

    def synchronize(self) -> None:
        """Let the current stream wait for it."""
        self.wait()

    def block_current_stream(self) -> None:
        """Let the current stream wait for it."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it is over, by success or failure."""
        return self._end.is_done

    def is_success(self) -> bool:
        """Return whether it is over; a failure is raised where the program waits for the stream."""
        return self.is_completed()

    def exception(self) -> None:
        """Return None: a failure is raised where the program waits for the stream."""

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that it changes."""
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank in the group from which a receive gets its bytes."""
        if self._source is None:
            raise refused(f"peerlane:{self._call} has no source rank; only a receive has one")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of torch that is over: a wait for it makes the current stream wait."""
        future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=[self._stream.device])
        with self._stream:  # the future records its events on the current streams
            future.set_result(self._tensors)
        return future


class OwnReceive(QueuedWork):
    """A receive of a message of the same rank, which may be sent later."""

    def __init__(self, tensor: torch.Tensor, stream: torch.Stream, rank: int) -> None:
        super().__init__("recv", [tensor], stream, source=rank)
        self._is_sent = False

    def check(self, sent: torch.Tensor) -> None:
        """Refuse a message of another size."""
        (tensor,) = self._tensors
        if tensor.nbytes != sent.nbytes:
            raise refused(
                f"peerlane:recv : this rank sends itself {sent.nbytes:,} bytes, and the receive has a tensor of "
                f"{tensor.nbytes:,}; both must have the same"
            )

    def fill(self, sent: torch.Tensor, sender: torch.Stream) -> None:
        """Queue the copy of a message."""
        (tensor,) = self._tensors
        self._stream.wait_stream(sender)
        sent.record_stream(self._stream)
        with self._stream:
            contiguous = flat(tensor)
            _as_bytes(contiguous).copy_(_as_bytes(sent))
            put_back(tensor, contiguous)
        self._end = self._runs_on.record()
        self._is_sent = True

    def _check_sent(self) -> None:
        if not self._is_sent:
            raise refused(
                "peerlane:recv : the message is one of this rank to itself, and was not sent yet; send it before the "
                "wait"
            )

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Let the current stream wait for it, as any receive; it must have been sent."""
        self._check_sent()
        return super().wait(timeout)

    def is_completed(self) -> bool:
        """Return whether it is over, by success or failure."""
        return self._is_sent and super().is_completed()

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of torch that is over; the message must have been sent."""
        self._check_sent()
        return super().get_future()


class OwnMessages:
    """Messages of a rank to itself: a send keeps a copy, and the receives take these in their order.

    Parameters
    ----------
    rank : int
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._sent: deque[tuple[torch.Tensor, torch.Stream]] = deque()
        self._receives: deque[OwnReceive] = deque()

    def send(self, tensor: torch.Tensor, stream: torch.Stream) -> QueuedWork:
        """Queue a copy, for the first receive that has no message."""
        if self._receives:
            self._receives[0].check(tensor)
        with stream:
            sent = flat(tensor).detach().clone()
        if self._receives:
            self._receives.popleft().fill(sent, stream)
        else:
            self._sent.append((sent, stream))
        return QueuedWork("send", [tensor], stream)

    def receive(self, tensor: torch.Tensor, stream: torch.Stream) -> QueuedWork:
        """Queue the copy of the first message that nobody has received, or wait for the next one."""
        work = OwnReceive(tensor, stream, self._rank)
        if self._sent:
            work.check(self._sent[0][0])
            work.fill(*self._sent.popleft())
        else:
            self._receives.append(work)
        return work


def _as_bytes(contiguous: torch.Tensor) -> torch.Tensor:
    return contiguous.detach().reshape(-1).view(torch.uint8)


class JoinedWork(dist.Work):
    """Several calls that are queued."""

    def __init__(self, works: Sequence[dist.Work]) -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Let the current stream wait for all of them."""
        for each in self._works:
            each.wait(timeout)
        return True

    def synchronize(self) -> None:
        """Let the current stream wait for all of them."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether all are over."""
        return all(each.is_completed() for each in self._works)

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that they change."""
        return [tensor for each in self._works for tensor in each.result()]

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future of torch for the tensors."""
        ended = torch.futures.collect_all([each.get_future() for each in self._works])
        return ended.then(lambda all_: [tensor for each in all_.value() for tensor in each.value()])
