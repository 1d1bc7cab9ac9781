"""What the tests of ``peerlane launch`` share."""

from helpers.launching import env, here, run, start

__all__ = ["env", "here", "run", "start"]
