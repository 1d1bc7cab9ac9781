"""Fixtures of the tests of ``peerlane launch``."""

from helpers.launching import env, here, run, start

__all__ = ["env", "here", "run", "start"]
