"""Runs the connectors of serving systems on virtual devices, and writes a page of how they ended.

``python -m connectors PAGE [CONNECTOR ...]``; the exit code is 1 if a run ended otherwise than `registry` says.  The
runs of each connector are kept in ``build/connectors``, so that the page has those of earlier commands, too.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from connectors.page import TIERS, Run, page_of
from connectors.registry import CONNECTORS, OF_PEERLANE, Connector

_SECONDS = 240.0
_AT_ONCE = 3
_RESULTS = Path("build") / "connectors"
#: The schedules in which prefill is killed at a drawn moment.
_DRAWN_KILLS = ("seeded",)
_LATEST_KILL = 0.1


def _run(dialect: str, words: Iterable[str], *, checked: bool = False, schedule: str = "eager") -> Run:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "findings.json"
        command = [
            sys.executable,
            "-m",
            "peerlane",
            *(("check", "--json", str(report)) if checked else ("run",)),
        ]
        command += ["--devices", "2", "--dialect", dialect, "-m", *words]
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
        ending = (
            json.loads(lines[-1]) if lines else {"done": False, "error": "it printed nothing", "wrong": []}
        )
        findings = json.loads(report.read_text())["findings"] if report.exists() else []
        kinds = [(each["kind"], each["certain"]) for each in findings]
        return Run(ending, kinds, done.stdout + done.stderr)


def _faults(connector: Connector, event: str, result: Run) -> Iterable[str]:
    """Return what of a run is not as it should be."""
    ending = result.ending
    is_blind = event.startswith("kill") and not connector.when_killed
    if ending["wrong"] and not is_blind:
        yield f"blocks of wrong bytes: {ending['wrong']}"
    if event in ("right", "delay", "check") and not ending["done"]:
        yield f"the request did not succeed: {ending['error']}"
    if event == "kill" and is_blind and not (ending["done"] and ending["wrong"]):
        yield f"the connector says now that the blocks are not there: {ending}"
    if (
        event == "kill"
        and not is_blind
        and (ending["done"] or not re.search(connector.when_killed, ending["error"]))
    ):
        yield f"decode's error is another one: {ending}"
    if event == "check" and any(certain for _, certain in result.findings):
        yield "peerlane check has a certain finding"
    if event == "early" and connector.is_seen and not any(kind == "race" for kind, _ in result.findings):
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


def _kept(name: str, make: Callable[[], dict[str, Run]]) -> dict[str, Run]:
    runs = make()
    _RESULTS.mkdir(parents=True, exist_ok=True)
    (_RESULTS / f"{name}.json").write_text(json.dumps({event: run._asdict() for event, run in runs.items()}))
    return runs


def _all_kept() -> dict[str, dict[str, Run]]:
    paths = {name: _RESULTS / f"{name}.json" for name in (*CONNECTORS, TIERS)}
    kept = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    return {name: {event: Run(**run) for event, run in runs.items()} for name, runs in kept.items()}


def main(page: Path, names: Sequence[str]) -> int:
    """Run, compare, write."""
    is_wrong = False
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, runs in zip(
            names, pool.map(lambda name: _kept(name, lambda: _runs(name)), names), strict=True
        ):
            for event, result in runs.items():
                faults = list(_faults(CONNECTORS[name], event, result))
                is_wrong |= bool(faults)
                print(name, event, result.ending, result.findings, *faults, flush=True)
                if faults:
                    print(result.text[-3000:])
    tiers = _kept(TIERS, _tiers)
    print(*((name, run.ending) for name, run in tiers.items()), sep="\n")
    page.write_text(page_of(_all_kept(), version))
    return int(is_wrong or not all(each.ending["done"] for each in tiers.values()))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or [*OF_PEERLANE]))
