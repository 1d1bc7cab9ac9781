"""A plugin for an inner pytest: ranks that are threads of one process lie on the machines that ``PLACED`` names.

``PLACED`` has a letter for each rank, its machine; further ranks begin again at the first letter.
"""

from __future__ import annotations

import os
import threading

from peerlane.collectives import group
from peerlane.ranks import joining
from peerlane.ranks.conversation import Conversation
from peerlane.ranks.session import Session

_letters = os.environ["PLACED"]
_joining = threading.local()


def _join(session: Session, conversation: Conversation) -> None:
    _joining.machine = _letters[session.rank % len(_letters)]
    joining.join(session, conversation)


joining.own_machine = lambda: f"machine {_joining.machine}"
group.join = _join
