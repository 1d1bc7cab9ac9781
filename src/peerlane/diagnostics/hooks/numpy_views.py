"""Arrays that log which bytes of a block the host reads and writes.

Such an array behaves as the plain one does.  NumPy calls its methods for indexing, operators, functions and methods;
each logs the exact bytes first.  Views of it log too; results that do not share its memory are plain arrays.

What NumPy and other libraries do without such a call stays unseen: ``numpy.array(view)`` copies the bytes, and
``numpy.asarray(view)`` gives a plain array.  What lends the memory by a call (``memoryview(view)``, ``view.ctypes``,
``view.view(numpy.ndarray)``) is logged, and so is a view that the program's source passes to ``numpy.asarray``.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from peerlane import _core
from peerlane.diagnostics.hooks import polls
from peerlane.diagnostics.log.event_log import READ, UNKNOWN, WRITTEN

Array: TypeAlias = "np.ndarray[Any, Any]"
Row: TypeAlias = tuple[int, int, int, int]  # address, bytes, distance of the rows, number of rows

_MOST_ROWS = 4096  # of one event; beyond, the whole interval is logged as unknown

_Base: Any = _core.host_view_type(np.ndarray)


class CheckedView(_Base):  # type: ignore[misc]  # mypy does not know the class, which is created at run time
    """A NumPy array on a block's bytes that logs what the program reads and writes."""

    __slots__ = ()

    def _get(self, key: Any) -> Any:
        """Return what the key picks; native code serves keys of numbers alone."""
        plain = _plain(self)
        if not _shares(self):
            return plain[key]
        key = _stripped(key)
        if not _makes_view(key):
            _log_rows(READ, _picked(plain, key))
            return _like(plain[key], [self])
        part = plain[_as_view(key)]
        if part.ndim or _has_ellipsis(key):
            return np.ndarray.view(part, CheckedView)
        if part.dtype.names is not None:  # the scalar refers to the bytes
            _lend(part)
            return part[()]
        self._know_elements(plain)
        if _core.is_poll():
            element = part[()]
            _core.log_host_look(_address(part), part.itemsize, element)
            return element
        _log(READ, part)
        return part[()]

    def _set(self, key: Any, value: Any) -> None:
        """Set what the key picks; native code serves keys of numbers alone."""
        plain = _plain(self)
        _log_each(READ, (key, value))
        key, value = _stripped(key), _stripped(value)
        if _shares(self):
            if _makes_view(key):
                _log(WRITTEN, plain[_as_view(key)])
                self._know_elements(plain)
            else:
                _log_rows(WRITTEN, _picked(plain, key))
        plain[key] = value

    def _know_elements(self, plain: Array) -> None:
        if plain.dtype.names is None and plain.ndim:
            self._know(_address(plain), plain.itemsize, plain.shape, plain.strides)

    def _interval(self) -> tuple[int, int]:
        """Return the address and the number of bytes that are lent: accesses to them are not seen."""
        return _interval(_rows(_plain(self))) if _shares(self) else (0, 0)

    def __setattr__(self, name: str, value: Any) -> None:
        self._know()  # another shape, type or distance of elements
        super().__setattr__(name, value)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outs = kwargs.get("out", ())
        chosen = kwargs.get("where", True)
        if method == "at":
            target, indices = inputs[0], _stripped(inputs[1])
            _log_picked(READ, target, indices)
            _log_picked(WRITTEN, target, indices)
            _log_each(READ, inputs[1:])
        else:
            for each in inputs:
                _log_picked(READ, each, chosen)
            for each in outs:
                _log_picked(WRITTEN, each, chosen)
        _log_each(READ, (chosen, kwargs.get("initial")))
        plain_outs = _stripped(outs)
        plain = _stripped(kwargs) | ({"out": plain_outs} if outs else {})
        result = getattr(ufunc, method)(*_stripped(inputs), **plain)
        return _result(result, outs, plain_outs, ())

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if func in _METHODS and args and isinstance(args[0], CheckedView):
            return super().__array_function__(func, types, args, kwargs)
        out = kwargs.get("out", ())
        outs = out if isinstance(out, tuple) else (out,)
        inputs: list[Any] = [args, {name: each for name, each in kwargs.items() if name != "out"}]
        if func in _WRITERS:
            first, *others = args or (kwargs.get("dst", kwargs.get("arr", kwargs.get("a"))),)
            _WRITERS[func](first, *others[:1], **kwargs)
            inputs = [others, {name: each for name, each in kwargs.items() if each is not first}]
        if func not in _VIEWS and func not in _FACTS:
            _log_each(READ, inputs)
        _log_each(WRITTEN, outs)
        plain_outs = _stripped(outs)
        plain = _stripped(kwargs)
        if "out" in kwargs:
            plain["out"] = plain_outs if isinstance(out, tuple) else plain_outs[0]
        result = func(*_stripped(tuple(args)), **plain)
        views = _views_in(inputs)
        if func in _VIEWS and not all(_shares_with(each, views) for each in _arrays(result)):
            _log_each(READ, inputs)  # it copied
        return _result(result, outs, plain_outs, views)

    def reshape(self, *shape: Any, **kwargs: Any) -> Any:
        return self._viewed_or_copied(np.ndarray.reshape, shape, kwargs)

    def ravel(self, *order: Any, **kwargs: Any) -> Any:
        return self._viewed_or_copied(np.ndarray.ravel, order, kwargs)

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        return self._viewed_or_copied(np.ndarray.astype, args, kwargs)

    def _viewed_or_copied(self, real: Any, args: Any, kwargs: Any) -> Any:
        plain = _plain(self)
        result = real(plain, *args, **kwargs)
        if result is plain:
            return self
        if not _shares_with(result, [self]):
            _log(READ, self)
        return _like(result, [self])

    def view(self, *args: Any, **kwargs: Any) -> Any:
        view = super().view(*args, **kwargs)
        if not isinstance(view, CheckedView):
            _lend(self, view)
        return view

    def take(self, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "raise") -> Any:
        picked = _stripped(indices)
        if mode == "raise" and axis is None and _plain(self).flags.c_contiguous:
            _log_picked(READ, self.reshape(-1), (np.asarray(picked),))
        elif mode == "raise" and axis is not None:
            _log_picked(READ, self, (slice(None),) * (axis % max(self.ndim, 1)) + (np.asarray(picked),))
        else:
            _log(READ, self)
        _log_each(READ, (indices,))
        _log_each(WRITTEN, (out,))
        elements = _plain(self).take(picked, axis, _stripped(out), mode)
        return elements if out is None else out

    def put(self, indices: Any, values: Any, mode: Any = "raise") -> None:
        plain, picked = _plain(self), _stripped(indices)
        if mode == "raise" and plain.flags.c_contiguous:
            _log_picked(WRITTEN, self.reshape(-1), (np.asarray(picked),))
        else:
            _log(UNKNOWN, self)
        _log_each(READ, (indices, values))
        plain.put(picked, _stripped(values), mode)

    def item(self, *args: Any) -> Any:
        plain = _plain(self)
        if args and plain.ndim == 1 and not isinstance(args[0], tuple):
            _log_picked(READ, self, args[0])
        elif args and isinstance(key := args if len(args) > 1 else args[0], tuple):
            _log_picked(READ, self, key)
        elif args and plain.flags.c_contiguous:
            _log_picked(READ, self.reshape(-1), args[0])
        else:
            _log(READ, self)
        return plain.item(*args)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        axes = [*args[:3], *(kwargs[name] for name in ("offset", "axis1", "axis2") if name in kwargs)]
        _log(READ, _plain(self).diagonal(*axes))
        return _plain(self).trace(*args, **kwargs)

    def setfield(self, value: Any, dtype: Any, offset: int = 0) -> None:
        _log(WRITTEN, _plain(self).getfield(dtype, offset))
        _log_each(READ, (value,))
        _plain(self).setfield(_stripped(value), dtype, offset)

    def byteswap(self, inplace: bool = False) -> Any:
        _log(READ, self)
        if inplace:
            _log(WRITTEN, self)
        swapped = _plain(self).byteswap(inplace)
        return self if inplace else swapped

    def __bytes__(self) -> bytes:
        _log(READ, self)
        return bytes(_plain(self))

    @property
    def flat(self) -> Any:
        _lend(self)
        return _plain(self).flat

    @flat.setter
    def flat(self, value: Any) -> None:
        _log(WRITTEN, self)
        _log_each(READ, (value,))
        _plain(self).flat = _stripped(value)

    @property
    def real(self) -> Any:
        return _like(_plain(self).real, [self])

    @real.setter
    def real(self, value: Any) -> None:
        _log(WRITTEN, _plain(self).real)
        _log_each(READ, (value,))
        _plain(self).real = _stripped(value)

    @property
    def imag(self) -> Any:
        return _like(_plain(self).imag, [self])

    @imag.setter
    def imag(self, value: Any) -> None:
        _log(WRITTEN, _plain(self).imag)
        _log_each(READ, (value,))
        _plain(self).imag = _stripped(value)


