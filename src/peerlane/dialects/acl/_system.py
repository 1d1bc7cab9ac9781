"""``acl``: initialisation, versions and messages (facts/acl 2.1)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from peerlane.dialects._shared.call import Int32, Refusal, Text, UInt32
from peerlane.dialects.acl import _start_callbacks
from peerlane.dialects.acl._checks import one_of
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine, messages
from peerlane.errors import Error

_VERSION = (1, 17, 0)
_LARGEST_FILE = 10 << 20
_CANN = "9.0.0"
_PACKAGES = ("cann", "runtime")
_PACKAGE = one_of(
    "pkg_name", _PACKAGES, f"pass {' or '.join(_PACKAGES)}", code=Code.INVALID_PARAM, shown=repr
)
_ATTRIBUTE = one_of("cann_attr", (0, 1, 2), "pass 0, 1 or 2", code=Code.INVALID_PARAM)


@dataclass
class _Started:
    """How often acl was initialised, and its configuration."""

    references: int = 0
    was_finalized: bool = False
    config: dict[str, Any] | None = None


_started = _Started()


@acl.call("acl.init")
def init(config_path: Text = "") -> None:
    """Initialise, optionally with a JSON file (facts/acl 2.1).

    ``defaultDevice.default_device`` and ``err_msg_mode`` of the file have an effect; the other keys concern hardware.
    A second call without ``finalize`` adds a reference and returns 100002, which programs may ignore; the second call
    may leave out the file.  In a forked child of a process that used devices: 507033.

    Refuses: 100002 again; 100000 again, with another configuration file; 507033 in a forked child; 100003, 100005,
        100006, 100008 for the file; what a callback of `aclInitCallbackRegister` returned
    Basis: S, D; C for the file's codes
    """
    machine.check_fork()
    content = _read(config_path) if config_path else b""
    config = _parsed(config_path, content) if config_path else {}
    default = _default_device(config_path, config)
    with _start_callbacks.lock:
        with machine.lock:
            if _started.references and config_path and config != _started.config:
                raise Code.INVALID_PARAM.refusal(
                    f"acl was initialised with another configuration: {_started.config}, now {config}",
                    "call acl.finalize() before initialising with another file",
                )
            _started.references += bool(_started.references)
        if not _started.references:
            _start_callbacks.initialise(content)
            with machine.lock:
                _started.references = 1
                _started.config, _started.was_finalized = config, False
                machine.default_device = default
                messages.shared = str(config.get("err_msg_mode", "0")) == "1"
            return
    raise Code.REPEAT_INITIALIZE.refusal(
        f"acl is initialised already, now with {_started.references} references",
        "this may be ignored; one acl.finalize() ends all of them, acl.finalize_reference() one",
    )


@acl.call("acl.finalize")
def finalize() -> None:
    """End every initialisation at once; a second time 100037 (facts/acl 2.1).

    Devices, memory and peer access are left as they are.

    Refuses: 100037 the second time; 0 if there was no `init`; what a callback of `aclFinalizeCallbackRegister`
        returned
    Basis: S, X
    """
    with _start_callbacks.lock:
        if _started.was_finalized:
            raise _finalized()
        _start_callbacks.finalise()
        with machine.lock:
            _end()


@acl.call("acl.finalize_reference", out=1)
def finalize_reference() -> int:
    """End one initialisation and return how many are left (facts/acl 2.1).

    Gives: references left
    Refuses: 100037; what a callback of `aclFinalizeCallbackRegister` returned
    Basis: S
    """
    with _start_callbacks.lock:
        if _started.references < 1:
            raise _finalized()
        if _started.references == 1:
            _start_callbacks.finalise()
        with machine.lock:
            _started.references -= 1
            if not _started.references:
                _end()
            return _started.references


@acl.call("acl.get_version", out=3)
def get_version() -> tuple[int, int, int]:
    """Return the version of the interface that this dialect follows (facts/acl 0).

    Gives: 1, 17, 0
    Basis: S
    """
    return _VERSION


@acl.call(
    "acl.get_cann_version",
    out=1,
    blank=lambda _: (_cann_version(""),),
    checks=[one_of("package", (0, 1), "pass 0 (CANN) or 1 (runtime)", code=Code.INVALID_PARAM)],
)
def get_cann_version(package: UInt32) -> dict[str, str]:
    """Return the vendor's version whose calls this dialect follows: package 0 (CANN) and 1 (runtime) (facts/acl 2.1).

    Gives: dict: `version` 9.0.0, and its parts
    Refuses: 100000 other packages, which are not here
    Basis: S; C for the values and 100000
    """
    return _cann_version(_CANN)


def _cann_version(version: str) -> dict[str, str]:
    major, minor, release = version.split(".") if version else ("", "", "")
    return {
        "version": version,
        "major_version": major,
        "minor_version": minor,
        "release_version": release,
        "patch_version": "",
        "reserved": "",
    }


@acl.call("acl.get_version_str", out=1, blank=("",), checks=[_PACKAGE])
def get_version_str(pkg_name: Text) -> str:
    """Return the version of a package as a text: that of ``get_cann_version``, for "cann" and "runtime".

    Gives: `9.0.0`
    Refuses: 100000 other packages, which are not here
    Basis: S; C for the values and 100000
    """
    return _CANN


@acl.call("aclsysGetVersionNum", out=1, checks=[_PACKAGE])
def get_version_num(pkg_name: Text) -> int:
    """Return the version of ``get_version_str`` as one number: major * 10,000,000 + minor * 100,000 + ...

    Gives: 90000000
    Refuses: 100000 other packages, which are not here
    Basis: S; C for 100000
    """
    major, minor, release = map(int, _CANN.split("."))
    return major * 10_000_000 + minor * 100_000 + release * 1000


@acl.call("acl.get_cann_attribute_list", out=2, blank=lambda: ([], 0))
def get_cann_attribute_list() -> tuple[list[int], int]:
    """Return the features of computing, and their number: there are none (facts/acl 2.1).

    Gives: `[]`, 0
    Basis: S; C for the values
    """
    return [], 0


@acl.call("acl.get_cann_attribute", out=1, checks=[_ATTRIBUTE])
def get_cann_attribute(cann_attr: Int32) -> int:
    """Tell whether there is a feature: 0 INF/NAN, 1 BF16, 2 JIT_COMPILE; none (facts/acl 2.1).

    Gives: 0
    Refuses: 100000 others
    Basis: S; C for the values
    """
    return 0


@acl.value("acl.get_soc_name")
def get_soc_name() -> str | None:
    """Return the name of device 0, a bare str; None if there is no node (facts/acl 1, 2.1).

    Gives: bare str, None without a node
    Basis: S
    """
    try:
        return machine.device(0).info.name
    except Error:
        return None


@acl.value("acl.get_recent_err_msg")
def get_recent_err_msg() -> str | None:
    """Return this thread's messages, newest on top, and clear them; None without any (facts/acl 2.1).

    Gives: bare str, None if there is none
    Basis: D
    """
    return messages.take() or None


def begin_anew() -> None:
    """Reset ``acl`` to its state in a new process: not initialised, no device set, no messages."""
    _end()
    _start_callbacks.forget()
    _started.was_finalized = False
    machine.begin_anew()
    messages.forget()


def _end() -> None:
    _started.references, _started.was_finalized, _started.config = 0, True, None
    machine.default_device, messages.shared = None, False


def _finalized() -> Refusal:
    return Code.REPEAT_FINALIZE.refusal(
        "acl is not initialised: it was finalized already, or never initialised",
        "finalize once after acl.init",
    )


def _read(path: str) -> bytes:
    try:
        size = os.path.getsize(path)  # noqa: PTH202 - a str from outside, named as it was given
        if size <= _LARGEST_FILE:
            with open(path, "rb") as file:  # noqa: PTH123
                content = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise Code.INVALID_FILE.refusal(
            f"cannot read the configuration file {path!r}: {getattr(error, 'strerror', error)}",
            "pass a readable file",
        ) from None
    if size > _LARGEST_FILE:
        raise Code.INVALID_FILE_SIZE.refusal(
            f"the configuration file {path!r} has {size:,} bytes, more than {_LARGEST_FILE:,}",
            "pass the configuration of acl.init, not another file",
        )
    return content


def _parsed(path: str, content: bytes) -> dict[str, Any]:
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Code.PARSE_FILE.refusal(
            f"the configuration file {path!r} is not JSON: {error}", "correct it; {} is enough"
        ) from None
    if not isinstance(config, dict):
        raise Code.PARSE_FILE.refusal(
            f"the configuration file {path!r} holds a {type(config).__name__}, not an object",
            "correct it; {} is enough",
        )
    return config


def _default_device(path: str, config: dict[str, Any]) -> int | None:
    if "defaultDevice" not in config:
        return None
    section = config["defaultDevice"]
    value = section.get("default_device") if isinstance(section, dict) else section
    number = str(value)
    if number.isdecimal() and number.isascii() and int(number[:10]) < len(machine.visible()):
        return int(number)
    raise Code.FILE_ATTR_INVALID.refusal(
        f"defaultDevice.default_device in {path!r} is {value!r}; this node has devices 0 to "
        f"{len(machine.visible()) - 1}",
        'write it as {"defaultDevice": {"default_device": "0"}}',
    )
