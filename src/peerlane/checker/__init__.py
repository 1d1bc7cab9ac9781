"""`peerlane check`: which two lines are not ordered, and which wait is missing (``docs/design/checker.md``)."""

from peerlane.checker.checker import Checker

__all__ = ["Checker"]