def _logging(name: str, *accesses: int) -> Callable[..., Any]:
    """Return a method of the array that first logs these accesses to all of it."""
    real = getattr(np.ndarray, name)

    def method(self: CheckedView, *args: Any, **kwargs: Any) -> Any:
        for access in accesses:
            _log_picked(access, self, kwargs.get("where", True))
        out = kwargs.get("out")
        _log_each(READ, (args, {name: each for name, each in kwargs.items() if name != "out"}))
        _log_each(WRITTEN, (out,))
        result = real(_plain(self), *_stripped(args), **_stripped(kwargs))
        return result if out is None else out

    method.__name__, method.__doc__ = name, real.__doc__
    return method


def _lending_method(name: str) -> Callable[..., Any]:
    """Return a method of the array that returns what reaches the memory unseen."""
    real = getattr(np.ndarray, name)

    def method(self: CheckedView, *args: Any, **kwargs: Any) -> Any:
        result = real(_plain(self), *args, **kwargs)
        _lend(self, result)
        return result

    method.__name__, method.__doc__ = name, real.__doc__
    return method


def _lending(name: str) -> property:
    """Return a property of the array through which the memory can be reached unseen."""
    real = getattr(np.ndarray, name)

    def get(self: CheckedView) -> Any:
        _lend(self)
        return real.__get__(_plain(self))

    return property(get, doc=real.__doc__)


