"""Registered files, and the bytes that move between them and memory (facts/nixl 12)."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from peerlane.dialects._shared.moves import ranks
from peerlane.dialects.nixl._regions import REFUSED, WHOLE, WORD, OwnRegion, is_strict
from peerlane.dialects.nixl._status import nixl_mem_t, nixlBackendError, nixlNotAllowedError
from peerlane.dialects.nixl.logging import get_logger
from peerlane.errors import Error

if TYPE_CHECKING:
    from peerlane import Stream
    from peerlane.backend.ranks import FileCopies

_logger = get_logger("posix")
_ACCESS = {"ro": os.O_RDONLY, "rw": os.O_RDWR}
_FLAGS = {"direct": os.O_DIRECT, "sync": os.O_SYNC, "noatime": os.O_NOATIME, "create": os.O_CREAT}
_MODE = 0o644
_REMEDIES = {
    0: "read what the file has, or make it longer",
    errno.EINVAL: "pass offsets below 2**63, with 'direct' whole blocks of the disk from a multiple of one",
    errno.ESPIPE: "register a file that has offsets, no pipe, socket or terminal",
    errno.EFBIG: "raise `ulimit -f`, or write less",
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room in its quota",
}
_ANY = 0, 0  # the device and inode of a file that is not compared
_MOST_DESCRIPTOR = (1 << 31) - 1
_MOST_OF_BRIEF = 1 << 20  # bytes


class Path(NamedTuple):
    """A file that its registration opens."""

    name: str
    flags: int


def path_of(meta: bytes) -> Path | None:
    """Return the path in a registration's meta, as ``rw,create:/tmp/file``; None if it has none.

    Raises nixlBackendError: it has modes, some are wrong, and the policy is strict: without a path the bytes would go
        to the descriptor of the device's number.
    """
    modes, colon, name = meta.partition(b":")
    access, *flags = words = modes.decode(errors="replace").split(",")
    if not colon or not {word.strip().lower() for word in words} & (_ACCESS.keys() | _FLAGS.keys()):
        return None
    if not name or access not in _ACCESS or not set(flags) <= _FLAGS.keys():
        if not is_strict():
            return None
        raise nixlBackendError(
            f"the meta {os.fsdecode(meta)!r} names no path with valid modes",
            f"pass {' or '.join(map(repr, _ACCESS))}, then any of {', '.join(map(repr, _FLAGS))}, "
            "with commas alone between them, then ':' and the path",
        )
    bits = _ACCESS[access]
    for each in flags:
        bits |= _FLAGS[each]
    return Path(os.fsdecode(name), bits)


class FileRegion(OwnRegion):
    """A part of a file that an agent has registered.

    Its device is the file's descriptor, or with a path any number that no other registered path has.

    Raises nixlBackendError: the file cannot be opened, or the descriptor is not open (which the vendor's policy lets
        pass).
    """

    def __init__(self, *region: Any, backends: frozenset[str], path: Path | None = None) -> None:
        super().__init__(*region, backends=backends)
        self.path = path  #: the path by which it was registered
        self.fd = self.device if self.device <= _MOST_DESCRIPTOR else -1  #: its descriptor
        if self.path is not None:
            try:
                self.fd = os.open(self.path.name, self.path.flags | os.O_CLOEXEC, _MODE)
            except (OSError, ValueError) as error:
                raise nixlBackendError(
                    f"the file {self.path.name!r} cannot be opened: {getattr(error, 'strerror', error)}",
                    "pass a path such as 'rw,create:/tmp/file', and a name that may be opened so",
                ) from error
        #: The device and inode of the file; zeros for a descriptor under the vendor's policy.
        self.ident = self._ident() if path is not None or is_strict() else _ANY

    def _ident(self) -> tuple[int, int]:
        try:
            about = os.fstat(self.fd)
        except OSError as error:
            raise self._not_open(error) from error
        return about.st_dev, about.st_ino

    def _not_open(self, error: OSError) -> nixlBackendError:
        return nixlBackendError(
            f"{self.name} is not open: {error.strerror}",
            "register an open descriptor, and close it after deregister_memory",
        )

    @property
    def name(self) -> str:
        """The file, as a text names it."""
        return f"descriptor {self.device}" if self.path is None else f"file {self.path.name!r}"

    def covers(self, address: int, nbytes: int, device: int) -> bool:
        """Return whether it has all of the bytes; as the vendor, let the end of the part wrap at 64 bits."""
        end = (self.start + self.size) % WORD
        return self.device == device and self.start <= address and address + nbytes <= end

    def check_open(self) -> None:
        """Raise nixlBackendError if the descriptor was closed, or is another file's by now."""
        present = self._ident()
        is_checked = (
            self.path is not None or is_strict()
        )  # the number of a path's descriptor is the dialect's
        if self.ident not in (present, _ANY) and is_checked:
            raise nixlBackendError(
                f"descriptor {self.device} was closed after it was registered, and is another file's now",
                f"deregister it before you close it ({REFUSED})",
            )

    def check_access(self, is_write: bool) -> None:
        """Raise nixlBackendError if the descriptor was opened for the other direction only."""
        try:
            access = fcntl.fcntl(self.fd, fcntl.F_GETFL) & os.O_ACCMODE
        except OSError as error:
            raise self._not_open(error) from error
        if access == (os.O_RDONLY if is_write else os.O_WRONLY):
            raise nixlBackendError(
                f"{self.name} was opened to be {'read' if is_write else 'written'} only: {os.strerror(errno.EBADF)}",
                "open it for both",
            )

    def end(self) -> None:
        """Close the file, if its registration opened it; transfers that are under way keep it."""
        if self.path is not None:
            os.close(self.fd)

    def __str__(self) -> str:
        size = "all bytes" if self.size == WHOLE else f"{self.size:,} bytes"
        return f"{size} from {self.start:,} on of {self.name}"


