"""Which mistakes are made of a program."""

from __future__ import annotations

from checker.mutants import mutants

_PROGRAM = """\
for peer in peers:
    ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 5))
    ok(hcomm.HcommWriteOnThread(thread, channel, there, here, 64))
    ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 1))
"""


def test_mutants_of_a_program_have_each_mistake_once_and_as_many_lines() -> None:
    sources = {mutant.mistake: mutant.source for mutant in mutants(_PROGRAM)}
    assert list(sources) == [
        "line 2: dropped wait",
        "line 2: another notify",
        "line 4: record moved before line 3",
        "line 4: another notify",
    ]
    lines = _PROGRAM.splitlines()
    assert sources["line 2: dropped wait"].splitlines() == [lines[0], "    pass", *lines[2:]]
    assert sources["line 2: another notify"].splitlines()[1] == lines[1].replace("0, 5", "3, 5")
    assert sources["line 4: record moved before line 3"].splitlines() == [*lines[:2], lines[3], lines[2]]
    assert all(len(source.splitlines()) == len(lines) for source in sources.values())
