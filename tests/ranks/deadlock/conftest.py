"""Fixtures of the tests of ``peerlane launch``, which a test of deadlocks uses too."""

from helpers.launching import env, here, run, ssh, start, where

__all__ = ["env", "here", "run", "ssh", "start", "where"]
