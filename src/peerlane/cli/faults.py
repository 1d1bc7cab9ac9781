"""``--fault``: kill or delay a rank at its n-th logged event."""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator

from peerlane.backends.virtual.node import faults
from peerlane.errors import InvalidValue

_LOG, _LOG_BYTES, _SMALL = "PEERLANE_LOG", "PEERLANE_LOG_BYTES", "1MiB"


def add_fault_argument(parser: argparse.ArgumentParser) -> None:
    """Declare ``--fault``, which may be repeated."""
    parser.add_argument(
        "--fault",
        action="append",
        type=_fault,
        metavar="FAULT",
        help="kill:rank=R,op=N kills rank R at its N-th logged event, delay:rank=R,op=N,ms=M delays it, and seed:S "
        "draws one of these; may be repeated",
    )


def variables_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables that bring the faults to the ranks."""
    return {faults.VARIABLE: ";".join(args.fault)} if args.fault else {}


@contextlib.contextmanager
def counted(args: argparse.Namespace) -> Iterator[None]:
    """Have the processes that are started in the block count their events, which only a log does.

    A log that was asked for already stays; else there is a small one until the block ends.
    """
    if not args.fault or os.environ.get(_LOG):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="peerlane-", ignore_cleanup_errors=True) as folder:
        os.environ.update({_LOG: folder, _LOG_BYTES: _SMALL})
        try:
            yield
        finally:
            del os.environ[_LOG], os.environ[_LOG_BYTES]


def _fault(text: str) -> str:
    try:
        faults.parse(text, "--fault", 1)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
