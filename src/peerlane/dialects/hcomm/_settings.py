"""Settings from the environment, and from the configuration of a communicator (facts/hcomm 2.2, 2.8)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from peerlane.dialects.hcomm import _arguments as arguments
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._header import CONSTANTS, HcclCommConfig

_UNSET = 0xFFFFFFFF
_MIB = 1 << 20
_LARGEST_BUFFER = 1 << 32  # MB
#: Seconds: far fewer than the vendor's 1,836, because a lost rank is reported at once (facts/hcomm 1.4).
EXEC_TIMEOUT = 60
CONNECT_TIMEOUT = 120
_NOTIFIES = ("binary", "strict", "fifo")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one communicator."""

    name: str  #: Empty: the communicator chooses one
    buffer_bytes: int  #: of the HcclBuffer
    connect_timeout: float  #: Seconds
    exec_timeout: float | None  #: seconds; None is for ever
    notifies: str  #: the kind of its notifies, as a neutral group names it


def settings_of(config: HcclCommConfig | None) -> Settings:
    """Return the settings of a communicator: from its configuration, then the environment (facts/hcomm 2.8)."""
    megabytes = _environment("HCCL_BUFFSIZE", CONSTANTS["HCCL_COMM_DEFAULT_BUFFSIZE"], 1, _LARGEST_BUFFER)
    seconds = _environment("HCCL_EXEC_TIMEOUT", EXEC_TIMEOUT, 0, 2147483647)
    name = ""
    if config is not None:
        _refuse_other(config)
        megabytes = _chosen(config, "hcclBufferSize", megabytes, least=1)
        seconds = _chosen(config, "hcclExecTimeOut", seconds, least=0)
        name = _name_in(config)
    return Settings(name, 2 * megabytes * _MIB, connect_timeout(), seconds or None, notifies_kind())


def exec_timeout() -> float | None:
    """Return the seconds that an operation without a communicator may take."""
    return _environment("HCCL_EXEC_TIMEOUT", EXEC_TIMEOUT, 0, 2147483647) or None


def connect_timeout() -> float:
    """Return the seconds in which the other end of a channel must come."""
    return _environment("HCCL_CONNECT_TIMEOUT", CONNECT_TIMEOUT, 1, 7200)


def notifies_kind() -> str:
    """Return the kind of notifies: PEERLANE_HCOMM_NOTIFIES, by default binary (facts/hcomm 3.8 to 3.10)."""
    kind = os.environ.get("PEERLANE_HCOMM_NOTIFIES") or _NOTIFIES[0]
    if kind not in _NOTIFIES:
        raise PARA.refusal(
            f"PEERLANE_HCOMM_NOTIFIES is {kind!r}; valid are {', '.join(_NOTIFIES)}",
            "leave it out: binary is what hardware has",
        )
    return kind


def _environment(name: str, default: int, least: int, most: int) -> int:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise PARA.refusal(f"{name} is {text[:40]!r}; valid are {least} to {most:,}", f"correct {name}")
    return int(text)


def _refuse_other(config: HcclCommConfig) -> None:
    """Refuse a configuration of another version: its fields would mean something else."""
    known = {
        "magicWord": CONSTANTS["HCCL_COMM_CONFIG_MAGIC_WORD"],
        "version": CONSTANTS["HCCL_COMM_CONFIG_VERSION"],
        "size": HcclCommConfig().size,
    }
    for name, wanted in known.items():
        value = getattr(config, name)
        if value != wanted:
            raise PARA.refusal(
                f"{name} of the HcclCommConfig is {str(value)[:40]!r}, not {wanted} ({wanted:#x})",
                "fill it with HcclCommConfigInit",
            )


def _chosen(config: HcclCommConfig, name: str, default: int, *, least: int) -> int:
    value = arguments.field(config, name)
    if value == _UNSET:
        return default
    if value < least:
        raise PARA.refusal(f"{name} is {value}; the least is {least}", f"correct {name}, or leave it unset")
    return value


def _name_in(config: HcclCommConfig) -> str:
    field: object = config.hcclCommName
    name = field.partition(b"\0")[0].decode(errors="surrogateescape") if isinstance(field, bytes) else field
    most = CONSTANTS["COMM_NAME_MAX_LENGTH"] - 1
    if not isinstance(name, str) or len(name.encode(errors="replace")) > most or "\0" in name:
        raise PARA.refusal(
            f"hcclCommName is {str(field)[:40]!r}; valid are up to {most} bytes of text",
            "choose another name",
        )
    return name


@dataclass
class Chosen:
    """Settings that calls of this process have set."""

    #: Seconds of a wait ``WithDefaultTimeout``; None is for ever; negative is HCCL_EXEC_TIMEOUT.
    notify_wait: float | None = -1.0
    deterministic: int = 0  #: the value that HcclSetConfig set

    def forget(self) -> None:
        """Take the settings of a new process."""
        self.notify_wait, self.deterministic = -1.0, 0


chosen = Chosen()


def notify_timeout() -> float | None:
    """Return the seconds of a wait ``WithDefaultTimeout``, None for ever."""
    seconds = chosen.notify_wait
    return exec_timeout() if seconds is not None and seconds < 0 else seconds


def whole_seconds(value: float) -> float | None:
    """Return whole seconds, None for ever: HCCL_E_PARA for others (facts/hcomm 1.4)."""
    if not math.isfinite(value) or value < 0 or value != int(value) or value > 2147483647:
        raise PARA.refusal(
            f"the timeout is {value}; valid are whole seconds from 0", "pass whole seconds, 0 for ever"
        )
    return value or None