_READING = """
    all any argmax argmin argpartition argsort choose clip compress conj conjugate copy cumprod cumsum dot dump dumps
    flatten max mean min nonzero prod ptp repeat round searchsorted std sum tobytes tofile tolist tostring var
    __bool__ __complex__ __contains__ __copy__ __deepcopy__ __float__ __format__ __index__ __int__ __reduce__
    __reduce_ex__ __repr__ __str__
"""
for _name in _READING.split():
    if hasattr(np.ndarray, _name):
        setattr(CheckedView, _name, _logging(_name, READ))
for _name in ("sort", "partition"):
    setattr(CheckedView, _name, _logging(_name, READ, WRITTEN))
CheckedView.fill = _logging("fill", WRITTEN)
for _name in ("__array__", "__dlpack__"):
    setattr(CheckedView, _name, _lending_method(_name))
for _name in ("ctypes", "data", "__array_interface__", "__array_struct__"):
    setattr(CheckedView, _name, _lending(_name))


def _log_copyto(target: Any, _source: Any = None, *_: Any, where: Any = True, **__: Any) -> None:
    _log_picked(WRITTEN, target, where)


def _log_masked(target: Any, chosen: Any = None, *_: Any, mask: Any = None, **__: Any) -> None:
    _log_picked(WRITTEN, target, chosen if mask is None else mask)


def _log_unknown(target: Any, *_: Any, **__: Any) -> None:
    _log_each(UNKNOWN, (target,))


def _log_nan_to_num(target: Any, copy: Any = True, **_: Any) -> None:
    _log_each(READ, (target,))
    if not copy:
        _log_each(WRITTEN, (target,))


#: Functions that write their first argument, and what logs that.
_WRITERS: dict[Callable[..., Any], Callable[..., None]] = {
    np.copyto: _log_copyto,
    np.place: _log_masked,
    np.putmask: _log_masked,
    np.put_along_axis: _log_unknown,
    np.fill_diagonal: _log_unknown,
    np.nan_to_num: _log_nan_to_num,
}


def _functions(names: str) -> frozenset[Any]:
    return frozenset(
        getattr(home, name.rpartition(".")[2])
        for name in names.split()
        for home in [np.lib.stride_tricks if name.startswith("lib.") else np]
        if hasattr(home, name.rpartition(".")[2])
    )


#: Functions that call the method of that name, which logs.
_METHODS = _functions("put take trace")
#: Functions whose results are views, or copies where no view is possible.
_VIEWS = _functions("""
    array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diag diagonal dsplit expand_dims flip
    fliplr flipud hsplit imag lib.as_strided lib.sliding_window_view matrix_transpose moveaxis permute_dims ravel real
    reshape rollaxis rot90 split squeeze swapaxes transpose unstack vsplit
""")
#: Functions that look at no byte.
_FACTS = _functions("""
    can_cast common_type empty_like full_like iscomplexobj isrealobj may_share_memory min_scalar_type ndim ones_like
    result_type shape shares_memory size zeros_like
""")


