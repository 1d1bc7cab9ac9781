"""Helpers for tests of peerlane and of programs that use it."""
