"""The orders of HCOMM's operator samples: right ones have no findings, and each mistake in them is named."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checker import hcomm_orders
from checker.checking import Checked, checked, described
from checker.mutants import Mutant, mutants

RANKS = {"p2p": 2, "mesh": 3, "nhr": 4, "ring": 3}
FOLDER = Path(hcomm_orders.__file__).parent
#: Mistakes that change nothing, with the reason.
HARMLESS: dict[tuple[str, str], str] = {}

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]


def _mutants(program: str) -> list[Mutant]:
    return list(mutants((FOLDER / f"{program}.py").read_text()))


def _run(folder: Path, program: str, mutant: Mutant, mode: str) -> Checked:
    package = folder / "mutated"
    package.mkdir(parents=True)
    for file in FOLDER.glob("*.py"):
        (package / file.name).write_text(mutant.source if file.stem == program else file.read_text())
    return checked(f"mutated.{program}", mode, ranks=RANKS[program], path=folder)


def _is_named(done: Checked, program: str) -> bool:
    """Tell whether a certain finding names lines of the program."""
    return any(
        finding["certain"] and all(Path(site["file"]).name == f"{program}.py" for site in finding["sites"])
        for finding in done.findings
    )


@pytest.mark.parametrize("mode", ["at once", "batch"])
@pytest.mark.parametrize("program", RANKS)
def test_check_of_a_right_order_has_no_findings(program: str, mode: str) -> None:
    done = checked(f"checker.hcomm_orders.{program}", mode, ranks=RANKS[program])
    assert (done.code, described(done.findings)) == (0, ""), done.output


@pytest.mark.parametrize("mode", ["at once", "batch"])
def test_check_of_a_dropped_wait_in_point_to_point_names_lines_of_the_program(
    tmp_path: Path, mode: str
) -> None:
    for number, mutant in enumerate(each for each in _mutants("p2p") if "dropped" in each.mistake):
        done = _run(tmp_path / str(number), "p2p", mutant, mode)
        assert _is_named(done, "p2p"), f"{mutant.mistake}:\n{done.output}"


@pytest.mark.parametrize("mode", ["at once", "batch"])
def test_check_of_a_wait_that_hangs_names_the_record_of_another_notify(tmp_path: Path, mode: str) -> None:
    (mutant,) = (each for each in _mutants("p2p") if each.mistake == "line 24: another notify")
    done = _run(tmp_path, "p2p", mutant, mode)
    assert "submitted at p2p.py:24" in done.output and "submitted at rank.py" not in done.output
    (certain,) = (each for each in done.findings if each["certain"])
    assert (certain["kind"], [site["line"] for site in certain["sites"]]) == ("unconsumed-notify", [20, 24])


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", ["at once", "batch"])
def test_check_names_each_mistake_in_each_order(tmp_path: Path, mode: str) -> None:
    cases = [(program, mutant) for program in RANKS for mutant in _mutants(program)]

    def run(number: int) -> str:
        program, mutant = cases[number]
        done = _run(tmp_path / str(number), program, mutant, mode)
        if _is_named(done, program) != ((program, mutant.mistake) in HARMLESS):
            return ""
        return f"{program} {mutant.mistake}: exit code {done.code}\n{described(done.findings)}"

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = list(filter(None, pool.map(run, range(len(cases)))))
    print(f"{len(cases)} mistakes, {mode}: all named by certain findings but {len(wrong)}")
    assert not wrong, "\n".join(wrong)