def _plain(array: Any) -> Any:
    return np.ndarray.view(array, np.ndarray)


def _root(array: Any) -> Any:
    """Return what lends an array its memory; None if an array of its own has it."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array


def _shares(array: Any) -> bool:
    return _root(array) is not None


def _shares_with(array: Any, views: Sequence[CheckedView]) -> bool:
    root = _root(array) if isinstance(array, np.ndarray) else None
    return root is not None and any(root is _root(each) for each in views)


def _like(result: Any, views: Sequence[CheckedView]) -> Any:
    """Return a result, as a view that logs if it shares memory with one."""
    return np.ndarray.view(result, CheckedView) if _shares_with(result, views) else result


def _result(result: Any, outs: Sequence[Any], plain_outs: Sequence[Any], views: Sequence[CheckedView]) -> Any:
    if type(result) in (tuple, list):
        return type(result)(_result(each, outs, plain_outs, views) for each in result)
    for out, plain in zip(outs, plain_outs, strict=True):
        if result is plain:
            return out
    return _like(result, views)


def _views_in(what: Any) -> list[CheckedView]:
    if isinstance(what, CheckedView):
        return [what]
    if type(what) is dict:
        what = list(what.values())
    return [view for each in what for view in _views_in(each)] if type(what) in (tuple, list) else []


def _arrays(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [array for each in result for array in _arrays(each)]
    return [result] if isinstance(result, np.ndarray) else []


def _stripped(what: Any) -> Any:
    """Return arguments with plain arrays for views that log."""
    if isinstance(what, CheckedView):
        return _plain(what)
    if type(what) in (tuple, list):
        return type(what)(map(_stripped, what))
    if type(what) is dict:
        return {key: _stripped(each) for key, each in what.items()}
    return what


def _log_each(access: int, what: Any) -> None:
    """Log an access to each view among some arguments."""
    for view in _views_in(what):
        _log(access, view)


def _log_picked(access: int, what: Any, key: Any) -> None:
    """Log an access to the elements of a view that a key or a mask picks; True picks all."""
    if not isinstance(what, CheckedView):
        return
    if key is True:
        _log(access, what)
    elif _shares(what):
        plain, key = _plain(what), _stripped(key)
        if _makes_view(key):
            _log(access, plain[_as_view(key)])
            return
        if not isinstance(key, tuple) and (mask := np.asarray(key)).dtype == np.bool_:
            if mask.shape != plain.shape and np.broadcast_shapes(mask.shape, plain.shape) != plain.shape:
                _log(UNKNOWN, plain)
                return
            key = np.broadcast_to(mask, plain.shape)
        _log_rows(access, _picked(plain, key))


def _log(access: int, array: Array) -> None:
    """Log an access to all bytes of an array."""
    if _shares(array):
        _log_rows(access, _rows(_plain(array)))


def _log_rows(access: int, rows: list[Row]) -> None:
    if len(rows) == 1:
        _core.log_host_access(access, *rows[0])
    elif len(rows) > _MOST_ROWS:
        _core.log_host_access(UNKNOWN, *_interval(rows))
    elif rows:
        _core.log_host_rows(access, rows)


def _interval(rows: list[Row]) -> tuple[int, int]:
    """Return the address and the number of bytes of the interval that all rows lie in."""
    first = min((address for address, *_ in rows), default=0)
    end = max((address + pitch * (height - 1) + width for address, width, pitch, height in rows), default=0)
    return first, end - first


def checked(array: Array) -> CheckedView:
    """Return an array on the same bytes that logs what the program reads and writes."""
    view: CheckedView = np.ndarray.view(array, CheckedView)  # type: ignore[assignment]
    if polls.makes_plain_array():
        _lend(view, array)
    return view


def _lend(array: Array, taker: Any = None) -> None:
    """Log that the bytes of an array can be accessed unseen, for ever or while ``taker`` and its views live."""
    address, size = _interval(_rows(_plain(array))) if _shares(array) else (0, 0)
    if not size:
        return
    _core.log_alias(address, size)
    if isinstance(taker, np.ndarray):
        while isinstance(taker.base, np.ndarray):  # all arrays that come of it keep this one
            taker = taker.base
        weakref.finalize(taker, _core.log_alias, address, size, True).atexit = False


def _address(plain: Array) -> int:
    return int(plain.__array_interface__["data"][0])


def _rows(plain: Array) -> list[Row]:
    """Return the bytes of an array as few rows; one more than there may be if they are too many."""
    if plain.size == 0:
        return []
    address, width, pitch, height = _address(plain), plain.itemsize, 0, 1
    axes = []
    for count, stride in zip(plain.shape, plain.strides, strict=True):
        if count > 1 and stride:
            address += min(0, stride * (count - 1))
            axes.append((abs(stride), count))
    starts = [0]
    for stride, count in sorted(axes):
        if height == 1 and stride <= width:
            width += stride * (count - 1)
        elif height == 1:
            pitch, height = stride, count
        elif stride % pitch == 0 and stride <= pitch * height:
            height += stride // pitch * (count - 1)
        elif len(starts) * count <= _MOST_ROWS:
            starts = [start + stride * each for each in range(count) for start in starts]
        else:  # the first, the last, and as many between them as are too many
            starts += [max(starts) + stride * (count - 1)] * (_MOST_ROWS + 1)
    return [(address + start, width, pitch, height) for start in starts]


def _is_number(part: Any) -> bool:
    return isinstance(part, (int, np.integer)) and not isinstance(part, bool)


def _makes_view(key: Any) -> bool:
    """Tell whether a key picks a view, and not a copy of elements."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None or part is Ellipsis or isinstance(part, (slice, str)) or _is_number(part)
        for part in parts
    ) or (isinstance(key, list) and bool(key) and all(isinstance(each, str) for each in key))


