"""Runs the connectors of serving systems on virtual devices, and writes a page of how they ended.

``python -m connectors PAGE [CONNECTOR ...]``; the exit code is 1 if a run ended otherwise than `registry` says.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from connectors.page import page_of
from connectors.registry import CONNECTORS, Connector

_SECONDS = 150.0
_AT_ONCE = 2
#: Kills of prefill at moments that are drawn, in each of these schedules.
_DRAWN_KILLS = ("eager", "lazy", "seeded")
_LATEST_KILL = 0.1


class Run(NamedTuple):
    """How a run ended.

    Attributes
    ----------
    said : mapping
        What `pair` printed.
    findings : list of mapping
        Of ``peerlane check``.
    text : str
        All output.
    """

    said: Mapping[str, Any]
    findings: list[Mapping[str, Any]]
    text: str


def _run(dialect: str, words: Iterable[str], *, checked: bool = False, schedule: str = "eager") -> Run:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "findings.json"
        command = [
            sys.executable,
            "-m",
            "peerlane",
            *(("check", "--json", str(report)) if checked else ("run",)),
        ]
        command += ["--devices", "2", *(() if checked else ("--dialect", dialect)), "-m", *words]
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PEERLANE_SCHEDULE": schedule,
        }
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
        lines = [each for each in done.stdout.splitlines() if each.startswith('{"done"')]
        said = json.loads(lines[-1]) if lines else {"done": False, "error": "it printed nothing", "wrong": []}
        findings = json.loads(report.read_text())["findings"] if report.exists() else []
        return Run(said, findings, done.stdout + done.stderr)


def _faults(connector: Connector, event: str, result: Run) -> Iterable[str]:
    """Return what of a run is not as it should be."""
    said = result.said
    if said["wrong"]:
        yield f"blocks of wrong bytes: {said['wrong']}"
    if event in ("right", "delay", "check") and not said["done"]:
        yield f"the request did not succeed: {said['error']}"
    if event == "kill" and (said["done"] or not re.search(connector.when_killed, said["error"])):
        yield f"decode's error is another one: {said}"
    if event == "check" and any(each["certain"] for each in result.findings):
        yield "peerlane check has a certain finding"
    if event == "early" and not any(each["kind"] == "race" for each in result.findings):
        yield "peerlane check does not name the early look"


def _runs(name: str) -> dict[str, Run]:
    def run(event: str, *, checked: bool = False, schedule: str = "eager") -> Run:
        words = ("connectors.pair", name, event)
        return _run(CONNECTORS[name].dialect, words, checked=checked, schedule=schedule)

    drawn = random.Random(name)
    runs = {event: run(event) for event in ("right", "delay", "kill")}
    for schedule in _DRAWN_KILLS:
        event = f"kill@{drawn.uniform(0, _LATEST_KILL):.3f}"
        runs[f"{event} {schedule}"] = run(event, schedule=schedule)
    runs["check"] = run("right", checked=True)
    runs["early"] = run("early", checked=True)
    return runs


def _tiers() -> dict[str, Run]:
    return {
        f"`{layout}`{', direct I/O' * bool(direct)}": _run("nixl", ("connectors.file_tier", layout, *direct))
        for layout in ("layer_first", "page_first")
        for direct in ((), ("direct",))
    }


def main(page: Path, names: Sequence[str]) -> int:
    """Run, compare, write."""
    results = {}
    is_wrong = False
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, runs in zip(names, pool.map(_runs, names), strict=True):
            results[name] = runs
            for event, result in runs.items():
                faults = list(_faults(CONNECTORS[name], event, result))
                is_wrong |= bool(faults)
                print(name, event, result.said, f"{len(result.findings)} findings", *faults, flush=True)
                if faults:
                    print(result.text[-3000:])
    tiers = _tiers()
    print(*((name, run.said) for name, run in tiers.items()), sep="\n")
    page.write_text(page_of(results, tiers))
    return int(is_wrong or not all(each.said["done"] for each in tiers.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or [*CONNECTORS]))
