"""Descriptor lists: the pieces of memory that a registration or a transfer names (facts/nixl 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from peerlane.dialects.nixl._status import nixl_mem_t, nixlMismatchError, nixlNotFoundError

_WORD = 1 << 64
_HEAD = struct.Struct("<4sBBI")
_ROW = struct.Struct("<QQQI")


def _word(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= int(value) < _WORD:
        raise RuntimeError(
            f"a descriptor has whole numbers from 0 to {_WORD - 1:,} of 64 bits, not {value!r}"
        )
    return int(value)


class _List:
    """Rows of (address, bytes, device), some with one value more."""

    _width: ClassVar[int] = 3
    _tag: ClassVar[bytes] = b""

    def __init__(self, type: nixl_mem_t, descs: Any = 0) -> None:
        if not isinstance(type, nixl_mem_t):
            raise TypeError(f"{self._name}: the type is a nixl_mem_t such as DRAM_SEG, not {type!r}")
        self._type = type
        self.rows: list[tuple[Any, ...]] = []
        if isinstance(descs, np.ndarray):
            self.rows = self._of_array(descs)
        elif isinstance(descs, list):
            for each in descs:
                if not isinstance(each, tuple):
                    raise TypeError(f"{self._name}: each descriptor in a list is a tuple, not {each!r}")
                if len(each) != self._width:
                    raise ValueError(
                        f"{self._name}: each descriptor is a tuple of {self._width} ({self._shape}), not {each!r}"
                    )
            self.rows = [self._row(each) for each in descs]
        elif isinstance(descs, int) and descs >= 0:
            self.rows = [self._row((0, 0, 0, "")[: self._width]) for _ in range(descs)]
        else:
            raise TypeError(f"{self._name}: descs is a list of tuples or a NumPy array, not {descs!r:.60}")

    @property
    def _name(self) -> str:
        return type(self).__name__

    _shape: ClassVar[str] = "address, bytes, device"

    def _of_array(self, descs: np.ndarray) -> list[tuple[Any, ...]]:
        if descs.ndim != 2 or descs.shape[1] != 3:
            raise ValueError(f"{self._name}: descs must be a Nx3 numpy array, not one of shape {descs.shape}")
        if descs.dtype not in (np.uint64, np.int64):
            raise ValueError(
                f"{self._name}: descs must be a Nx3 numpy array of uint64 or int64, not of {descs.dtype}"
            )
        return list(map(tuple, descs.astype(np.uint64).tolist()))

    def _row(self, desc: Sequence[Any]) -> tuple[Any, ...]:
        if len(desc) < self._width:
            raise IndexError(f"{self._name}: a descriptor is ({self._shape}), not {desc!r}")
        return tuple(map(_word, desc[:3]))

    def _at(self, index: Any) -> int:
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            raise TypeError(f"{self._name}: an index is an int, not {index!r}")
        if not 0 <= index < len(self.rows):
            raise IndexError(
                f"{self._name}: index {index} is out of range; there are {len(self.rows)} descriptors"
            )
        return int(index)

    def getType(self) -> nixl_mem_t:
        """Return the kind of memory."""
        return self._type

    def descCount(self) -> int:
        """Return how many descriptors there are."""
        return len(self.rows)

    def isEmpty(self) -> bool:
        """Return whether there is no descriptor."""
        return not self.rows

    def addDesc(self, desc: tuple[Any, ...]) -> None:
        """Append a descriptor."""
        self.rows.append(self._row(desc))

    append = addDesc

    def remDesc(self, index: int) -> None:
        """Remove a descriptor; IndexError if there is none at ``index``."""
        if isinstance(index, int) and not 0 <= index < len(self.rows):
            raise IndexError(
                f"{self._name}: index {index} is out of range; there are {len(self.rows)} descriptors"
            )
        del self.rows[self._at(index)]

    def clear(self) -> None:
        """Remove all descriptors."""
        self.rows.clear()

    def print(self) -> None:
        """Print the list."""
        print(f"{self._name} of {self._type.name}: {self.rows}")

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if isinstance(index, int) and index < 0:
            raise TypeError(f"{self._name}: an index is 0 or more, not {index}")
        return self.rows[self._at(index)]

    def __setitem__(self, index: int, desc: tuple[Any, ...]) -> None:
        self.rows[self._at(index)] = self._row(desc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _List) and (type(self), self._type, self.rows) == (
            type(other),
            other._type,
            other.rows,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._name} of {len(self.rows)} in {self._type.name}>"


class _Indexed(_List):
    """A list that finds descriptors, and pickles."""

    def index(self, desc: tuple[Any, ...]) -> int:
        """Return where a descriptor stands; nixlNotFoundError if it does not."""
        wanted = self._row(desc)[:3]
        for at, row in enumerate(self.rows):
            if row[:3] == wanted:
                return at
        raise nixlNotFoundError(
            f"{wanted} is not among the {len(self.rows)} descriptors", "compare address, bytes and device"
        )

    def __getstate__(self) -> bytes:
        packed = [_HEAD.pack(b"pldl", self._width, self._type, len(self.rows))]
        for row in self.rows:
            more = row[3] if len(row) > 3 else b""
            packed.append(_ROW.pack(*row[:3], len(more)) + more)
        return b"".join(packed)

    def __setstate__(self, state: bytes) -> None:
        self._type, self.rows = nixl_mem_t.DRAM_SEG, []
        try:
            magic, width, kind, count = _HEAD.unpack_from(state)
            at, rows = _HEAD.size, []
            for _ in range(count):
                *row, more = _ROW.unpack_from(state, at)
                at += _ROW.size + more
                if at > len(state):
                    break
                rows.append((*row, state[at - more : at]) if self._width > 3 else tuple(row))
            fits = magic == b"pldl" and width == self._width and len(rows) == count and at == len(state)
            mem = nixl_mem_t(kind)
        except (struct.error, TypeError, ValueError):
            fits = False
        if not fits:
            raise nixlMismatchError(
                f"these {len(state):,} bytes are not a {self._name}",
                "pass what get_serialized_descs returned",
            )
        self._type, self.rows = mem, rows


class nixlXferDList(_Indexed):
    """Memory that a transfer reads or writes: (address, bytes, device)."""


class nixlRegDList(_Indexed):
    """Memory to register: (address, bytes, device, what the back-end needs besides)."""

    _width = 4
    _shape = "address, bytes, device, meta"

    def _of_array(self, descs: np.ndarray) -> list[tuple[Any, ...]]:
        return [(*row, b"") for row in super()._of_array(descs)]

    def _row(self, desc: Sequence[Any]) -> tuple[Any, ...]:
        row, meta = super()._row(desc), desc[3]
        if not isinstance(meta, (str, bytes)):
            raise RuntimeError(f"{self._name}: meta is str or bytes, not {meta!r}")
        return (*row, meta.encode() if isinstance(meta, str) else meta)

    def trim(self) -> nixlXferDList:
        """Return the same memory as a list for transfers."""
        trimmed = nixlXferDList(self._type)
        trimmed.rows = [row[:3] for row in self.rows]
        return trimmed


class nixlRemoteDList(_List):
    """Memory of several agents: (address, bytes, device, agent)."""

    _width = 4
    _shape = "address, bytes, device, agent"

    def _of_array(self, descs: np.ndarray) -> list[tuple[Any, ...]]:
        raise TypeError(f"{self._name}: descs is a list of ({self._shape}), not a NumPy array")

    def _row(self, desc: Sequence[Any]) -> tuple[Any, ...]:
        row, agent = super()._row(desc), desc[3]
        if not isinstance(agent, str):
            raise RuntimeError(f"{self._name}: the agent is a str, not {agent!r}")
        return (*row, agent)

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {self._name!r} objects; send its tuples")
