"""Executable graphs: copies of graphs that are launched, updated, and destroyed on their own."""

from __future__ import annotations

from collections.abc import Iterator

from peerlane import Event, Stream
from peerlane.diagnostics.log import event_log
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.graphs.graph import Child, Empty, Graph, Node, numbers
from peerlane.dialects.gpu.graphs.memory import Allocation
from peerlane.dialects.gpu.graphs.user_objects import UserObject
from peerlane.dialects.gpu.streams import NON_BLOCKING, AnyStream, GpuStream, Streams

AUTO_FREE = 1  # both vendors' number of the flag


class Step:
    """What an executable graph does for a node."""

    __slots__ = ("before", "child", "is_enabled", "node", "operation", "site")

    def __init__(self, node: Node, before: tuple[int, ...]) -> None:
        #: ``node``: of the graph that it was made of.
        #: ``before``: the steps that it follows, by their number in their graph.
        #: ``site``: of the call that described the operation, in the event log.
        self.node, self.operation, self.site, self.before = node, node.operation, node.site, before
        #: Of a child graph.
        self.child = Steps(node.operation.graph) if isinstance(node.operation, Child) else None
        self.is_enabled = True


class Steps(list[Step]):
    """The steps of a graph, in the order in which the nodes were added."""

    def __init__(self, graph: Graph) -> None:
        numbers = {node: at for at, node in enumerate(graph.nodes)}
        super().__init__(
            Step(node, tuple(numbers[each] for each in node.dependencies)) for node in graph.nodes
        )
        self.order = [numbers[node] for node in graph.ordered()]

    def all(self) -> Iterator[Step]:
        """Return all steps, those of child graphs too."""
        for step in self:
            yield step
            if step.child is not None:
                yield from step.child.all()


class _Task:
    """A step in its place: the tasks that it follows, and the lane that it runs on."""

    __slots__ = ("ancestors", "before", "is_last", "is_waited_for", "lane", "step")

    def __init__(self, step: Step, before: list[int], lane: int, ancestors: int) -> None:
        self.step, self.before, self.lane, self.ancestors = step, before, lane, ancestors
        self.is_waited_for = False
        self.is_last = True


class _Plan:
    """The tasks of an executable graph, each behind those that it follows, on lanes that run concurrently."""

    def __init__(self, steps: Steps) -> None:
        self.tasks: list[_Task] = []
        self.lanes: list[Context] = []
        self._tails: list[int] = []
        self._add(steps, [])
        for task in self.tasks:
            for before in task.before:
                self.tasks[before].is_last = False
                self.tasks[before].is_waited_for |= self.tasks[before].lane != task.lane

    def _add(self, steps: Steps, before: list[int]) -> list[int]:
        """Add the tasks of a graph behind others; return its last ones."""
        ends: dict[int, list[int]] = {}
        has_follower = {each for step in steps for each in step.before}
        for at in steps.order:
            step = steps[at]
            follows = [each for number in step.before for each in ends[number]] or before
            if step.child is None:
                ends[at] = [self._assign(step, follows)]
            else:
                ends[at] = self._add(step.child, follows) or follows
        return list(dict.fromkeys(each for at in steps.order if at not in has_follower for each in ends[at]))

    def _assign(self, step: Step, follows: list[int]) -> int:
        """Add a task on a lane whose newest task is before it anyway, or on a new lane."""
        ancestors = 0
        for each in follows:
            ancestors |= self.tasks[each].ancestors | 1 << each
        context = step.node.context
        lane = next(
            (
                at
                for at, tail in enumerate(self._tails)
                if self.lanes[at].device is context.device and ancestors >> tail & 1
            ),
            len(self.lanes),
        )
        number = len(self.tasks)
        if lane == len(self.lanes):
            self.lanes.append(context)
            self._tails.append(number)
        self._tails[lane] = number
        self.tasks.append(_Task(step, follows, lane, ancestors))
        return number


class Executable(Resource):
    """An executable graph."""

    name = "executable graph"
    is_counted = False

    def __init__(self, graph: Graph, context: Context, flags: int, streams: Streams) -> None:
        super().__init__(context)
        self.graph, self.flags, self._streams = graph, flags, streams  #: ``graph``: what it was made of
        self.steps = Steps(graph)
        self.number = next(numbers)  #: unique in the process, also among graphs
        self.user_objects: dict[UserObject, int] = {}  #: the references that it has
        self._plan: _Plan | None = None
        self._lanes: list[GpuStream] = []
        self._newest: tuple[Stream, Event] | None = None

    def allocations(self) -> Iterator[Allocation]:
        """Return its allocations of memory."""
        for step in self.steps.all():
            if isinstance(step.operation, Allocation):
                yield step.operation

    def change(self) -> None:
        """Note that steps were enabled or disabled."""
        self._plan = None

    def launch(self, stream: AnyStream) -> None:
        """Run on a stream; tasks without an edge between them may run concurrently.

        Each operation is checked before the first one is queued.
        """
        plan = self._plan = self._plan or _Plan(self.steps)
        idle = Empty()
        queues = [
            (task.step.operation if task.step.is_enabled else idle).prepared(task.step.node.context.device)
            for task in plan.tasks
        ]
        own = next((at for at, each in enumerate(plan.lanes) if each.device is stream.context.device), -1)
        lanes = self._lanes_of(plan, own, stream)
        begin = stream.neutral.record() if len(plan.lanes) > (own >= 0) else None
        begun = {own}
        ends: dict[int, Event] = {}
        site = event_log.site()
        for number, (task, queue) in enumerate(zip(plan.tasks, queues, strict=True)):
            lane = lanes[task.lane]
            if task.lane not in begun and begin is not None:
                begun.add(task.lane)
                lane.neutral.wait(begin)
            for before in task.before:
                if plan.tasks[before].lane != task.lane:
                    lane.neutral.wait(ends[before])
            if site:
                with event_log.launched_at(task.step.site, site):
                    queue(lane)
            else:
                queue(lane)
            if task.is_waited_for or (task.is_last and task.lane != own):
                ends[number] = lane.neutral.record()
        for number, task in enumerate(plan.tasks):
            if task.is_last and task.lane != own:
                stream.neutral.wait(ends[number])
        self._newest = stream.neutral, stream.neutral.record()

    def follow(self, stream: AnyStream) -> None:
        """Let later operations of a stream follow the newest launch."""
        if self._newest is not None and self._newest[0] is not stream.neutral:
            stream.neutral.wait(self._newest[1])

    def await_newest(self) -> None:
        """Wait until the newest launch is over."""
        if self._newest is not None:
            self._newest[1].sync()

    def _lanes_of(self, plan: _Plan, own: int, stream: AnyStream) -> list[AnyStream]:
        lanes: list[AnyStream] = []
        spare = list(self._lanes)
        for at, context in enumerate(plan.lanes):
            if at == own:
                lanes.append(stream)
                continue
            lane = next((each for each in spare if each.context.device is context.device), None)
            if lane is None:
                null = self._streams.null_of(context.device.ordinal)
                lane = GpuStream(null, NON_BLOCKING, 0)
                self._lanes.append(lane)
                self._streams.lanes.append(lane)
            else:
                spare.remove(lane)
            lanes.append(lane)
        return lanes

    def end(self) -> None:
        """Take no more launches; what was launched goes on."""
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            if lane in self._streams.lanes:
                self._streams.lanes.remove(lane)
            lane.queue.close(wait=False)

    abandon = end
