"""``hip.hiprtc_pyext``: options of the run-time compiler's linker by keyword, which the vendor calls deprecated."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from typing import Any

from peerlane.dialects.hip import hiprtc
from peerlane.dialects.hip.binding.types import ListOfBytes, ListOfPointer, Pointer

__all__ = ["HiprtcLinkCreateOpts", "hiprtcLinkCreate2"]

_OLD, _NEW = "HIPRTC_JIT_", "hipJitOption"
# Older names differ from the newer ones in their underscores only, but for these.
_RENAMED = {
    "targetfromhipcontext": "targetfromcontext",
    "newsm3xopt": "sm3xopt",
    "globalsymboladdress": "globalsymboladdresses",
    "overridedirectvalues": "overridedirectivevalues",
}


def _unsigned(value: Any) -> int:
    return ctypes.c_uint(value).value


def _signed(value: Any) -> int:
    return ctypes.c_int(value).value


def _truth(value: Any) -> int:
    return int(ctypes.c_bool(value).value)


# How the value of each option is passed, by the option's name behind the prefix.
_KINDS: dict[str, Callable[[Any], object]] = {
    **dict.fromkeys(("Sm3xOpt", "FastCompile"), _truth),
    **dict.fromkeys(
        (
            *("MaxRegisters", "ThreadsPerBlock", "OptimizationLevel", "TargetFromContext", "Target"),
            *("FallbackStrategy", "CacheMode", "GlobalSymbolCount"),
        ),
        _unsigned,
    ),
    **dict.fromkeys(
        (
            *("GenerateDebugInfo", "GenerateLineInfo", "Lto", "Ftz", "PrecDiv", "PrecSqrt", "Fma"),
            *("PositionIndependentCode", "MinCTAPerSM", "MaxThreadsPerBlock", "OverrideDirectiveValues"),
        ),
        _signed,
    ),
    **dict.fromkeys(
        (
            *("InfoLogBufferSizeBytes", "ErrorLogBufferSizeBytes", "LogVerbose"),
            *("IRtoISAOptCountExt", "WallTime"),
        ),
        ctypes.c_void_p,
    ),
    "GlobalSymbolAddresses": ListOfPointer,
    **dict.fromkeys(("GlobalSymbolNames", "IRtoISAOptExt"), ListOfBytes),
    **dict.fromkeys(("InfoLogBuffer", "ErrorLogBuffer"), Pointer),
}
_BY_LOWER = {name.lower(): name for name in _KINDS}


class HiprtcLinkCreateOpts:
    """The arguments of hiprtcLinkCreate, from keywords; ``*`` unpacks them.

    Parameters
    ----------
    **kwargs : object
        Values by the names of options: ``hipJitOptionLto`` or, as before ROCm 6.4, ``HIPRTC_JIT_LTO``.

    Attributes
    ----------
    num_opts : int
    keys, values : list or None
        Members of hipJitOption with their values; None without options.

    Raises
    ------
    AttributeError, KeyError
        There is no option of that name: of the newer names, of the older ones.
    NotImplementedError
        The option has no value.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.num_opts = len(kwargs)
        self.keys: list[Any] | None = [_option(name) for name in kwargs] or None
        self.values: list[Any] | None = [
            _passed(name, key, value)
            for (name, value), key in zip(kwargs.items(), self.keys or (), strict=True)
        ] or None

    def __len__(self) -> int:
        return 3

    def __getitem__(self, item: Any) -> Any:
        """Return an argument: the number of options, their keys, their values."""
        if not isinstance(item, int):
            raise ValueError(f"the arguments are indexed by an int, not by {type(item).__name__}")
        if not 0 <= item < len(self):
            raise IndexError(f"argument {item} of {len(self)}")
        return (self.num_opts, self.keys, self.values)[item]


def _option(name: str) -> Any:
    if not name.startswith(_OLD):
        return getattr(hiprtc.hipJitOption, name)
    short = name.removeprefix(_OLD).replace("_", "").lower()
    known = _BY_LOWER.get(_RENAMED.get(short, short))
    if known is None:
        raise KeyError(name)
    return hiprtc.hipJitOption[_NEW + known]


def _passed(name: str, key: Any, value: Any) -> object:
    kind = _KINDS.get(key.name.removeprefix(_NEW))
    if kind is None:
        raise NotImplementedError(f"{name} has no value that is passed")
    return kind(value)


def hiprtcLinkCreate2(**kwargs: Any) -> Any:
    """Call hiprtcLinkCreate with options by keyword, see :class:`HiprtcLinkCreateOpts`."""
    warnings.warn(
        "hiprtcLinkCreate2 is deprecated by the vendor; call hiprtcLinkCreate",
        DeprecationWarning,
        stacklevel=2,
    )
    options = HiprtcLinkCreateOpts(**kwargs)
    return hiprtc.hiprtcLinkCreate(options.num_opts, options.keys, options.values)
