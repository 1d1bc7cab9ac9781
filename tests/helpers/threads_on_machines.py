"""A plugin for an inner pytest: ranks that are threads of one process lie on the machines that ``PLACED`` names.

``PLACED`` has a letter for each rank, its machine; further ranks begin again at the first letter.  With ``DRAWN``, a
seed, a third of the cases of each test run.
"""

from __future__ import annotations

import itertools
import os
import random
import threading

import pytest

from peerlane.collectives import group
from peerlane.ranks import joining
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.session import Session

_letters = os.environ["PLACED"]
_joining = threading.local()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if seed := os.environ.get("DRAWN"):
        draw, tests = (
            random.Random(seed),
            itertools.groupby(items, lambda item: item.nodeid.partition("[")[0]),
        )
        cases = [list(each) for _, each in tests]
        items[:] = [case for each in cases for case in draw.sample(each, -(-len(each) // 3))]


def _join(session: Session, conversation: Conversation) -> None:
    _joining.machine = _letters[session.rank % len(_letters)]
    joining.join(session, conversation)


joining.own_machine = lambda: f"machine {_joining.machine}"
group.join = _join
