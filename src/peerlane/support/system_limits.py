"""What to do where the system refuses a resource: the limit that was reached, and how to raise it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from peerlane.errors import Error, Fault, OutOfMemory, Refused


def of_system(error: OSError) -> tuple[type[Error], str]:
    """Return the class for a refusal of the system, and what to do about it.

    It is `OutOfMemory` where a resource is used up, and `Error` where something else is wrong.
    """
    if error.errno in (errno.EMFILE, errno.ENFILE):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return (
            OutOfMemory,
            f"this process may have {most:,} file descriptors: raise `ulimit -n`, or close what is not used any more",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            OutOfMemory,
            "the file system has no bytes or no inodes left (`df`, `df -i`): make room there, or set "
            "PEERLANE_RUNTIME_DIR to another directory",
        )
    if error.errno == errno.EFBIG:
        return OutOfMemory, "this process may not make files so large: raise `ulimit -f`"
    if error.errno == errno.ENOMEM:
        return OutOfMemory, "the system has no memory left: free some"
    return Error, "set PEERLANE_RUNTIME_DIR to a directory of your own"


@contextlib.contextmanager
def out_of_resources(what: str) -> Iterator[None]:
    """Raise `OutOfMemory` where the block meets a bare refusal of the system because a resource is used up."""
    try:
        yield
    except Error:  # some are OSError too
        raise
    except OSError as error:
        kind, remedy = of_system(error)
        if kind is not OutOfMemory:
            raise
        raise OutOfMemory(
            f"{what}: {error.strerror}; {remedy}",
            fault=Fault.OUT_OF_RESOURCES,
            detail=Refused(reason="out_of_resources", errno=error.errno),
        ) from error


def address_space() -> tuple[int, int] | None:
    """Return the bytes of addresses that this process may have, and those that it has; None without a limit."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return most, pages * os.sysconf("SC_PAGESIZE")


def most_threads() -> str:
    """Return the words that name the limits of threads."""
    most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    shown = "no limit" if most == resource.RLIM_INFINITY else f"{most:,}"
    return (
        f"raise `ulimit -u` (RLIMIT_NPROC, {shown} here) or pids.max of the control group, or end threads and "
        "processes"
    )


def no_thread(call: str) -> OutOfMemory:
    """Return the refusal of a call for which the system starts no thread."""
    return OutOfMemory(
        f"{call}: the system starts no thread for this process; {most_threads()}",
        fault=Fault.OUT_OF_RESOURCES,
        call=call,
        detail=Refused(reason="no_thread"),
    )
