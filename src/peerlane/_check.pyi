"""The analysis of event logs (docs/design/checker.md), as plain data."""

from typing import Any


class Analysis:
    """
    Finds, in the event logs of all processes, which two events are not ordered.  One thread uses it at a time.
    """

    def __init__(self, limit: int = 805306368) -> None:
        """
        With more than about `limit` bytes of history the older half is forgotten; `stats` counts it.
        """

    def add(self, path: str, may_give_back: bool = False, shift_ns: int = 0) -> int:
        """
        Return the number of the log at `path`, which may still grow.  With `may_give_back` what was read is freed in the file.  Its times are `shift_ns` later on the clock of the other logs.  ValueError: not a log.
        """

    def close(self, log: int) -> None:
        """The process of this log has ended: nothing will be added."""

    def end_growth(self) -> None:
        """
        End the growth of each log's newest record, which the next poll can read.
        """

    def poll(self, horizon_ns: int) -> None:
        """
        Read what the logs have, but for events after `horizon_ns` (CLOCK_MONOTONIC): another process may still publish an earlier one.
        """

    def finish(self) -> None:
        """Read the rest of all logs, whose processes have ended."""

    def findings(self) -> list[dict[str, Any]]:
        """Return what was found so far."""

    def unwatched(self) -> list[tuple[str, int, int, int]]:
        """
        Return what no event tells: its name, how often it happened, and the log and the site of the first time.
        """

    def facts(self, log: int) -> tuple[int, int, str]:
        """
        Return the process of a log, its rank (-1: not known), and why it could not be read to its end, else an empty text.
        """

    def verbs_of_lines(self, log: int) -> dict[int, int]:
        """
        Return, for the lines of a log, a number that two lines share if they made the same kinds of calls.
        """

    def stats(self) -> dict[str, int]:
        """
        Return counts: of events, of what was dropped or forgotten, and of what is kept.
        """
