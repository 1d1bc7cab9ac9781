"""The bars: the speeds and costs that the library promises, and whether a figure meets one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from peerlane.cli.bench import calls, sweeps
from peerlane.cli.bench.calls import PEERLANE_ACL, PEERLANE_HIP
from peerlane.cli.bench.measure import PEERLANE, SPEED, Figure
from peerlane.cli.bench.ranks import ALL_GATHER, ALL_REDUCE, BROADCAST
from peerlane.cli.bench.timings import Entrant, Timing
from peerlane.support.sizes import format_size

PEERLANE_INSIDE = "peerlane, without the call"  # a native loop of the look-up alone
PEERLANE_WORD = "peerlane, a word of memory"
PEERLANE_CONNECTED = "peerlane, connected before"
PEERLANE_ON_STREAM, PEERLANE_IN_TABLE = "peerlane on a stream", "peerlane in a table"
SHARED = ("2 MiB", "1 GiB", "8 GiB, sparse")
EXPORTER_STATES = ("idle", "busy")
SEAMS = "copy across 1,000 blocks side by side"
RESIDENT, THREADS = "resident memory", "threads"
ONE_DIRECTION = "8 bytes and a notify, one way"
LINE = "one cache line, spun on in C"
FASTEST_MPI = "the fastest MPI's message"
PEERLANE_LOGGED = "peerlane, with an event log"
PROCESSOR_OF_ANALYSIS, BYTES_OF_EVENT = "processor time of the analysis", "bytes of an event"
NOTHING_DROPPED = "events that are written and analysed at once"
ANALYSIS_EVENTS = 10_000_000
TCP = "tcp"
RATE, MILLION = "8-byte writes issued from Python", "a million a second"
START, NUMPY, PEERLANE_FIRST_LOOK = (
    "import in a fresh process",
    "import numpy",
    "peerlane, and its first look",
)
RUN, OVER_PYTHON, TENTH = "peerlane run -c pass", "processor time over python -c pass", "0.1 s"
C_CALLS, FIRST_CALL = "calls of 8 bytes from C", "the first call of a process"
#: Seconds that a call of a program of C may take.
C_LIMITS = {
    "aclrtGetDevice": 0.1e-6,
    "aclrtMemcpy": 0.5e-6,
    "aclrtMemcpy from the host": 0.5e-6,
    "aclrtMemcpyAsync": 0.5e-6,
    "aclrtMemcpy of two threads": 0.5e-6,
    "hipGetDevice": 0.1e-6,
    "hipMemcpy": 0.5e-6,
    "hipMemcpy from the host": 0.5e-6,
    "hipMemcpyAsync": 0.5e-6,
    "aclrtLaunchHostFunc": 1e-6,
    "hipEventRecord": 0.5e-6,
    "hipEventQuery": 0.1e-6,
    "hipStreamWaitEvent": 0.5e-6,
    "hipStreamSynchronize": 0.1e-6,
    "hipMallocAsync and hipFreeAsync": 1e-6,
    "cuCtxGetDevice": 0.1e-6,
    "cuCtxPushCurrent and cuCtxPopCurrent": 0.2e-6,
    "cuPointerGetAttribute": 0.5e-6,
    "cuMemcpyHtoD": 0.5e-6,
    "cuMemcpyDtoH": 0.5e-6,
    "cuMemcpyAsync": 0.5e-6,
    "cuEventRecord": 0.5e-6,
    "cuEventQuery": 0.1e-6,
    "cuStreamWaitEvent": 0.5e-6,
    "cuStreamSynchronize": 0.1e-6,
    "cuMemcpyHtoD_v2_ptds": 0.5e-6,
    "cuMemcpyAsync_ptsz": 0.5e-6,
    "cuEventRecord_ptsz": 0.5e-6,
    "cuStreamWaitEvent_ptsz": 0.5e-6,
    "cuStreamSynchronize_ptsz": 0.1e-6,
    "cuMemAllocAsync and cuMemFreeAsync": 1e-6,
    "cuEventRecord while a pool keeps memory": 1e-6,
    "hipLaunchHostFunc": 1e-6,
    "hipStreamAddCallback": 1e-6,
    "HcommWriteOnThread": 1e-6,
    FIRST_CALL: 0.2,
}
_SHORT = 64 << 10  # bytes of a collective
TORCH_TASKS, TORCH_PROCESSES = ("all-reduce", "all-gather", "broadcast"), (2, 4)
TORCH_SIZES = ("4 KiB", "64 KiB", "1 MiB", "16 MiB", "64 MiB")
TORCH_MESSAGES, TORCH_MESSAGE_SIZES = ("message", "batch"), ("8 B", "512 B", "4 KiB", "64 KiB")
#: What issues the writes, and how many millions a second it must reach.
LEAST_RATES = {PEERLANE: 2.5, PEERLANE_ON_STREAM: 2.5, PEERLANE_IN_TABLE: 20.0}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar for one contender's figure: a speed must be at least ``must``, another figure at most.

    ``reference`` distinguishes figures of the same case and contender.
    """

    id: str
    case: str
    contender: str
    must: float
    goal: float
    reference: str | None = None

    def met(self, figure: Figure) -> str:
        """Return ``"goal"``, ``"must"`` or ``"missed"``; the ratio is not rounded."""
        sign = 1 if figure.kind == SPEED else -1
        for name, limit in (("goal", self.goal), ("must", self.must)):
            if sign * figure.ratio >= sign * limit:
                return name
        return "missed"


