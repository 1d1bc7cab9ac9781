"""Files that the ranks of another machine leave: event logs, and the report of ``--fault``.

Its part sends them over the wire when all processes there have ended.  Another machine is not trusted: the names,
offsets and sizes that it sends are checked.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from peerlane.backends.virtual.node import faults
from peerlane.diagnostics.log import event_log

from .wire import BadFrame

REPORT = "faults.jsonl"
MOST_BYTES = 2 * event_log.DEFAULT_BYTES  #: of all files of a machine
MOST_FILES = 65_536

_MOST_REPORT = 1 << 20
_PIECE = 256 << 10
_HEAD = struct.Struct("<BQ")  # the length of the name, and the offset in the file of the bytes behind it
_NAME = re.compile(r"[0-9]{1,10}-[0-9]{1,20}\.(log|names)|" + re.escape(REPORT))


def variables(folder: Path, planned: str, log_bytes: str) -> dict[str, str]:
    """Return the variables by which ranks leave their files in a folder.

    ``planned``: their faults, as ``PEERLANE_FAULT`` has them.
    ``log_bytes``: as ``PEERLANE_LOG_BYTES``; empty for its default.
    """
    environment = {event_log.VARIABLE: str(folder)}
    if log_bytes:
        environment[event_log.SIZE_VARIABLE] = log_bytes
    if planned:
        (folder / REPORT).touch()
        environment |= {faults.VARIABLE: planned, faults.REPORT: str(folder / REPORT)}
    return environment


def pieces(folder: Path, *, logs: bool) -> Iterator[bytes]:
    """Yield the bodies of the frames that send a folder's files, or only the report; holes are left out."""
    names = [each.name for each in sorted(folder.iterdir()) if _NAME.fullmatch(each.name)]
    # A log comes behind its names: a reader that sees the log reads them at once.
    for name in sorted(names, key=lambda name: (name.endswith(".log"), name)):
        if not logs and name != REPORT:
            continue
        with contextlib.suppress(OSError):
            yield from _pieces_of(folder / name)


def _pieces_of(path: Path) -> Iterator[bytes]:
    name = path.name.encode()
    with path.open("rb", buffering=0) as file:
        size, at = os.fstat(file.fileno()).st_size, 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                content = os.pread(file.fileno(), min(_PIECE, end - at), at)
                if not content:
                    break
                yield _HEAD.pack(len(name), at) + name + content
                at += len(content)
    yield _HEAD.pack(len(name), at) + name


class Received:
    """The files that come from one machine.

    ``number``: the machine's, which becomes a part of the names of its logs.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._logs, self._report = os.environ.get(event_log.VARIABLE), os.environ.get(faults.REPORT)
        self._names: set[str] = set()
        self._left = MOST_BYTES

    def take(self, body: bytes) -> None:
        """Take a piece of a file, or its end; raise BadFrame if that cannot be one."""
        if len(body) < _HEAD.size:
            raise BadFrame("a piece of a file has no head")
        length, at = _HEAD.unpack_from(body)
        name = body[_HEAD.size : _HEAD.size + length].decode("ascii", "replace")
        content = body[_HEAD.size + length :]
        if not _NAME.fullmatch(name):
            raise BadFrame("a file has a name that no rank gives")
        self._names.add(name)
        self._left -= len(content)
        if at + len(content) > MOST_BYTES or self._left < 0 or len(self._names) > MOST_FILES:
            raise BadFrame(f"its files have more than {MOST_BYTES:,} bytes, or are more than {MOST_FILES:,}")
        if name == REPORT:
            self._take_report(content)
        elif self._logs is not None:
            self._take_log(Path(self._logs), name, at, content)

    def lose(self) -> None:
        """Note that no more comes, by a log without a header: the checker then reports that it is not complete."""
        if self._logs is not None:
            with contextlib.suppress(OSError):
                Path(self._logs, f"0-0-{self._number}.log").touch()

    def _take_log(self, folder: Path, name: str, at: int, content: bytes) -> None:
        stem, _, suffix = name.partition(".")
        whole = folder / f"{stem}-{self._number}.{suffix}"
        begun = whole.with_name(f"{whole.name}.begun")
        with contextlib.suppress(OSError):  # without room for it the report is not complete
            if not content:
                begun.rename(whole)
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(begun, flags, 0o600)
            try:
                os.pwrite(descriptor, content, at)
            finally:
                os.close(descriptor)

    def _take_report(self, content: bytes) -> None:
        if self._report is None or len(content) > _MOST_REPORT:
            return
        lines = []
        for line in content.decode("ascii", "replace").splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and all(type(each) is int for each in record.values()):
                    lines.append(json.dumps(record) + "\n")
        with contextlib.suppress(OSError), Path(self._report).open("a", encoding="utf-8") as file:
            file.writelines(lines)
