"""Buffers: an address, a size, and the proof that both are valid."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from peerlane.backend import host
from peerlane.backend.facts import HandleKind, Route
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.log import event_log
from peerlane.errors import BadAddress, BadArgument, Fault, InvalidValue, Refused
from peerlane.memory import host_objects
from peerlane.node.base import DeviceBase, checked_peer
from peerlane.sharing.open import open_offer
from peerlane.streams.stream import Stream
from peerlane.support import dtypes
from peerlane.support.declared import declared, kept, owed
from peerlane.support.late import Late
from peerlane.support.own_process import OwnProcess, by_handle

if TYPE_CHECKING:
    import numpy.typing as npt

    from peerlane.memory.buffer_like import BufferLike
    from peerlane.sharing.handle import Allow, Handle

_DLPACK_CPU = (1, 0)


_copies = Late("peerlane.memory.copy")
_native = Late("peerlane.backends.virtual.buffer")


class Buffer(OwnProcess):
    """Memory on a device or on the host.

    Made by :meth:`Device.allocate`, :meth:`Host.allocate`, slicing, or :func:`as_buffer`.  It exports its
    bytes to the host through the buffer protocol and DLPack (as CPU memory).  Such a view never waits for queued
    operations, and it keeps the bytes alive even after :meth:`close`.  Device memory is not mapped in the child of a
    fork: a child that touches a view of it ends with SIGSEGV.

    Examples
    --------
    >>> with pl.device(0).allocate(16) as buffer:
    ...     buffer.copy_from(np.arange(4, dtype="float32"))
    ...     buffer[4:8].fill(0)  # a part is a buffer, too
    ...     print(buffer.view("float32"))
    [0. 0. 2. 3.]
    """

    __slots__ = ()
    _elsewhere = by_handle("Buffer", "its memory")
    _is_elsewhere = False  # memory of another machine

    @kept
    def device(self) -> Any:
        """The device that has the memory; a part of an address range has the range's, whatever is mapped there."""

    def __init__(self, *_: object) -> None:
        raise TypeError("a Buffer is made by Device.allocate, Host.allocate, slicing or as_buffer")

    if TYPE_CHECKING:

        def __buffer__(self, flags: int, /) -> memoryview: ...

    @property
    def address(self) -> int:
        """The address of its first byte.  The host cannot dereference a device address.  Raises Closed."""
        raise NotImplementedError

    @declared
    def last_address(self) -> int:
        """Its address, or the one that it had before it was closed."""

    @declared
    def writable_address(self) -> int:
        """The address of its first byte; raises Closed, or AccessDenied if the memory is read-only."""

    @declared
    def size(self) -> int:
        """Bytes."""

    @property
    def nbytes(self) -> int:
        """As :attr:`size`, by NumPy's name."""
        return self.size

    @declared
    def id(self) -> int:
        """The allocation's number, unique in the process; 0 for memory of a host object."""

    @owed
    def close(self, *, stream: Stream | None = None) -> None:
        """Free the memory; idempotent.  Running and queued copies and live views keep the bytes until they end.

        Memory that was allocated with a ``stream`` is freed in the order of that stream, so that operations submitted
        there before may still name it by address.  ``stream`` chooses another stream, also for memory that was
        allocated without one; a closed stream counts as None.

        Closing a part, or a buffer made by :func:`as_buffer`, frees nothing: the host object is kept until the
        buffer, its views and its parts are gone.  In the child of a fork, closing does nothing.
        """

    @property
    def is_closed(self) -> bool:
        """Whether this buffer, or the one that it is a part of, was closed, or its node was left."""
        raise NotImplementedError

    @property
    def is_imported(self) -> bool:
        """Whether another process allocated it."""
        raise NotImplementedError

    @classmethod
    def open(
        cls,
        handle: Handle | bytes | str | int,
        *,
        device: DeviceBase | None = None,
        timeout: float | None = 5.0,
    ) -> Buffer:
        """Open a buffer that another process exported: the same bytes, without a copy, at an address of this process.

        Parameters and errors are those of :meth:`Physical.open`.  :meth:`close` ends this process's use of it.
        """
        offer, home = open_offer("Buffer.open", handle, HandleKind.BUFFER, device, timeout)
        buffer: Buffer = home.backend.open_buffer(offer, home, device)
        return buffer

    @owed
    def export(self, *, allow: Allow = (), rights: str = "rw") -> Handle:
        """Return a handle with which other processes can open exactly these bytes.

        A buffer of less than 2 MiB first moves into a block of its own, at the same address, so that no neighbour's
        bytes are shared; queued operations run before.  The memory lives until the buffer is closed and no process
        has it open.

        Parameters
        ----------
        allow, rights
            As for :meth:`Physical.export`.

        Raises
        ------
        Busy
            It would have to move, but a host view or an operation that cannot run yet uses it.
        Unsupported
            It is host memory, was imported, or spans several blocks of an address range.
        InvalidValue, OutOfMemory, Closed
            No handle was made.
        """

    def copy_from(self, src: BufferLike, *, stream: Stream | None = None) -> None:
        """Copy all of ``src`` here; see :func:`peerlane.copy`.

        Parameters
        ----------
        src : Buffer or host object
            As many bytes as the buffer has.
        stream : Stream, optional
            The stream to queue it on; without one the copy is complete on return.
        """
        _copies.copy(self, src, stream=stream)

    def copy_to(self, dst: BufferLike, *, stream: Stream | None = None) -> None:
        """Copy all of this buffer to ``dst``; see :func:`peerlane.copy`.

        Parameters
        ----------
        dst : Buffer or host object
            As many bytes as the buffer has.
        stream : Stream, optional
            The stream to queue it on; without one the copy is complete on return.
        """
        _copies.copy(dst, self, stream=stream)

    def fill(self, value: int | bytes, *, stream: Stream | None = None) -> None:
        """Fill the buffer with a repeated value; complete on return, or queued on a stream.

        Parameters
        ----------
        value : int or bytes
            An int of 0..255 is one byte; bytes of length 1, 2 or 4 are the repeated pattern.  The size must
            be a multiple of the pattern's length.
        stream : Stream, optional
            The stream to queue it on.
        """
        _copies.fill(self, value, stream=stream)

    def view(
        self, dtype: npt.DTypeLike = "uint8", shape: int | Sequence[int] | None = None
    ) -> npt.NDArray[Any]:
        """Return a NumPy array on these bytes: no copy, writes are seen by the device.

        It never waits: synchronize the streams that write here before you read.  The array shows later writes, too.

        Do not touch the array in the child of a fork: device memory is not mapped there, and the child ends with
        SIGSEGV.

        Parameters
        ----------
        dtype : dtype
            Element type: anything that ``numpy.dtype()`` takes, the name of a type of the package ml_dtypes
            (``"bfloat16"``, ``"float8_e4m3fn"``), or a type of torch, which stands for the type of NumPy or ml_dtypes
            of that name.  ml_dtypes is imported only if one of its types is asked for.
        shape : int or sequence of int, optional
            One dimension over the whole buffer by default; one entry may be -1.

        Raises
        ------
        InvalidValue
            Type and shape do not cover exactly ``size`` bytes.
        Unsupported
            The type is one of ml_dtypes, which is not installed.
        TypeError
            There is no such type.
        Closed
            The buffer is closed.
        """
        array = self._array("Buffer.view", dtype, shape)
        if not event_log.active:
            return array
        from peerlane.diagnostics.hooks.numpy_views import checked

        return checked(array)

    def tensor(self, dtype: Any = None, shape: int | Sequence[int] | None = None) -> Any:
        """Return a tensor of PyTorch on these bytes, in host memory: no copy, writes are seen by the device.

        It is as :meth:`view`, and imports torch.  A checker sees no access of a tensor: say it with :meth:`reading`
        and :meth:`writing`.

        Parameters
        ----------
        dtype : torch.dtype or str, optional
            Any type of torch that has whole bytes, or its name (``"bfloat16"``); uint8 by default.
        shape
            As for :meth:`view`.

        Raises
        ------
        AccessDenied
            ``READ_ONLY``: the memory is read-only, and torch has no such tensors.
        Unsupported
            PyTorch is not installed.
        InvalidValue, TypeError, Closed
            As for :meth:`view`.
        """
        from peerlane.memory import tensors  # torch is imported only where a tensor is asked for

        return tensors.on(self, dtype, shape)

    def reading(self, dtype: npt.DTypeLike = "uint8", shape: int | Sequence[int] | None = None) -> Declared:
        """Return a block in which the host may read all of the bytes: ``with buffer.reading() as array``.

        :meth:`view` tells a checker of each access by itself, as long as NumPy makes it. Say it with this block where
        other code has the memory: torch, Cython, a C library. The block is an access from its beginning to its end.

        Parameters
        ----------
        dtype, shape
            As for :meth:`view`.

        Returns
        -------
        context manager
            It gives a plain NumPy array that cannot be written.

        Raises
        ------
        InvalidValue, Unsupported, TypeError, Closed
            As for :meth:`view`.
        """
        array = self._array("Buffer.reading", dtype, shape)
        array.flags.writeable = False
        return Declared(self, array, event_log.READ)

    def writing(self, dtype: npt.DTypeLike = "uint8", shape: int | Sequence[int] | None = None) -> Declared:
        """Return a block in which the host may write and read all of the bytes: ``with buffer.writing() as array``.

        It is as :meth:`reading`, and gives a plain NumPy array that can be written.

        Raises
        ------
        AccessDenied
            ``READ_ONLY``: the memory is read-only.
        InvalidValue, Unsupported, TypeError, Closed
            As for :meth:`view`.
        """
        self.writable_address  # noqa: B018 - raises
        return Declared(self, self._array("Buffer.writing", dtype, shape), event_log.WRITTEN)

    def _array(self, call: str, dtype: npt.DTypeLike, shape: int | Sequence[int] | None) -> npt.NDArray[Any]:
        """Return a plain array on the bytes."""
        import numpy as np

        try:
            element = np.dtype(dtype)
        except TypeError:
            element = dtypes.extension(call, dtype)
        if element.hasobject or element.itemsize == 0:
            raise InvalidValue(
                f"{call}: {element} is not a type of plain bytes",
                call=call,
                detail=BadArgument("dtype", str(element), rule="a type of plain bytes"),
            )
        if self.size % element.itemsize:
            raise InvalidValue(
                f"{call}: {self.size:,} bytes are not a whole number of {element} ({element.itemsize} bytes "
                f"each); {self.size % element.itemsize} are left over, slice the buffer first",
                call=call,
                detail=Refused(reason="no_whole_elements", size=self.size, width=element.itemsize),
            )
        flat: npt.NDArray[Any] = np.frombuffer(self._bytes(), dtype=element)
        if live_objects.active:
            live_objects.viewed(flat, self)
        if shape is None:
            return flat
        try:
            return flat.reshape(shape)
        except ValueError:
            raise InvalidValue(
                f"{call}: shape {shape} does not hold {flat.size:,} elements of {element} "
                f"({self.size:,} bytes); take a shape of as many, or slice the buffer first",
                call=call,
                detail=Refused(
                    reason="wrong_shape",
                    shape=shape,
                    elements=flat.size,
                    width=element.itemsize,
                    size=self.size,
                ),
            ) from None

    def route_to(self, dst: Buffer) -> Route:
        """Return the route of a copy from here to ``dst``, with the reason.

        The route depends on the devices that have the bytes: in an address range, those of the blocks mapped there.
        If any two blocks of the two ends need staging, the whole copy is staged.

        Raises
        ------
        InvalidValue
            ``WRONG_DEVICE``: ``dst`` belongs to another node.
        Closed, BadAddress
            As for the copy: an end is closed, or no memory is mapped there.
        """
        if not isinstance(dst, Buffer):
            raise TypeError(f"Buffer.route_to: the destination must be a Buffer, not {type(dst).__name__}")
        if dst._is_elsewhere:
            return dst.route_to(self)
        if not isinstance(self.device, DeviceBase) or not isinstance(dst.device, DeviceBase):
            return Route("host", "one end is host memory")
        mine, other = self.device.backend, dst.device.backend
        if mine.name != other.name:
            self.address, dst.address  # noqa: B018 - raises if it is closed
            text = f"between back-ends {mine.name} and {other.name} bytes go through the host"
            return Route("staged", text)
        checked_peer(self.device, dst.device, "Buffer.route_to")
        return self._route_within(dst)

    def _route_within(self, dst: Buffer) -> Route:
        """Return the route of a copy to a buffer of the same back-end."""
        self.address, dst.address  # noqa: B018 - as above
        return route_between(self.device, dst.device)

    @owed
    def _bytes(self) -> memoryview:
        """Return a host view of the bytes; the view keeps them alive."""

    @owed
    def _part(self, first: int, nbytes: int) -> Buffer:
        """Return a buffer of ``nbytes`` of the bytes."""

    def __getitem__(self, index: slice) -> Buffer:
        """Return a part, ``buffer[start:stop]``, without a copy; a slice beyond the end raises InvalidValue."""
        first, last = checked_part("Buffer", index, self.size, self.device)
        self.address  # noqa: B018 - raises if it is closed
        return self._part(first, last - first)

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        view = self._bytes()
        if event_log.active:
            _log_host_access(event_log.READ, view)
        return view.tobytes()

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Buffer:
        self.address  # noqa: B018 - raises if it is closed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return (1, 0), the CPU: for the host, memory of a virtual device is CPU memory."""
        return _DLPACK_CPU

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the bytes as a flat uint8 array in CPU memory, without a copy unless ``copy`` is True.

        Parameters
        ----------
        stream : None
            CPU memory has no stream.
        max_version : tuple of int, optional
            The newest version of DLPack that the caller reads.
        dl_device : tuple of int, optional
            (1, 0), or what :meth:`__dlpack_device__` returns.
        copy : bool, optional
            Whether to export a copy.

        Raises
        ------
        BufferError
            Another device or a stream is wanted, or the memory is read-only and ``max_version`` is below (1, 0),
            which has no read-only tensors.
        Closed
            The buffer is closed.
        """
        if stream is not None or (dl_device is not None and tuple(dl_device) != _DLPACK_CPU):
            raise BufferError(
                f"Buffer.__dlpack__: stream is {stream!r} and dl_device {dl_device!r}; valid are None, and None or "
                f"{_DLPACK_CPU}, for this is CPU memory to the host"
            )
        if event_log.active:
            event_log.alias(self)
        array = self._array("Buffer.__dlpack__", "uint8", None)
        if _numpy_knows_versions():
            return array.__dlpack__(max_version=max_version, copy=copy)
        return (array.copy() if copy else array).__dlpack__()

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else ""
        return f"<Buffer {self.size:,} bytes at {self.last_address:#x} on {self.device.name}{state}>"


class Declared:
    """An access of the host to a buffer that the program declares, from the beginning of a block to its end."""

    __slots__ = ("_access", "_array", "_buffer")

    def __init__(self, buffer: Buffer, array: npt.NDArray[Any], access: int) -> None:
        self._buffer, self._array, self._access = buffer, array, access

    def __enter__(self) -> npt.NDArray[Any]:
        self._log()
        return self._array

    def __exit__(self, *_: object) -> None:
        if not self._buffer.is_closed:  # the block may hold memory longer than the buffer
            self._log()

    def _log(self) -> None:
        if event_log.active:
            _log_host_access(self._access, self._array)


def _log_host_access(access: int, array: npt.NDArray[Any] | memoryview) -> None:
    """Log an access of the host to all bytes of an array without gaps."""
    address, nbytes, _ = host.buffer_of(array) or (0, 0, True)
    if nbytes:
        event_log.host_access(access, address, nbytes)


def route_between(a: Any, b: Any, is_for_peers: bool = True) -> Route:
    """Return the route between two devices of a back-end; ``is_for_peers``: both ends have ``peer=True``."""
    if a is b:
        return Route("local", f"both ends are on {a.name}")
    backend = a.backend
    if b.ordinal not in backend.peers(a.ordinal) and a.ordinal not in backend.peers(b.ordinal):
        hint = a.why_not(b) or f"enable it with {a.name}.peers.add({b.name})"
        return Route("staged", f"no peer access between {a.name} and {b.name}: {hint}")
    if a.info.routes_peer_memory_only and not is_for_peers:
        return Route("staged", "this profile routes only memory allocated with peer=True")
    return Route("peer", f"peer access between {a.name} and {b.name} is enabled")


def checked_part(what: str, index: object, size: int, device: Any) -> tuple[int, int]:
    """Return the first byte of a slice and the one after its last; refuse a slice that leaves the buffer."""
    if not isinstance(index, slice):
        raise TypeError(
            f"{what}: take a part with [start:stop], not with {type(index).__name__}; one element is view(dtype)[i]"
        )
    if index.step not in (None, 1):
        raise InvalidValue(
            f"{what}: a part must be contiguous; step is {index.step}; slice a view instead: view(dtype)[::step]",
            call=f"{what}[]",
            detail=BadArgument("step", index.step, choices=(None, 1)),
        )
    start = 0 if index.start is None else operator.index(index.start)
    stop = size if index.stop is None else operator.index(index.stop)
    first = start + size if start < 0 else start
    last = stop + size if stop < 0 else stop
    if not 0 <= first <= last <= size:
        raise BadAddress(
            f"part [{start}:{stop}] is not inside the {what.lower()}'s {size:,} bytes"
            + (f": it ends {last - size:,} bytes beyond" if last > size else ""),
            fault=Fault.OUT_OF_BOUNDS,
            call=f"{what}[]",
            device=device.name,
            detail=Refused(reason="outside", start=start, stop=stop, size=size),
        )
    return first, last


def as_buffer(obj: BufferLike) -> Buffer:
    """Return a Buffer on the bytes of a host object, without a copy.

    Parameters
    ----------
    obj : object
        A Buffer (returned as it is); else an exporter of the buffer protocol (bytes, bytearray, memoryview, array,
        NumPy array, any ctypes object); else a tensor in host memory of a library that exports DLPack (PyTorch, JAX,
        ...).  It must be contiguous.  The result keeps it alive.  Its element type does not matter: the bytes are
        taken as they are, also those of bfloat16, float8, packed float4, wide characters, bit fields or C pointers
        (device addresses, for example).

    Raises
    ------
    TypeError
        The object is of another kind, holds references to Python objects, or is a tensor on a device.
    InvalidValue
        The memory is not contiguous (the text says what to call first), or the object does not export it: a closed
        mmap, a sparse tensor, a tensor that requires grad (write ``parameter.detach()``).

    Notes
    -----
    A file that is mapped for reading makes a read-only Buffer (``AccessDenied``, ``READ_ONLY``, as a destination).
    If a file is truncated while it is mapped, a copy that touches the missing pages raises ``BadAddress``
    (``HOST_FAULT``).

    Examples
    --------
    >>> array = np.zeros(4, np.uint8)
    >>> pl.fill(pl.as_buffer(array)[:2], 7)
    >>> array
    array([7, 7, 0, 0], dtype=uint8)
    """
    if isinstance(obj, Buffer):
        return obj
    kept, address, size, read_only = host_objects.bytes_of(obj)
    buffer: Buffer = _native.wrap(kept, address, size, read_only)
    return buffer


@functools.cache
def _numpy_knows_versions() -> bool:
    import numpy as np

    return np.lib.NumpyVersion(np.__version__) >= "2.1.0"
