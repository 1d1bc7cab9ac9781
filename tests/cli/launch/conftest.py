"""Fixtures of the tests of ``peerlane launch``."""

from helpers.launching import env, here, run, ssh, start, where

__all__ = ["env", "here", "run", "ssh", "start", "where"]
