"""Runs a vendor's tests on virtual devices, and writes a page of what passes and what does not.

``python -m cuda_suite SUITE FOLDER PAGE VERSION``: ``SUITE`` is a name in `SUITES`, ``FOLDER`` has its tests, and
``VERSION`` says of which version these are.  The exit code is 1 if fewer tests of a group pass than its goal says, if
a process crashed, or if a failure has no reason in the suite's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cuda_suite.page import counts_of, page_of, passing_part, row_of
from cuda_suite.running import CRASHED, FAILED, Outcome, outcomes
from cuda_suite.suites import SUITES, Group


def main(name: str, folder: Path, page: Path, commit: str) -> int:
    """Run, count, write."""
    suite = SUITES[name]
    results: dict[Group, dict[str, list[Outcome]]] = {}
    is_short = False
    for group in suite.groups:
        files = results[group] = {}
        for path in sorted({path for pattern in group.files for path in folder.glob(pattern)}):
            file = str(path.relative_to(folder))
            files[file] = outcomes(suite, folder, file)
            print(row_of(file, files[file]), flush=True)
        passed, ran = passing_part(counts_of(each for file in files.values() for each in file))
        print(f"{group.about}: {passed} of {ran} tests that ran and need no kernel pass", flush=True)
        is_short |= passed < group.goal * ran
    page.write_text(page_of(name, suite, commit, results))
    bad = [
        each
        for files in results.values()
        for of_file in files.values()
        for each in of_file
        if each.kind in (FAILED, CRASHED)
    ]
    for each in bad:
        if not each.reason:
            print(f"{each.file}::{each.name} {each.kind}:\n{each.text[-1500:]}")
    return int(is_short or any(each.kind == CRASHED or not each.reason for each in bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *(Path(each).resolve() for each in sys.argv[2:4]), sys.argv[4]))
