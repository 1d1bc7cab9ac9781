"""``hip``: what a program says of the log while it runs."""

from __future__ import annotations

from peerlane.dialects.hip._log import log
from peerlane.dialects.hip._state import calls


@calls.call("hipExtSetLoggingParams")
def hipExtSetLoggingParams(log_level: int, log_size: int, log_mask: int) -> None:
    """Remember what hipExtEnableLogging begins: from level 1 on failures, from 3 on each call, if the mask has bit 0.

    ``log_size`` changes nothing, as the log goes to stderr.

    Basis: S; C for what the log says
    """
    log.choose(log_level, log_mask)


@calls.call("hipExtEnableLogging")
def hipExtEnableLogging() -> None:
    """Write to stderr from now on, in all threads, as hipExtSetLoggingParams said last; else nothing.

    Basis: S
    """
    log.begin()


@calls.call("hipExtDisableLogging")
def hipExtDisableLogging() -> None:
    """Write nothing to stderr from now on, whatever ``AMD_LOG_LEVEL`` says.

    Basis: S
    """
    log.end()
