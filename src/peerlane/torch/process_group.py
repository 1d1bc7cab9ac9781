"""The process group that torch calls: collectives and messages of a peerlane group and its duplicate."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch.distributed import distributed_c10d as c10d

from peerlane.collectives.duplicate import Duplicate
from peerlane.collectives.group import Group
from peerlane.collectives.part import Part
from peerlane.diagnostics.call_site import call_site
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error, Refused, WaitTimeout
from peerlane.support import exits
from peerlane.torch import collective_calls as calls
from peerlane.torch.call_forms import with_settings
from peerlane.torch.device import kinds
from peerlane.torch.device_calls import DeviceCalls, JoinedWork, QueuedWork
from peerlane.torch.device_objects import present
from peerlane.torch.dispatched import Dispatched, has_wrappers
from peerlane.torch.failures import converted, refused
from peerlane.torch.lane import Lane
from peerlane.torch.meeting import Meeting
from peerlane.torch.messages import Messages
from peerlane.torch.monitored import monitored_barrier
from peerlane.torch.receives import Receive
from peerlane.torch.reductions import Reduction, find
from peerlane.torch.tensor_bytes import check, check_alike, completed, is_shape, tensors_in
from peerlane.torch.work import Work

BACKEND = "peerlane"
_CPU = torch.device("cpu")
_ABLE = b"+"  # begins the answer of a rank that can make a part
_LAST_SECONDS = 10.0  # how long the end of a process waits for queued calls
_MOST_TOGETHER = 16  # ranks: all of them read all offers, which are some 400 bytes for each pair

_Tensors = Sequence[torch.Tensor]
_open: weakref.WeakValueDictionary[int, PeerlaneGroup] = weakref.WeakValueDictionary()  # in their order
_numbers = itertools.count()


def create(options: Any, _options: object = None) -> PeerlaneGroup:
    """Make the process group that torch asks for.

    Parameters
    ----------
    options : _DistributedBackendOptions
        ``store``, ``group_rank``, ``group_size``, ``timeout``, ``group_id`` and ``global_ranks_in_group``.
    """
    where = options.store, options.group_rank, options.group_size
    ranks = options.global_ranks_in_group
    return PeerlaneGroup(*where, options.timeout, name=str(options.group_id), ranks=ranks, kinds=kinds())


class PeerlaneGroup(dist.ProcessGroup):
    """A process group whose tensors move through the memory of virtual devices.

    Collectives run one after the other, in the order of the calls.  A call that need not wait for an earlier one, and
    that is not asynchronous, runs in the caller's thread.  Sends and receives are independent of collectives.

    Parameters
    ----------
    store : Store
        Over which the ranks meet.
    rank, size : int
    timeout : timedelta
        How long a call waits for another rank; then it raises, and the group has ended.
    name : str
        The name of the group for torch, which error texts show.
    ranks : sequence of int
        The numbers of its ranks in the world; empty if it is the world.  This process's number decides the device.
    kinds : sequence of str
        The kinds of devices whose tensors it takes.

    Raises
    ------
    DistBackendError
        A rank did not come, or peerlane cannot make the group; the cause is peerlane's own error.
    """

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        *,
        name: str,
        ranks: Sequence[int],
        kinds: Sequence[str],
    ) -> None:
        super().__init__(rank, size)
        self._own_kinds = kinds
        self._store, self._seconds = store, timeout.total_seconds()
        self._lane = Lane()
        self._name, self._desc = name, ""
        self._ended: Exception | None = None
        self._meeting = Meeting(store, rank, size, self._seconds)
        self._barriers, self._is_sound = 0, True
        self._on_devices: DeviceCalls | None = None
        self._coalesced: list[dist.Work] | None = None
        self._longest = self._seconds  # how long the groups wait by themselves
        try:
            with contextlib.ExitStack() as undo:
                part = self._part_of_world(ranks)
                self._group = undo.enter_context(self._met(ranks or range(size)) if part is None else part[0])
                # A receive from any rank also waits for ranks that send nothing, so only its wait has a time-out.
                self._messages = Messages(
                    Duplicate(self._group, wait_timeout=None) if part is None else part[1]
                )
                undo.pop_all()
        except Error as error:
            raise converted("init", error) from error
        _open[next(_numbers)] = self
        exits.before_node_ends(_leave_all)

    def _part_of_world(self, ranks: Sequence[int]) -> tuple[Part, Duplicate] | None:
        """Return the ranks as a part of the world's group, and its duplicate; None if one of them cannot do that.

        One exchange over the store agrees on it, and brings the offers of the duplicate's channels if they are few.
        """
        world = _of_all_ranks()
        if world is None:
            return None
        if not (world._is_sound and Part.is_possible(world._group)):
            self._meeting.all_gather("part", b"")
            return None
        times = {"wait_timeout": self._seconds, "timeout": self._seconds}
        part = Part(world._group, ranks, name=self._group_name(), number=self._meeting.time, **times)
        with contextlib.ExitStack() as undo:
            undo.callback(part.close)
            duplicate, offers = part.duplicate_with_offers() if len(ranks) <= _MOST_TOGETHER else (None, b"")
            answers = self._meeting.all_gather("part", _ABLE + offers)
            if not all(answers):
                return None
            for rank, answer in enumerate(answers):
                part.take_offers(rank, answer.removeprefix(_ABLE))
            undo.pop_all()
        return part, duplicate or Duplicate(part)

    def _group_name(self) -> str:
        return f"torch group {self._name}"[:64]

    def _met(self, ranks: Sequence[int]) -> Group:
        """Make a group whose ranks meet over the store."""
        there = present()
        return Group(
            *(self.rank(), self.size()),
            rendezvous=functools.partial(self._meeting.all_gather, "group"),
            device=there[ranks[self.rank()] % len(there)],
            window=1,
            wait_timeout=self._seconds,
            name=self._group_name(),
            timeout=self._seconds,
        )

    # What torch asks about the group.

    def getBackendName(self) -> str:
        """Return ``"peerlane"``."""
        return BACKEND

    # Without a back-end inside of it the base class has neither name nor description.

    def _set_group_name(self, name: str) -> None:
        super()._set_group_name(name)
        self._name = name

    def _set_group_desc(self, desc: str) -> None:
        super()._set_group_desc(desc)
        self._desc = desc

    def getGroupName(self) -> str:
        """Return the name of the group."""
        return self._name

    def getGroupDesc(self) -> str:
        """Return the description of the group."""
        return self._desc

    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    @property
    def session(self) -> Group:
        """The peerlane group of its ranks."""
        return self._group

    def get_group_store(self) -> dist.Store:
        """Return the store over which the ranks have met."""
        return self._store

    @property
    def _kinds(self) -> Sequence[str]:
        """The kinds of devices whose tensors it takes."""
        return self._own_kinds

    @property
    def _device_types(self) -> list[torch.device]:
        return list(map(torch.device, self._kinds))

    def _get_backend(self, device: torch.device) -> PeerlaneGroup:
        if device.type not in self._kinds:
            raise RuntimeError(
                f"this process group takes tensors on {' and '.join(self._kinds)}, not on {device}"
            )
        return self

    supports_splitting = supports_coalescing = supports_time_estimate = False

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> JoinedWork:
        works, self._coalesced = self._coalesced, None
        return JoinedWork(works or [])

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of later calls; one that is longer than the group's first has no effect."""
        self._seconds = timeout.total_seconds()

    # Ends.

    def shutdown(self) -> None:
        """End the group after the calls that are under way; peers learn of it."""
        self._lane.finish(self._seconds)
        self._leave("destroyed", None)

    def _leave(self, how: str, seconds: float | None) -> None:
        if self._on_devices is not None:
            self._on_devices.finish(seconds)
        if self._is_sound and self._messages.is_sound:
            # Without a last message the others' receives fail.  After a failure none is sent: the others must get the
            # error of the deadlock, and not the end of this rank.
            self._messages.send_goodbye()
        self._end(refused(f"peerlane: the process group was {how}"))

    def abort(self) -> None:
        """End the group at once: calls that are under way raise."""
        self._end(refused("peerlane: the process group was aborted"))

    def _end(self, why: Exception) -> None:
        self._ended = self._ended or why
        for number in [number for number, each in _open.items() if each is self]:
            del _open[number]
        self._lane.close()
        self._messages.close(self._ended)
        if self._on_devices is not None:
            self._on_devices.close()
        with contextlib.suppress(Error):
            self._group.close()

    def _expire(self, call: str, seconds: float) -> Exception:
        """End the group because a call took too long; return the error."""
        text = f"Timed out waiting {seconds * 1000:g}ms for the other ranks; the process group has ended"
        error: Exception = refused(f"peerlane:{call} : {text}")
        error.__cause__ = WaitTimeout(text, call=call, detail=Refused(reason="wait_timeout", seconds=seconds))
        self._end(error)
        return error

    # How a call runs.

    @functools.cached_property
    def dispatched(self) -> Dispatched:
        """What calls it by way of torch's dispatcher."""
        return Dispatched(self, self._device_types)

    def _run(
        self, name: str, opts: Any, changed: list[torch.Tensor], call: Callable[..., None], *what: Any
    ) -> dist.Work:
        """Run a collective now, or queue it and return at once; show it to a profiler.

        With shapes nothing runs (facts/torch 4.7).
        """
        tensors = list(tensors_in(what))
        if any(map(is_shape, tensors)):
            return FakeWork()
        device = tensors[0].device if tensors else _CPU
        if device != _CPU:
            return self._queue(name, opts, device, changed, call, *what)
        if not torch.autograd._profiler_enabled():
            return self._start(name, opts, changed, call, *what)
        record = torch.ops.profiler._record_function_enter_new(f"{self.getBackendName()}:{name}", None)
        work = self._start(name, opts, changed, call, *what)
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(record, work.get_future())
        return work

    def _start(
        self, name: str, opts: Any, changed: list[torch.Tensor], call: Callable[..., None], *what: Any
    ) -> Work:
        own_seconds = opts.timeout.total_seconds()
        asked = own_seconds if own_seconds > 0 else self._seconds
        seconds = asked if asked < self._longest else None

        def go() -> None:
            if self._ended is not None:
                raise self._ended
            try:
                call(self._group, *what)
            except Error as error:
                self._is_sound = False
                raise (self._ended or converted(name, error)) from error

        if not opts.asyncOp and seconds is None:
            self._lane.run(name, go)
            return Work(name, changed)
        if opts.asyncOp and event_log.active:
            event_log.unwatched(read=bool(what), written=bool(changed))
        work = Work(name, changed, self._lane.submit(f"{name} of {call_site()}", go), seconds, self._expire)
        if not opts.asyncOp:
            work.wait()
        return work

    def _queue(
        self,
        name: str,
        opts: Any,
        device: torch.device,
        changed: list[torch.Tensor],
        call: Callable[..., None],
        *what: Any,
    ) -> QueuedWork:
        with torch.profiler.record_function(f"{self.getBackendName()}:{name}"):
            work = self._device_calls(name).collective(
                *(name, device, changed, call, *what), is_async=opts.asyncOp
            )
        return self._issued(work)

    def _device_calls(self, name: str) -> DeviceCalls:
        if self._ended is not None:
            raise self._ended
        if self._on_devices is None:
            try:
                self._on_devices = DeviceCalls(self._group, self._longest)
            except Error as error:
                raise converted(name, error) from error
        return self._on_devices

    def _issued(self, work: QueuedWork) -> QueuedWork:
        work.expire = self._expire
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _check(self, call: str, tensors: _Tensors) -> None:
        check(call, tensors, self._kinds)

    # Collectives.

    @with_settings(c10d.BroadcastOptions)
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Give all ranks the root's tensor."""
        (tensor,) = tensors
        self._check("broadcast", tensors)
        return self._run("broadcast", opts, tensors, calls.broadcast, tensor, opts.rootRank)

    @with_settings(c10d.AllreduceOptions)
    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Combine a tensor of all ranks."""
        (tensor,) = tensors
        if tensor.is_sparse:
            return self._all_reduce_sparse(tensor, opts)
        self._check("all_reduce", tensors)
        how = find("all_reduce", opts.reduceOp, tensor.dtype)
        return self._run("all_reduce", opts, tensors, calls.all_reduce, tensor, how)

    def _all_reduce_sparse(self, tensor: torch.Tensor, opts: Any) -> dist.Work:
        if opts.reduceOp != dist.ReduceOp.SUM or not tensor.is_cpu or "cpu" not in self._kinds:
            raise refused("peerlane:sparse_all_reduce : valid are sums of sparse tensors on the processor")
        return self._run("sparse_all_reduce", opts, [tensor], calls.all_reduce_sparse, tensor)

    @with_settings(c10d.AllreduceCoalescedOptions)
    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Combine several tensors of one element type of all ranks."""
        check_alike("all_reduce_coalesced", tensors, self._kinds)
        how = find("all_reduce", opts.reduceOp, tensors[0].dtype)
        return self._run("all_reduce", opts, tensors, calls.all_reduce_joined, tensors, how)

    @with_settings(c10d.ReduceOptions)
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Combine a tensor of all ranks at the root."""
        (tensor,) = tensors
        self._check("reduce", tensors)
        how = find("reduce", opts.reduceOp, tensor.dtype)
        return self._run("reduce", opts, tensors, calls.reduce, tensor, opts.rootRank, how)

    @with_settings(c10d.AllgatherOptions)
    def allgather(
        self,
        outputs: list[list[torch.Tensor]],
        inputs: list[torch.Tensor],
        opts: Any,
    ) -> dist.Work:
        """Gather a tensor of each rank, of any size, in a list of tensors."""
        (parts,), (tensor,) = outputs, inputs
        self._check_parts(
            "all_gather", parts, tensor, parts[self.rank()] if len(parts) == self.size() else None
        )
        return self._run("all_gather", opts, parts, calls.all_gather, parts, tensor)

    @with_settings(c10d.AllgatherOptions, lists=False)
    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> dist.Work:
        """Gather a tensor of each rank, side by side."""
        self._check_whole("all_gather_single", output, tensor)
        return self._run("all_gather_into_tensor", opts, [output], calls.all_gather_whole, output, tensor)

    _allgather_base = all_gather_single

    @with_settings(c10d.AllgatherOptions)
    def allgather_coalesced(
        self,
        outputs: list[list[torch.Tensor]],
        inputs: list[torch.Tensor],
        opts: Any,
    ) -> dist.Work:
        """Gather several tensors of each rank: ``outputs[rank][n]`` is the n-th of a rank."""
        if len(outputs) != self.size():
            raise refused(
                f"peerlane:all_gather_coalesced : there are {len(outputs)} lists; there must be one for each of "
                f"{self.size()} ranks"
            )
        turned = [list(parts) for parts in zip(*outputs, strict=True)]
        for parts, tensor in zip(turned, inputs, strict=True):
            self._check_parts("all_gather_coalesced", parts, tensor, parts[self.rank()])
        changed = [each for parts in outputs for each in parts]
        return self._run(
            "all_gather", opts, changed, _each(calls.all_gather), list(zip(turned, inputs, strict=True))
        )

    @with_settings(c10d.AllgatherOptions)
    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> dist.Work:
        """Gather several tensors of each rank, each side by side."""
        pairs = list(zip(outputs, inputs, strict=True))
        for output, tensor in pairs:
            self._check_whole("all_gather_single_coalesced", output, tensor)
        return self._run("all_gather_into_tensor", opts, outputs, _each(calls.all_gather_whole), pairs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @with_settings(c10d.GatherOptions)
    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        """Gather a tensor of each rank, of any size, at the root."""
        (tensor,) = inputs
        parts = self._parts_at_root("gather", outputs, opts.rootRank)
        self._check_parts("gather", parts, tensor, parts[self.rank()] if parts else tensor)
        return self._run("gather", opts, parts, calls.gather, parts, tensor, opts.rootRank)

    @with_settings(c10d.ScatterOptions)
    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> dist.Work:
        """Give each rank one of the root's tensors, which have one size."""
        (tensor,) = outputs
        parts = self._parts_at_root("scatter", inputs, opts.rootRank)
        for part in parts:
            self._check_parts("scatter", parts, tensor, part)
        self._check("scatter", outputs)
        return self._run("scatter", opts, outputs, calls.scatter, tensor, parts, opts.rootRank)

    @with_settings(c10d.ReduceScatterOptions)
    def reduce_scatter(
        self,
        outputs: list[torch.Tensor],
        inputs: list[list[torch.Tensor]],
        opts: Any,
    ) -> dist.Work:
        """Combine lists of tensors of all ranks, and give each rank one of the results; they may have any sizes."""
        (tensor,), (parts,) = outputs, inputs
        self._check_parts(
            "reduce_scatter", parts, tensor, parts[self.rank()] if len(parts) == self.size() else None
        )
        how = find("reduce_scatter", opts.reduceOp, tensor.dtype)
        return self._run("reduce_scatter", opts, outputs, calls.reduce_scatter, tensor, parts, how)

    @with_settings(c10d.ReduceScatterOptions, lists=False)
    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> dist.Work:
        """Combine a tensor of all ranks, and give each rank an equal part."""
        how = self._reduction_of_parts("reduce_scatter_single", output, tensor, opts)
        return self._run(
            "reduce_scatter_tensor", opts, [output], calls.reduce_scatter_whole, output, tensor, how
        )

    _reduce_scatter_base = reduce_scatter_single

    @with_settings(c10d.ReduceScatterOptions)
    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any
    ) -> dist.Work:
        """Combine several tensors of all ranks, and give each rank an equal part of each."""
        what = [
            (
                output,
                tensor,
                self._reduction_of_parts("reduce_scatter_single_coalesced", output, tensor, opts),
            )
            for output, tensor in zip(outputs, inputs, strict=True)
        ]
        return self._run("reduce_scatter_tensor", opts, outputs, _each(calls.reduce_scatter_whole), what)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _reduction_of_parts(
        self, call: str, output: torch.Tensor, tensor: torch.Tensor, opts: Any
    ) -> Reduction:
        self._check_whole(call, tensor, output)
        return find(call, opts.reduceOp, output.dtype)

    @with_settings(c10d.AllToAllOptions, lists=False)
    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: list[int] | None,
        input_splits: list[int] | None,
        opts: Any,
    ) -> dist.Work:
        """Exchange rows between all ranks; without splits all parts are equal."""
        check_alike("all_to_all_single", (output, tensor), self._kinds)
        receives = self._bytes_of_splits("output", output, output_splits)
        sends = self._bytes_of_splits("input", tensor, input_splits)
        return self._run("all_to_all", opts, [output], calls.all_to_all, output, tensor, receives, sends)

    alltoall_base = all_to_all_single

    @with_settings(c10d.AllToAllOptions)
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        """Exchange tensors of any sizes between all ranks."""
        self._check_parts("all_to_all", outputs, inputs[0], None, is_any=True)
        self._check_parts("all_to_all", inputs, outputs[0], None, is_any=True)
        return self._run("all_to_all", opts, outputs, calls.all_to_all_lists, outputs, inputs)

    @with_settings(c10d.BarrierOptions, lists=False)
    def barrier(self, opts: Any) -> dist.Work:
        """Wait until all ranks have come."""
        device = opts.device if opts.device is not None and opts.device.type in self._kinds else _CPU
        if device == _CPU and self._on_devices is not None and self._on_devices.latest is not None:
            device = self._on_devices.latest  # whose queued work the other ranks wait for, too
        if device == _CPU:
            return self._run("barrier", opts, [], calls.barrier)
        work = self._queue("barrier", opts, device, [], calls.barrier)
        work.blocks = True
        return work

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait until all ranks have come; name those that have not."""
        self._barriers += 1
        seconds = self._seconds if timeout is None else timeout.total_seconds()
        ranks = self.rank(), self.size()
        monitored_barrier(self._meeting, *ranks, self._barriers, seconds, wait_all_ranks=wait_all_ranks)

    # Messages.

    def send(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        """Send a tensor to a rank."""
        (tensor,) = tensors = completed(tensors)
        if has_wrappers(tensors):
            return self.dispatched.call("send", tensors, peer, tag)
        self._check("send", tensors)
        if is_shape(tensor):
            return FakeWork()
        if not tensor.is_cpu:
            return self._issued(self._device_calls("send").send(tensor, peer))
        return self._message(f"send to rank {peer}", tensors, self._messages.send(tensor, peer, tag))

    def recv(self, tensors: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        """Receive a tensor of a rank."""
        (tensor,) = tensors = completed(tensors)
        if has_wrappers(tensors):
            return self.dispatched.call("recv", tensors, peer, tag)
        self._check("recv", tensors)
        if is_shape(tensor):
            return FakeWork()
        if not tensor.is_cpu:
            return self._issued(self._device_calls("recv").receive(tensor, peer))
        return self._message(f"recv from rank {peer}", tensors, self._messages.receive(tensor, [peer], tag))

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> dist.Work:
        """Receive a tensor of whichever rank sends one first."""
        (tensor,) = tensors = completed(tensors)
        self._check("recv", tensors)
        if is_shape(tensor):
            return FakeWork()
        if not tensor.is_cpu:
            raise refused(
                f"peerlane:recv : the tensor is on {tensor.device}; a receive there names the rank that sends: pass "
                "src"
            )
        peers = [rank for rank in range(self.size()) if rank != self.rank()]
        return self._message("recv from any rank", tensors, self._messages.receive(tensor, peers, tag))

    def _message(
        self, call: str, tensors: list[torch.Tensor], future: Future[int | None] | Receive | None
    ) -> dist.Work:
        return Work(call, tensors, future, self._seconds, self._expire)

    # Checks.

    def _check_parts(
        self,
        call: str,
        parts: _Tensors,
        tensor: torch.Tensor,
        own: torch.Tensor | None,
        *,
        is_any: bool = False,
    ) -> None:
        check_alike(call, [*parts, tensor], self._kinds)
        if parts and len(parts) != self.size():
            raise refused(
                f"peerlane:{call} : there are {len(parts)} tensors; there must be one for each of {self.size()} ranks"
            )
        if not is_any and own is not None and own.numel() != tensor.numel():
            raise refused(
                f"peerlane:{call} : this rank's tensor has {tensor.numel():,} elements, and the list has "
                f"{own.numel():,} for it"
            )

    def _check_whole(self, call: str, whole: torch.Tensor, part: torch.Tensor) -> None:
        check_alike(call, (whole, part), self._kinds)
        if whole.numel() != part.numel() * self.size():
            raise refused(
                f"peerlane:{call} : the large tensor has {whole.numel():,} elements, the small one {part.numel():,}; "
                f"it must have {self.size()} times as many, one part for each rank"
            )

    def _parts_at_root(self, call: str, lists: list[list[torch.Tensor]], root: int) -> list[torch.Tensor]:
        if (self.rank() == root) != (len(lists) == 1) or (lists and len(lists[0]) != self.size()):
            raise refused(
                f"peerlane:{call} : rank {self.rank()} passes {len(lists)} lists; the root, rank {root}, passes one "
                f"list of {self.size()} tensors, and the others none"
            )
        return list(lists[0]) if lists else []

    def _bytes_of_splits(self, what: str, tensor: torch.Tensor, splits: list[int] | None) -> list[int]:
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits:
            if rows % self.size():
                raise refused(
                    f"peerlane:all_to_all_single : the {rows} rows of {what} do not divide into {self.size()} equal "
                    "parts; pass split sizes"
                )
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise refused(
                f"peerlane:all_to_all_single : the split sizes of {what} are {splits}; valid are {self.size()} "
                f"numbers with the sum {rows}, its rows"
            )
        width = tensor.nbytes // rows if rows else 0
        return [split * width for split in splits]


def _leave_all() -> None:
    """Leave all groups: a process that ends without a word counts as lost where receives wait for any rank."""
    for _, group in sorted(_open.items(), reverse=True):  # parts before the world
        group._leave("left at the end of the process", _LAST_SECONDS)


def _of_all_ranks() -> PeerlaneGroup | None:
    """Return the process group of all ranks, None if it is not made yet, or is another back-end's."""
    world = c10d.GroupMember.WORLD
    return world if isinstance(world, PeerlaneGroup) else None


def _each(call: Callable[..., None]) -> Callable[[Group, Sequence[tuple[Any, ...]]], None]:
    """Return a call that makes one for each row of arguments."""

    def run(group: Group, rows: Sequence[tuple[Any, ...]]) -> None:
        for row in rows:
            call(group, *row)

    return run
