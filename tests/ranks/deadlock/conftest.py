"""Fixtures of the tests of ``peerlane launch``, which a test of deadlocks uses too."""

from helpers.launching import env, here, run, start

__all__ = ["env", "here", "run", "start"]
