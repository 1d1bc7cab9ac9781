"""Writes large event logs, and measures the analysis: ``python tests/checker/load.py [EVENTS [PROCESSES]]``.

Each process copies 8 bytes here and there on a stream, into its own memory and through channels, and notifies its
neighbour now and then, which waits and answers.  All of it is right.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.event_logs import HEADER, KIND, MAGIC, OP, UNIT
from peerlane._check import Analysis

SIZE = 32 << 20  # of each process's memory
RECORD = np.dtype(
    [
        ("units", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("op", "u1"),
        ("words", "u1"),
        ("spans", "<u4"),
        ("site", "<u4"),
        ("thread", "<u4"),
        ("repeats", "<u4"),
        ("time", "<u8"),
        ("stream", "<u8"),
        ("sequence", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("c", "<u8"),
        ("spare", "<u8"),
        ("more", "<u8", 6),
    ]
)
assert RECORD.itemsize == 128


def log_of(rank: int, ranks: int, events: int, seed: int) -> np.ndarray:
    """Return the records of a rank: rounds of 1,000 events, which end with a notify and its wait."""
    rng = np.random.default_rng(seed)
    records = np.zeros(events, RECORD)
    number = np.arange(events)
    records["units"], records["thread"], records["repeats"] = RECORD.itemsize // UNIT, 1000 + rank, 1
    records["time"] = 10**9 + number * 1000 + rank
    records["stream"], records["sequence"] = 4, number + 1
    records["kind"], records["op"], records["site"], records["spans"] = (
        KIND.access,
        OP.copy,
        10 + number % 50,
        2,
    )
    spans = records.view("<u8").reshape(events, 16)
    target = rng.integers(0, SIZE // 16, events) * 8  # the lower half is its own
    source = rng.integers(0, SIZE // 16, events) * 8
    spans[:, 6], spans[:, 7], spans[:, 8] = (rank + 1) | 1 << 63, target, 8
    spans[:, 9], spans[:, 10], spans[:, 11] = rank + 1, source, 8
    begins = [(KIND.notify, 0), (KIND.notified, 1)]
    waits = [(KIND.notify_wait, 0), (KIND.notify_waited, 1)]
    last = (
        [*begins, *waits] if rank % 2 == 0 else [*waits, *begins]
    )  # of two neighbours one begins, and one answers
    for position, (kind, back) in enumerate([*last, (KIND.sync, 1)]):
        at = number % 1000 == 995 + position
        records["kind"][at], records["spans"][at], records["words"][at] = kind, 0, 3
        spans[at, 6] = 100 + (rank if kind in (KIND.notify_wait, KIND.notify_waited) else rank ^ 1)
        spans[at, 7] = 0
        spans[at, 8] = number[at] // 1000 + 1 if kind in (KIND.notified, KIND.notify_waited) else 0
        records["sequence"][at] = number[at] + 1 - back
    return records


def lives(count: int) -> np.ndarray:
    """Return the records of a process whose threads come and go, each with all that it makes and ends."""
    main, write = 1000, 1 << 63
    steps: list[
        tuple[int, str, dict[str, object]]
    ] = [  # thread, kind, and what differs from 0; "n" is the life
        (main, "post", {"a": 1, "b": "n"}),
        (0, "take", {"a": 1, "b": "n", "c": 1}),
        (0, "forget", {"a": 1, "b": "n"}),
        (0, "stream_made", {"stream": "n"}),
        (0, "allocated", {"a": "n", "span": (write, 4096)}),
        (0, "notify_made", {"b": "n", "c": 0}),
        (0, "channel", {"a": "n", "b": "bank", "c": "bank", "d": 1}),
        (0, "take", {"a": 0, "b": "n"}),
        (0, "post", {"a": 0, "b": "n"}),
        (0, "forget", {"a": 0, "b": "n"}),
        (0, "access", {"stream": "n", "sequence": 1, "span": (write, 4096)}),
        (0, "access", {"stream": "n", "sequence": 2, "a": "n", "span": (write, 64)}),
        (0, "notify", {"stream": "n", "sequence": 3, "b": "n", "d": "n"}),
        (0, "notified", {"stream": "n", "sequence": 3, "c": 1}),
        (0, "notify_wait", {"b": "n", "c": 1, "d": "n"}),
        (0, "sync", {"stream": "n", "sequence": 3}),
        (0, "freed", {"a": "n", "span": (write, 4096)}),
        (0, "stream_ended", {"stream": "n"}),
        (0, "channel_closed", {"a": "n"}),
        (0, "post", {"a": 2, "b": "n"}),
        (main, "take", {"a": 2, "b": "n", "c": 1}),
        (main, "forget", {"a": 2, "b": "n"}),
    ]
    records = np.zeros((count, len(steps)), RECORD)
    values = records.view("<u8").reshape(count, len(steps), 16)
    number = np.arange(1, count + 1, dtype=np.uint64)
    named = {"n": number, "bank": number + (1 << 40)}
    records["units"], records["repeats"], records["site"] = RECORD.itemsize // UNIT, 1, 10
    records["time"] = 10**9 + np.arange(records.size).reshape(records.shape) * 1000
    for position, (thread, kind, fields) in enumerate(steps):
        column, value = records[:, position], values[:, position]
        column["kind"], column["words"] = getattr(KIND, kind), 4
        column["thread"] = thread or main + number
        column["op"] = OP.fill if kind == "access" else 0
        for key, field in fields.items():
            if key == "span":
                assert isinstance(field, tuple)
                column["spans"] = 1
                value[:, 10], value[:, 12] = number | np.uint64(field[0]), field[1]
            elif key in ("a", "b", "c", "d"):
                value[:, 6 + "abcd".index(key)] = named.get(str(field), field)
            else:
                column[key] = named.get(str(field), field)
    return records.reshape(-1)


def write(folder: Path, ranks: int, events: int) -> list[Path]:
    """Write the logs of all ranks, with `events` events in sum."""
    return [
        write_log(folder / f"{rank}.log", rank, log_of(rank, ranks, events // ranks, rank))
        for rank in range(ranks)
    ]


def write_log(path: Path, rank: int, events: np.ndarray) -> Path:
    """Write the log of a process that has ended."""
    records = events.tobytes()
    capacity = -(-len(records) // 4096) * 4096
    with path.open("wb") as file:
        counts = (len(records), len(records), 0, 0, 1)
        header = struct.pack("<QQiiQQQQQI", MAGIC, capacity, 1000 + rank, rank, 10**9, *counts)
        file.write(header.ljust(HEADER, b"\0"))
        file.write(records)
        file.truncate(HEADER + capacity)
    return path


def grown(path: Path, events: int, parts: int) -> tuple[list[int], dict[str, int], int]:
    """Analyse a log in parts; return the memory after each in MiB, counts, and the number of findings."""
    analysis = Analysis()
    analysis.add(str(path), True)
    memory = []
    for part in range(1, parts + 1):
        analysis.poll(10**9 + events * 1000 * part // parts)
        memory.append(_status("VmRSS"))
    analysis.finish()
    return memory, analysis.stats(), len(analysis.findings())


def _status(name: str) -> int:
    return int(Path("/proc/self/status").read_text().split(f"{name}:")[1].split()[0]) >> 10


def measure(paths: list[Path]) -> tuple[float, int, dict[str, int], int]:
    """Return seconds of processor, the peak of memory in MiB, counts, and the number of findings."""
    analysis = Analysis()
    for path in paths:
        analysis.add(str(path), True)
    start = time.process_time()
    analysis.finish()
    seconds = time.process_time() - start
    return seconds, _status("VmHWM"), analysis.stats(), len(analysis.findings())


def main(events: int = 10_000_000, ranks: int = 4) -> None:
    with tempfile.TemporaryDirectory() as name, ProcessPoolExecutor(1, get_context("spawn")) as pool:
        seconds, peak, stats, findings = pool.submit(measure, write(Path(name), ranks, events)).result()
    print(f"{seconds:.1f} s of processor, peak {peak} MiB, {findings} findings, {stats}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
