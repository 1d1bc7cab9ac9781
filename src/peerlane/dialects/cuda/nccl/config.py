"""The structs in which a program asks for more than the arguments of a call say; the first field is their size."""

from __future__ import annotations

from peerlane.dialects.cuda.nccl.codes import invalid, misuse

_MAGIC = 0xCAFEBEEF
_UNSET = -(1 << 31)  # the value of a number that the program has not set
_NO_WAIT = 0


class _Sized:
    """A struct that begins with its size, so that older programs may pass a shorter one."""

    size = magic = version = 0


class Config(_Sized):
    """ncclConfig_t: what a program asks of a communicator; on virtual devices nothing depends on the other fields.

    Attributes
    ----------
    blocking : int
        Whether calls return when they are over.
    """

    blocking = _UNSET

    @property
    def is_blocking(self) -> bool:
        """Whether calls return when they are over."""
        return self.blocking != _NO_WAIT


class CollectiveConfig(_Sized):
    """ncclCollConfig_t: what a program asks of one collective.

    Attributes
    ----------
    launchCompletionEvent : int
    """

    launchCompletionEvent = 0


def refuse_raw(config: _Sized | None) -> None:
    """Refuse a struct that was not initialised; NULL has the defaults."""
    if config is not None and config.magic != _MAGIC:
        raise invalid(
            f"the config has magic {config.magic:#x}, and was not initialised",
            "begin it with NCCL_CONFIG_INITIALIZER or NCCL_COLL_CONFIG_INITIALIZER",
        )
    if isinstance(config, CollectiveConfig) and config.launchCompletionEvent:
        raise misuse(
            "launchCompletionEvent is set, and collectives of virtual devices have no launch",
            "record an event on the stream behind the collective",
        )