def share_case(what: str, state: str) -> str:
    """Return the name of the case: sharing so much while the exporter is idle or busy."""
    return f"share {what}, exporter {state}"


def torch_case(task: str, size: str, processes: int) -> str:
    """Return the name of the case: torch does a collective on so many bytes of each rank."""
    return f"torch {task} {size} over {processes} processes"


def far_case(task: str, size: str, processes: int) -> str:
    """Return the name of the case: a task between machines."""
    return f"{task} {sweeps.BETWEEN_MACHINES} {size} over {processes} processes"


def analysis_case(events: int) -> str:
    """Return the name of the case: a program writes so many events, and they are analysed."""
    return f"log of {events:,} events"


BARS = (
    Bar("P1", "copy 64 MiB on a device", PEERLANE, 0.90, 0.97),
    Bar("P1", "copy 64 MiB between peers", PEERLANE, 0.90, 0.97),
    Bar("P1", "copy 1 GiB on a device", PEERLANE, 0.90, 0.97),
    Bar("P1", "copy 1 GiB between peers", PEERLANE, 0.90, 0.97),
    Bar("P2", "copy 1 MiB on a device", PEERLANE, 0.85, 0.95),
    Bar("P2", "copy 64 KiB on a device", PEERLANE, 0.70, 0.95),
    Bar("P3", calls.CASE, PEERLANE, 1.5, 0.7),
    Bar("P3", calls.CASE, PEERLANE_ACL, 3.0, 1.5),
    Bar("P3", calls.CASE, PEERLANE_HIP, 1.5, 1.25),
    *(Bar("C", C_CALLS, name, 1.0, 1.0) for name in C_LIMITS),
    Bar("P4", "async copy of 256 MiB beside Python", PEERLANE, 1.10, 1.03),
    Bar("P5", "submit 8 bytes, stream idle", PEERLANE, 1.5, 0.7),
    Bar("P5", "submit 8 bytes, behind a wait", PEERLANE, 2.0, 1.0),
    Bar("P6", "batch of 10,000 blocks of 4 KiB", PEERLANE, 1.25, 1.05),
    *(
        Bar("P7", share_case(what, state), contender, 5.0, 2.0)
        for what in SHARED
        for state in EXPORTER_STATES
        for contender in (PEERLANE, PEERLANE_CONNECTED)
    ),
    Bar("P7b", SEAMS, PEERLANE, 0.90, 0.97),
    Bar("P8", ONE_DIRECTION, PEERLANE, 4.0, 4.0, FASTEST_MPI),
    Bar("P8", ONE_DIRECTION, PEERLANE, 5.0, 2.0, LINE),
    Bar("P9", "channel write of 64 MiB", PEERLANE, 0.90, 0.97),
    Bar("P9", "channel write of 1 GiB", PEERLANE, 0.90, 0.97),
    *(Bar("rate", RATE, contender, least, least, MILLION) for contender, least in LEAST_RATES.items()),
    *(
        Bar(
            "collective",
            f"{task} {format_size(size)} over {processes} processes",
            PEERLANE,
            least,
            least,
            rival,
        )
        for task in (BROADCAST, ALL_GATHER, ALL_REDUCE)
        for size in sweeps.COLLECTIVE_SIZES
        for processes in (2, 4)
        for rival, least in (("mpich", 1.0), ("openmpi", 0.9 if size < _SHORT and processes == 4 else 1.0))
    ),
    *(
        Bar("collective", f"barrier over {processes} processes", PEERLANE, least, least, rival)
        for processes, rival, least in (
            (2, "mpich", 1.0),
            (2, "openmpi", 1.0),
            (4, "mpich", 1.0),
            (4, "openmpi", 0.9),
        )
    ),
    *(
        Bar("collective", f"all-reduce 64 MiB over {processes} processes", PEERLANE, 1.0, 1.0, "gloo")
        for processes in (2, 4)
    ),
    *(
        Bar("torch", torch_case(task, size, processes), PEERLANE, 2.0, 2.0, "gloo")
        for task in TORCH_TASKS
        for processes in TORCH_PROCESSES
        for size in TORCH_SIZES
    ),
    *(
        Bar("torch", torch_case(task, size, 2), PEERLANE, 2.0, 2.0, "gloo")
        for task in TORCH_MESSAGES
        for size in TORCH_MESSAGE_SIZES
    ),
    *(
        Bar("machines", far_case(task, size, processes), PEERLANE, least, least, rival)
        for task, size, processes, rival, least in (
            ("message", "8 B", 2, TCP, 1 / 1.5),
            ("message", "8 B", 2, "nixl", 1 / 0.35),
            ("write", "64 MiB", 2, TCP, 0.6),
            ("write", "64 MiB", 2, "nixl", 1.0),
            ("message", "64 MiB", 2, "gloo", 1.0),
            (ALL_REDUCE, "64 MiB", 4, "gloo", 1.0),
        )
    ),
    Bar("P10", "look-up among 1,000,000", PEERLANE, 3.0, 2.0),
    Bar("P10", "look-up among 1,000,000", PEERLANE_INSIDE, 3.0, 2.0),
    Bar("P11", "1,024 devices, 10,000 streams, 100,000 events", RESIDENT, 1.0, 1.0),
    Bar("P11", "1,024 devices, 10,000 streams, 100,000 events", THREADS, 1.0, 1.0),
    Bar("start", START, PEERLANE, 1.5, 1.0),
    Bar("start", RUN, OVER_PYTHON, 1.0, 0.7),
    Bar("wait", "idle wait of 1 s", PEERLANE, 0.01, 0.01),
    Bar("wait", "idle wait of 1 s", PEERLANE_WORD, 0.01, 0.01),
    *(
        Bar("log", case, PEERLANE_LOGGED, most, most)
        for case, most in (
            ("copy 8 bytes", 2.5),
            ("submit 8 bytes", 2.5),
            ("record and wait", 2.5),
            ("copy 64 KiB", 1.3),
            ("copy 1 MiB", 1.05),
            ("copy 16 MiB", 1.05),
            ("upload 8 B", 2.5),
            ("upload 64 KiB", 1.3),
            ("upload 1 MiB", 1.15),
            ("download 8 B", 2.5),
            ("download 64 KiB", 1.3),
            ("download 1 MiB", 1.15),
            ("barrier of 2 processes", 3.0),
            ("all-reduce 8 bytes over 2 processes", 3.0),
            ("all-reduce 64 KiB over 2 processes", 1.5),
        )
    ),
    Bar("log", analysis_case(ANALYSIS_EVENTS), PROCESSOR_OF_ANALYSIS, 1.0, 1.0),
    Bar("log", analysis_case(ANALYSIS_EVENTS), RESIDENT, 1.0, 1.0),
    Bar("log", analysis_case(ANALYSIS_EVENTS), BYTES_OF_EVENT, 1.0, 1.0),
)


def judged(figures: Sequence[Figure]) -> list[tuple[Bar, Figure]]:
    """Return each bar that was measured, with its figure."""
    return [
        (bar, figure)
        for bar in BARS
        for figure in figures
        if (bar.case, bar.contender) == (figure.case, figure.contender)
        and bar.reference in (None, figure.reference)
    ]


def figures_of(timings: Sequence[Timing]) -> list[Figure]:
    """Return peerlane's speed against each other contender that is shown, for the bars."""
    ours = {each.case: each for each in timings if (each.contender, each.variant) == Entrant(PEERLANE)}
    return [
        Figure(
            each.case,
            PEERLANE,
            each.contender,
            SPEED,
            each.ratio,
            each.ratio_low,
            each.ratio_high,
            ours[each.case].seconds,
            each.size,
            each.seconds,
        )
        for each in timings
        if each.is_shown and each.contender != PEERLANE
    ]
