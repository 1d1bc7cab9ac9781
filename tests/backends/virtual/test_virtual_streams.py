"""Streams of the virtual back-end pass the conformance suite under every schedule."""

from __future__ import annotations

import os

import pytest

import peerlane as pl
from peerlane.testing.streams import StreamConformance

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


class TestEager(StreamConformance):
    schedule = "eager"

    def enter(self) -> tuple[pl.Device, ...]:
        return pl.enter_node(f"name=streams-{os.getpid()},devices=2,memory=2GiB,schedule={self.schedule}")


class TestLazy(TestEager):
    schedule = "lazy"


class TestSeeded(TestEager):
    schedule = "seeded"
