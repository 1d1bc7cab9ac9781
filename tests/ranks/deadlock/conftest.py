"""Fixtures of the tests of ``peerlane launch``, which a test of deadlocks uses too."""

from helpers.launching import cwd, env, run, ssh, start, where

__all__ = ["cwd", "env", "run", "ssh", "start", "where"]
