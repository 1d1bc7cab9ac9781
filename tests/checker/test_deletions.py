"""Examples without one of their waits, records or fences: each deletion is found, or is harmless."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

from checker.deletions import Deletable, deletable, without
from helpers.prepared import run_python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PAIRS = 200

pytestmark = pytest.mark.any_schedule

_RANKS = {"kv_transfer": 2, "channel_ring": 4, "hcomm_all_reduce": 2, "hcomm_write_on_thread": 2}
_WORDS = {
    "acl_ipc_key": ["--device", "1"],
    "acl_kv_cache": ["--blocks", "100"],
    "acl_memory": ["--rows", "30"],
    "acl_notify_ping_pong": ["--rounds", "20"],
    "hip_ipc_ring": ["--processes", "3", "--bytes", "300007"],
    "kv_cache": ["--blocks", "200"],
}

_SYNC = "rt.synchronize_stream(stream)"

#: Deletions that change nothing that the program relies on, and why; found by hand.  Equal statements have numbers.
HARMLESS = {
    ("acl_callbacks", "thread.join()", 0): "the thread ends with the process, and was told to stop",
    ("acl_ipc_key", _SYNC, 1): "the wait in the next line synchronizes the stream, too",
    ("acl_ipc_key", _SYNC, 2): "the owner sends what the next line receives after it has seen the record",
    ("acl_ipc_key", "other.join(SECONDS)", 0): "the exit code of a process is asked for by the next line",
    (
        "channel_ring",
        "group.barrier()",
        0,
    ): "each rank has waited for all blocks",
    (
        "hip_ipc_ring",
        "stack.callback(barrier.wait, SECONDS)",
        0,
    ): "the barrier of the last step follows all accesses",
    ("hip_ipc_ring", "stack.callback(child.join, SECONDS)", 0): "each process has sent its result before",
    (
        "hip_peer_access",
        "hip_check(hip.hipDeviceSynchronize())",
        0,
    ): "the stream blocks: it follows the null stream",
    (
        "hip_peer_access",
        "hip_check(hip.hipStreamSynchronize(stream))",
        0,
    ): "hipMemcpy is in the null stream, which follows blocking streams",
    (
        "hip_ring",
        "hip_check(hip.hipStreamSynchronize(self.stream))",
        0,
    ): "hipMemcpy is in the null stream, which follows blocking streams",
    (
        "acl_shareable_handle",
        "other.join(SECONDS)",
        0,
    ): "the other process has said that it has written, and the memory is not used afterwards",
    ("nixl_prefill_decode", "other.join()", 0): "the other process has sent its result before",
    ("kv_transfer", "stream.sync(timeout=30)", 1): "it reports failures only: rank 1 waits for each request",
    ("kv_transfer", "group.barrier()", 0): "decode has waited for each request, and prefill for the answers",
}


@dataclass(frozen=True)
class Outcome:
    """How a run without some statements ended: ``found``, ``deadlock``, ``failed`` or ``clean``."""

    how: str
    output: str


def run_without(name: str, deleted: Collection[Deletable]) -> Outcome:
    """Check an example without some of its statements."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for each in EXAMPLES.glob("*.py"):
            shutil.copy(each, folder)
        (folder / f"{name}.py").write_text(without((EXAMPLES / f"{name}.py").read_text(), deleted))
        ranks = ["-n", str(_RANKS[name])] if name in _RANKS else []
        words = ["-m", "peerlane", "check", *ranks, "--devices", "4", "--json", "found.json", f"{name}.py"]
        done = run_python([*words, *_WORDS.get(name, [])], timeout=100, cwd=folder)
        findings = json.loads((folder / "found.json").read_text())["findings"]
    output = done.stdout + done.stderr
    if any(finding["certain"] for finding in findings):
        return Outcome("found", output)
    if "a deadlock: " in output:
        return Outcome("deadlock", output)
    return Outcome("failed" if done.returncode else "clean", output)


def statements(name: str) -> list[Deletable]:
    return sorted(deletable((EXAMPLES / f"{name}.py").read_text()))


def is_harmless(name: str, each: Deletable) -> bool:
    equal = [same for same in statements(name) if same.text == each.text]
    return (name, each.text, equal.index(each)) in HARMLESS


ALL = [
    (path.stem, each)
    for path in sorted(EXAMPLES.glob("*.py"))
    for each in sorted(deletable(path.read_text()))
]


def test_harmless_statements_are_in_examples() -> None:
    assert sum(is_harmless(name, each) for name, each in ALL) == len(HARMLESS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kv_transfer", "stream.sync(timeout=30)"),
        ("acl_memory", "rt.synchronize_stream(stream)"),
        ("acl_notify_ping_pong", "rt.wait_and_reset_notify(me.turn, me.stream, SECONDS)"),
        ("hip_ring", "hip_check(hip.hipStreamWaitEvent(self.stream, other.passed, 0))"),
    ],
)
def test_deleted_wait_is_reported(name: str, text: str) -> None:
    deleted = next(each for each in statements(name) if each.text == text)
    outcome = run_without(name, [deleted])
    assert outcome.how == "found", outcome.output


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_each_deletion_is_reported_or_harmless() -> None:
    wrong, counts = [], Counter[str]()
    for name, each in ALL:
        outcome = run_without(name, [each])
        counts[outcome.how] += 1
        if (outcome.how == "clean") != is_harmless(name, each):
            wrong.append(f"{name}.py:{each.first} {each.text}: {outcome.how}")
    sys.stdout.write(f"{len(ALL)} deletions: {dict(counts)}\n")
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_deleted_pairs_are_reported_unless_both_are_harmless() -> None:
    pairs = [
        (name, pair)
        for name in sorted({name for name, _ in ALL})
        for pair in itertools.combinations(statements(name), 2)
    ]
    chosen = random.Random(16).sample(pairs, min(PAIRS, len(pairs)))
    wrong, counts = [], Counter[str]()
    for name, pair in chosen:
        outcome = run_without(name, pair)
        counts[outcome.how] += 1
        if outcome.how == "clean" and not all(is_harmless(name, each) for each in pair):
            wrong.append(f"{name}.py: {' and '.join(f'{each.first} {each.text}' for each in pair)}")
    sys.stdout.write(f"{len(chosen)} of {len(pairs)} pairs: {dict(counts)}\n")
    assert not wrong, "\n".join(wrong)