def _has_ellipsis(key: Any) -> bool:
    return key is Ellipsis or (isinstance(key, tuple) and any(part is Ellipsis for part in key))


def _as_view(key: Any) -> Any:
    """Return a key for an array without axes where ``key`` would give a scalar."""
    if _has_ellipsis(key) or isinstance(key, (str, list)):
        return key
    return (*key, Ellipsis) if isinstance(key, tuple) else (key, Ellipsis)


def _picked(plain: Array, key: Any) -> list[Row]:
    """Return the bytes of the elements that a key with arrays or masks picks; none if NumPy will refuse it."""
    try:
        parts = _expanded(plain, key if isinstance(key, tuple) else (key,))
        offsets: Any = np.zeros(1, np.int64)
        for count, stride, part in zip(plain.shape, plain.strides, parts, strict=True):
            if not isinstance(part, slice):
                if part.size and not -count <= part.min() <= part.max() < count:
                    return []
                offsets = offsets + np.where(part < 0, part + count, part) * stride
        firsts = *(part if isinstance(part, slice) else 0 for part in parts), Ellipsis
        corner = plain[firsts]
    except (IndexError, ValueError, TypeError):
        return []
    return _moved(_rows(corner), np.unique(offsets))


def _expanded(plain: Array, parts: tuple[Any, ...]) -> list[Any]:
    """Return a slice or an array of numbers for each axis."""
    expanded: list[Any] = []
    rest = -1
    for part in parts:
        if part is None:
            continue
        if part is Ellipsis:
            rest = len(expanded)
        elif isinstance(part, slice):
            expanded.append(part)
        else:
            numbers = np.asarray(part)
            if numbers.dtype == np.bool_:
                expanded += numbers.nonzero() if numbers.ndim else ()
            elif numbers.size == 0:
                expanded.append(numbers.astype(np.int64))
            else:
                expanded.append(numbers.astype(np.int64, casting="same_kind"))
    rest = len(expanded) if rest < 0 else rest
    missing: list[Any] = [slice(None)] * (plain.ndim - len(expanded))
    return expanded[:rest] + missing + expanded[rest:]


def _moved(rows: list[Row], offsets: Any) -> list[Row]:
    """Return rows at each of these offsets, which are sorted; adjoining ones are merged."""
    if len(rows) != 1 or rows[0][3] != 1 or not len(offsets):
        most = _MOST_ROWS // max(1, len(rows)) + 1
        kept = offsets if len(offsets) <= most else [*offsets[:most], offsets[-1]]
        return [
            (address + int(offset), width, pitch, height)
            for offset in kept
            for address, width, pitch, height in rows
        ]
    address, width, _, _ = rows[0]
    breaks = np.flatnonzero(np.diff(offsets) > width) + 1
    starts = offsets[np.concatenate(([0], breaks))]
    widths = offsets[np.concatenate((breaks - 1, [len(offsets) - 1]))] + width - starts
    distances = np.diff(starts)
    if len(starts) > 2 and (widths == widths[0]).all() and (distances == distances[0]).all():
        return [(address + int(starts[0]), int(widths[0]), int(distances[0]), len(starts))]
    return [(address + int(start), int(wide), 0, 1) for start, wide in zip(starts, widths, strict=True)]
