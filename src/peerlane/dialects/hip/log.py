"""What goes to stderr: the message of each failure from level 1 on, warnings from level 2, each call from level 3."""

from __future__ import annotations

import os

from peerlane.backend import host

_VARIABLE = "AMD_LOG_LEVEL"  # the vendor's own
_ERRORS, _WARNINGS, _CALLS = 1, 2, 3
_OF_CALLS = 1  # the bit of the mask


class Log:
    """How much is written: the environment decides, until the program sets it."""

    has_calls = False  #: whether each call is written
    _level: int | None = None
    _chosen = 0, 0

    @property
    def has_errors(self) -> bool:
        """Whether the message of each failure is written."""
        return self._reaches(_ERRORS)

    @property
    def has_warnings(self) -> bool:
        """Whether calls that work, and may not do what the program means, are written."""
        return self._reaches(_WARNINGS)

    def _reaches(self, level: int) -> bool:
        if self._level is not None:
            return self._level >= level
        chosen = os.environ.get(_VARIABLE, "")
        return int(chosen) >= level if chosen.isdecimal() else bool(chosen) and level == _ERRORS

    def choose(self, level: int, mask: int) -> None:
        """Set what :meth:`begin` begins."""
        self._chosen = level, mask

    def begin(self) -> None:
        """Write from now on, in this process."""
        self._level, mask = self._chosen
        self.has_calls = self._level >= _CALLS and bool(mask & _OF_CALLS)
        host.forget_c_threads()  # whose calls native code would answer

    def end(self) -> None:
        """Write nothing from now on."""
        self._level, self.has_calls = 0, False

    def forget(self) -> None:
        """Reset to the state of a new process."""
        self._level, self._chosen, self.has_calls = None, (0, 0), False


log = Log()
