"""Fixtures of the tests of ``peerlane launch``."""

from helpers.launching import cwd, env, run, ssh, start, where

__all__ = ["cwd", "env", "run", "ssh", "start", "where"]
