"""What the command `peerlane bench` compares peerlane with, timed in C."""

from typing import Annotated

import numpy
from numpy.typing import NDArray


def time_ping_pong(mine: int, theirs: int, begin: int, rounds: int, first: bool, deadline: float) -> float:
    """
    Two processes tell each other numbers from begin + 1 on, by host addresses of a word each; the seconds of one way, negative if the other does not come.
    """

def tcp_turn(fd: int, address: int, first: bool, there: int, back: int, spins: bool) -> bool:
    """
    Send so many bytes over a TCP connection in chunks of 256 KiB, and receive the answer, or the other way round; False: the other end is gone, or silent.
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
