"""Safetensors files, read as byte ranges under a checked header.

The format: eight bytes with the length of the header (little endian), the header (a JSON object
``{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {str: str}}``), then the data, to
whose start the offsets refer.  The tensors cover the data without holes or overlaps.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from peerlane.cli.weights_header import Entry, HeaderError, clipped, decode
from peerlane.errors import InvalidValue

MAX_HEADER = 100_000_000

#: Bits of one element, by the format's name for its type.
DTYPE_BITS: Mapping[str, int] = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}

_PREFIX = 8
_MOST_BITS = 1 << 66


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: ``nbytes`` bytes that start at byte ``offset`` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class Weights:
    """An open safetensors file whose header was checked; a context manager.

    Parameters
    ----------
    path : str or path
        The file.  It is opened once, so it may be replaced by another file afterwards.

    Attributes
    ----------
    path : str
        As given.
    tensors : tuple of Tensor
        In the order of their bytes in the file.
    metadata : mapping of str to str
        The header's ``__metadata__``.
    nbytes : int
        Bytes of all tensors.

    Raises
    ------
    InvalidValue
        The file cannot be read, or its header is not valid; the text names the file and the tensor.
    """

    __slots__ = ("path", "tensors", "metadata", "nbytes", "_fd")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd = -1
        self.path = os.fspath(path)
        try:
            # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            self._read_header()
        except (OSError, ValueError) as error:
            self.close()
            if isinstance(error, InvalidValue):
                raise
            reason = getattr(error, "strerror", None) or str(error)
            if "\0" in os.fsdecode(self.path):  # Python's own text differs by version
                reason = "a path cannot contain a NUL character"
            self._refuse(f"cannot be read: {reason}; give a safetensors file that exists and is readable")
        except BaseException:
            self.close()
            raise

    def read_into(self, target: memoryview, tensor: Tensor, start: int = 0) -> None:
        """Fill ``target`` with the tensor's bytes from its byte ``start`` on, without a copy in between.

        Raises
        ------
        InvalidValue
            The range is not inside the tensor, or the file was truncated since it was opened.
        """
        size = target.nbytes
        if not 0 <= start <= tensor.nbytes - size:
            self._refuse(
                f"tensor {clipped(tensor.name)}: bytes {start:,} to {start + size:,} were asked for; valid are "
                f"0 to {tensor.nbytes:,}"
            )
        self._fill(target, tensor.offset + start, f"tensor {clipped(tensor.name)}")

    def close(self) -> None:
        """Close the file; idempotent."""
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def is_closed(self) -> bool:
        """Whether the file was closed."""
        return self._fd < 0

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else ""
        return f"<Weights {self.path!r}: {len(self.tensors):,} tensors, {self.nbytes:,} bytes{state}>"

    def _read_header(self) -> None:
        found = os.fstat(self._fd)
        if not stat.S_ISREG(found.st_mode):
            kind = "a directory" if stat.S_ISDIR(found.st_mode) else "not a regular file"
            self._refuse(f"is {kind}; give a safetensors file")
        if found.st_size < _PREFIX:
            self._refuse(
                f"has {found.st_size} bytes, too few for the {_PREFIX} bytes that give the header's length; it is "
                "truncated or not a safetensors file"
            )
        prefix = bytearray(_PREFIX)
        self._fill(memoryview(prefix), 0, "header length")
        length = int.from_bytes(prefix, "little")
        if length > MAX_HEADER:
            self._refuse(f"claims a header of {length:,} bytes; valid are 2 to {MAX_HEADER:,}")
        if length > found.st_size - _PREFIX:
            self._refuse(
                f"claims a header of {length:,} bytes, and {found.st_size - _PREFIX:,} bytes follow its length; it "
                "is truncated or not a safetensors file"
            )
        header = bytearray(length)
        self._fill(memoryview(header), _PREFIX, "header")
        try:
            entries, self.metadata = decode(header)
        except HeaderError as error:
            self._refuse(f"has a bad header: {error}")
        self.nbytes = found.st_size - _PREFIX - length
        self.tensors = self._laid_out(entries, _PREFIX + length)

    def _laid_out(self, entries: Mapping[str, Entry], start: int) -> tuple[Tensor, ...]:
        """Return the tensors in file order, if they cover the data exactly."""
        made: list[Tensor] = []
        end, before = 0, "the start of the data"
        for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
            where = f"tensor {clipped(name)}"
            self._check_range(where, entry)
            begin = entry.data_offsets[0]
            if begin != end:
                fault = "overlaps" if begin < end else f"leaves a hole of {begin - end:,} bytes after"
                self._refuse(
                    f"{where}: it starts at byte {begin:,} of the data and {fault} {before}, which ends at byte "
                    f"{end:,}; valid is {end:,}"
                )
            end, before = entry.data_offsets[1], where
            made.append(Tensor(name, entry.dtype, entry.shape, start + begin, end - begin))
        if end != self.nbytes:
            self._refuse(
                f"holds {self.nbytes - end:,} bytes of data that belong to no tensor, after {before}"
            )
        return tuple(made)

    def _check_range(self, where: str, entry: Entry) -> None:
        begin, end = entry.data_offsets
        if begin > end:
            self._refuse(f"{where}: data_offsets [{begin}, {end}] end before they begin")
        if end > self.nbytes:
            self._refuse(
                f"{where}: data_offsets [{begin}, {end}] reach {end - self.nbytes:,} bytes beyond the data, of "
                f"which the file has {self.nbytes:,}; it is truncated or its header lies"
            )
        bits = DTYPE_BITS.get(entry.dtype)
        if bits is None:
            self._refuse(
                f"{where}: dtype {clipped(entry.dtype)} is unknown; known are {', '.join(DTYPE_BITS)}"
            )
        need = 0 if 0 in entry.shape else bits
        for extent in entry.shape if need else ():
            need *= extent
            if need > _MOST_BITS:
                self._refuse(f"{where}: its shape has more elements than 2**63 bytes hold")
        if need != 8 * (end - begin):
            whole = f"{need // 8:,}" if need % 8 == 0 else f"{need / 8:,}"
            shown = clipped(list(entry.shape))
            self._refuse(
                f"{where}: {entry.dtype} of shape {shown} takes {whole} bytes, its data_offsets "
                f"[{begin}, {end}] span {end - begin:,}"
            )

    def _fill(self, target: memoryview, offset: int, what: str) -> None:
        target = target.cast("B")
        done = 0
        while done < target.nbytes:
            try:
                got = os.preadv(self._fd, [target[done:]], offset + done)
            except OSError as error:
                self._refuse(f"{what} cannot be read: {error.strerror}")
            if got == 0:
                self._refuse(
                    f"{what}: the file ends at byte {offset + done:,}, {target.nbytes - done:,} bytes too early; "
                    "it was truncated while in use"
                )
            done += got

    def _refuse(self, text: str) -> NoReturn:
        raise InvalidValue(f"weights file {self.path!a} {text}", call="weights") from None
