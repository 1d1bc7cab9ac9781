"""``peerlane.predict``: a block whose operations are timed as on a real machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from peerlane.errors import BadArgument, InvalidValue
from peerlane.support.late import Late

if TYPE_CHECKING:
    from peerlane.prediction.result import Prediction

_recorded = Late(
    "peerlane.prediction.recorded"
)  # with what it imports; a program that predicts nothing needs none


def predict(profile: str, *, compute: float = 0.0) -> AbstractContextManager[Prediction]:
    """Predict how long the operations of a ``with`` block would take on a real machine.

    The operations run on the virtual devices as always.  Device ``i`` stands for device ``i`` of the machine.  When
    the block ends, the prediction has the time of each stream, the bytes and the busy time of each link, and a
    timeline.  Transfers that share a link get fair shares of it.  The host takes no time between its calls.

    Parameters
    ----------
    profile : str
        The machine: ``h100-8``, ``h200-8``, ``gb200-4``, ``mi300x``, ``rtx4090-2`` or ``ascend-a2``.
    compute : float
        Seconds that each callback takes on its stream, as a kernel would.

    Returns
    -------
    context manager
        Its ``with`` statement gives a :class:`Prediction`, which is filled when the block ends.

    Raises
    ------
    Unsupported
        Nobody has published rates for the links of that profile.
    InvalidValue
        ``compute`` is negative.
    Busy
        The process writes an event log already, as under ``peerlane check``; that log goes on.
    OSError
        There is no room for the log.

    Examples
    --------
    >>> a, b = pl.devices()[:2]
    >>> src, dst = a.allocate(64 << 20), b.allocate(64 << 20)
    >>> with pl.predict("h100-8") as prediction, b.create_stream() as stream:
    ...     pl.copy(dst, src, stream=stream)
    ...     stream.sync()
    >>> print(f"{prediction.seconds * 1e6:.0f} us, {prediction.bottleneck.name}")
    180 us, port of device 0, out
    """
    if not compute >= 0.0:
        raise InvalidValue(
            f"predict: compute is {compute!r}; valid: seconds of a callback, 0.0 or more",
            call="predict",
            detail=BadArgument("compute", compute, least=0.0),
        )
    recording: AbstractContextManager[Prediction] = _recorded.Recording(profile, compute)
    return recording