@cache
def _warn_of_vram() -> None:
    _logger.warning(
        "POSIX moves VRAM here; NIXL's own needs GDS for it (PEERLANE_NIXL_POLICY=vendor refuses it)"
    )


class FileMoves:
    """The bytes of a transfer between memory and files.

    ``is_write``: whether files are written.
    ``rows``: the memory's address and region, the file's offset and region, bytes.
    ``pool``: how many rows the back-end moves at a time.
    """

    def __init__(
        self, is_write: bool, rows: Sequence[tuple[int, OwnRegion, int, Any, int]], pool: int
    ) -> None:
        self._is_write, self._rows, self._pool = is_write, rows, pool
        self.is_brief = len(rows) <= pool and sum(row[4] for row in rows) <= _MOST_OF_BRIEF
        if any(row[1].mem is nixl_mem_t.VRAM_SEG for row in rows):
            _warn_of_vram()
        self._files: list[FileRegion] = list({id(row[3]): row[3] for row in rows}.values())
        pieces = [(file.fd, offset, address, size) for address, _, offset, file, size in rows]
        files = [(each.fd, *each.ident) for each in self._files if each.ident != _ANY]
        self._pieces: Any = ranks().file_pieces(not is_write, pieces, files)
        self._copies: FileCopies | None = None  # it keeps files open
        self._failure: tuple[int, int, int] | None = None

    def run(self) -> bool:
        """Move the bytes now, if the page cache has or takes them; False if some are to be queued."""
        return bool(self._pieces.run_at_once())

    def queue(self, stream: Stream) -> None:
        """Queue them on a stream.

        Raises nixlNotAllowedError: there are more rows than the back-end moves at a time.
        Raises nixlBackendError: a file is closed, or was not opened for this direction.
        """
        if len(self._rows) > self._pool:
            raise nixlNotAllowedError(
                f"the transfer has {len(self._rows):,} descriptors, and the back-end moves {self._pool:,} at a time",
                "pass a larger 'ios_pool_size' (up to 65,536) to create_backend, or make several transfers",
            )
        for each in self._files:
            each.check_open()
            each.check_access(self._is_write)
        self._failure, self._copies = None, self._pieces.submit(stream)

    def finish(self, stream: Stream) -> None:
        """Close the files of a stream that is done; nixlBackendError if not all bytes were moved."""
        try:
            stream.sync()
        except Error:
            self._copies = None
            raise
        if self._copies is not None:
            self._failure = self._copies.failure  # before the next line: an interrupt may come between
            self._copies = None
        if self._failure is not None:
            raise self._not_moved(*self._failure)

    def _not_moved(self, error: int, piece: int, moved: int) -> nixlBackendError:
        _, _, offset, file, size = self._rows[piece]
        did = "written to" if self._is_write else "read from"
        why = os.strerror(error) if error else "the file ends there"
        return nixlBackendError(
            f"{moved:,} of the {size:,} bytes of row {piece} were {did} {file.name} at offset {offset:,}: {why}",
            _REMEDIES.get(error, "look at the file and its disk"),
        )
