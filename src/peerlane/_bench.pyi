"""What the command `peerlane bench` compares peerlane with, timed in C."""

from typing import Annotated

import numpy
from numpy.typing import NDArray


def time_ping_pong(mine: int, theirs: int, begin: int, rounds: int, first: bool, deadline: float) -> float:
    """
    Two processes tell each other numbers from begin + 1 on, by host addresses of a word each; the seconds of one way, negative if the other does not come.
    """

def time_copy(dst: int, src: int, size: int, streaming: bool, threads: int, rounds: int) -> float:
    """
    Seconds of one plain or streaming copy between two host addresses, without any check.
    """

def time_scattered_copies(dsts: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], srcs: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], size: int, rounds: int) -> float:
    """
    Seconds of a loop of memcpy between pairs of host addresses, all of one size, without any check.
    """

def time_lookups(addresses: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', writable=False)], rounds: int) -> float:
    """Seconds of one look-up, over the whole list in order."""
