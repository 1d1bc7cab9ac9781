"""The harness of connectors, by a connector of our own: right, delayed, killed, early, and with wrong blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from connectors.caches import LAYERS
from connectors.page import TIERS, Run, page_of
from connectors.pair import SOURCE, TARGET
from connectors.stand_ins import Package

pytestmark = pytest.mark.any_schedule
PROGRAM = """
import json, sys
from connectors.pair import free_port, run
from connectors.registry import Connector
if __name__ == "__main__":
    own = Connector("ours", "own_connector", sys.argv[1], "nixl", "", "", "", "")
    print(json.dumps(run(own, sys.argv[2], free_port())))
"""


def ending_of(folder: Path, event: str, variant: str = "right", *checked: str) -> dict[str, Any]:
    program = folder / "pair.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", *(checked or ("run",)), "--devices", "2", program, variant, event],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        check=False,
        text=True,
        timeout=100,
    )
    [line] = [each for each in done.stdout.splitlines() if each.startswith('{"done"')] or [done.stderr]
    ending: dict[str, Any] = json.loads(line)
    return ending


def test_pair_right_has_prefills_blocks(tmp_path: Path) -> None:
    ending = ending_of(tmp_path, "right")
    assert ending["done"] and not ending["wrong"], ending


def test_pair_delay_succeeds_when_prefill_goes_on(tmp_path: Path) -> None:
    ending = ending_of(tmp_path, "delay")
    assert ending["done"] and not ending["wrong"] and ending["seconds"] > 1.5, ending


def test_pair_kill_has_the_connectors_error(tmp_path: Path) -> None:
    ending = ending_of(tmp_path, "kill")
    assert not ending["done"] and not ending["wrong"] and ending["error"] == "no answer within 3 s", ending


def test_pair_names_blocks_that_were_mixed_up(tmp_path: Path) -> None:
    moved = [TARGET[each] for each, source in enumerate(SOURCE) if source != SOURCE[::-1][each]]
    ending = ending_of(tmp_path, "right", "mixed up")
    assert ending["done"]
    assert ending["wrong"] == [[layer, block] for layer in range(LAYERS) for block in sorted(moved)]


def test_pair_names_blocks_that_nobody_wrote(tmp_path: Path) -> None:
    ending = ending_of(tmp_path, "kill", "hasty")
    assert ending["done"]
    assert ending["wrong"] == [[layer, block] for layer in range(LAYERS) for block in sorted(TARGET)]


def test_pair_early_look_is_a_race(tmp_path: Path) -> None:
    report = tmp_path / "findings.json"
    ending = ending_of(tmp_path, "early", "right", "check", "--json", str(report))
    assert ending["done"] and not ending["wrong"], ending
    [finding] = json.loads(report.read_text())["findings"]
    assert finding["kind"] == "race" and finding["certain"]
    names = {Path(each["file"]).name for each in finding["sites"]}
    assert names == {"caches.py", "own_connector.py"}


def test_page_has_how_each_run_ended() -> None:
    good = Run({"done": True, "error": "", "wrong": [], "seconds": 0.1}, [], "")
    bad = Run({"done": False, "error": "KVTransferError: lost", "wrong": [[0, 3]], "seconds": 9.8}, [], "")
    early = Run(good.ending, [("race", True), ("race", False), ("race", True)], "")
    runs = {"right": good, "delay": good, "kill": bad, "kill@0.01 seeded": bad, "check": good, "early": early}
    page = page_of({"sglang-nixl": runs, TIERS: {"`layer_first`": good}}, lambda distribution: "1.2")
    assert (
        "| SGLang, NIXL | all right | all right | KVTransferError (10 s) | KVTransferError (10 s) |\n" in page
    )
    assert "sglang 1.2" in page and "vllm" not in page.partition("One run alone")[0]
    assert "Wrong were: SGLang, NIXL, kill: 1 blocks; SGLang, NIXL, kill@0.01 seeded: 1 blocks." in page
    assert "| `layer_first` | all right |" in page
    assert "`poll` reads | no | no findings | 2 certain races, 1 uncertain race |" in page
    assert "wheel of NIXL" not in page
    blind = Run({**good.ending, "wrong": [[0, 3]]}, [], "")
    page = page_of({"vllm-ascend": {**runs, "kill": blind}}, lambda distribution: "1.2")
    assert "| vllm-ascend, Mooncake | all right | all right | says done, wrong bytes |" in page
    assert "and a lock | yes | no findings |" in page


def test_page_has_runs_on_the_wheel_apart_and_runs_that_did_not_end() -> None:
    good = Run({"done": True, "error": "", "wrong": [], "seconds": 0.1}, [], "")
    late = Run({"done": False, "error": "no end within 180 s", "wrong": [], "seconds": 180.0}, [], "")
    bad = Run({"done": False, "error": "pages have other bytes", "wrong": []}, [], "")
    runs = {
        "right": good,
        "delay": good,
        "kill": good,
        "kill@0.01 seeded": good,
        "check": late,
        "early": good,
    }
    page = page_of({"vllm-tier-wheel": runs, TIERS: {"`layer_first`": bad}}, lambda distribution: "1.2")
    own, _, wheel = page.partition("## With NVIDIA's wheel of NIXL\n")
    assert "nixl 1.2" in wheel and "| vLLM, tier of other engines |" not in own
    assert "| all right | all right | all right | all right |" in wheel
    assert "| no end within 180 s | no findings |" in wheel
    assert "| `layer_first` | pages have other bytes |" in wheel


def test_package_has_real_modules_and_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served" / "part").mkdir(parents=True)
    for name, text in (
        ("__init__", "raise AssertionError('the package itself is a stand-in')"),
        ("part/__init__", ""),
        ("part/real", "from served.other import Base, number\nclass Real(Base): value: Base | None = None"),
    ):
        (tmp_path / "served" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    package = Package("served", ["part.real"], {"other": {"number": 5}})
    try:
        from served import part  # type: ignore[import-not-found]
        from served.part.real import Real, number  # type: ignore[import-not-found]

        assert number == 5 and part.real.Real is Real and Real().anything is not None
        assert sys.modules["served"].__spec__.loader is package
        with pytest.raises(ModuleNotFoundError, match="There is no package"):
            Package("absent_package", [], {})
    finally:
        for name in [each for each in sys.modules if each.partition(".")[0] == "served"]:
            monkeypatch.delitem(sys.modules, name)
