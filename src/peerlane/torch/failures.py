"""What programs of torch catch: ``torch.distributed.DistBackendError``, with peerlane's text and error."""

from __future__ import annotations

import torch.distributed as dist

from peerlane.errors import Error, WaitTimeout


def converted(call: str, error: Error) -> dist.DistBackendError:
    """Return the error of torch for one of peerlane, which is its cause."""
    late = " : Timed out" if isinstance(error, WaitTimeout) else ""
    failure = dist.DistBackendError(f"peerlane:{call}{late} : {error}")
    failure.__cause__ = error
    return failure


def refused(text: str) -> dist.DistBackendError:
    """Return the error for tensors or options that a call cannot take."""
    return dist.DistBackendError(text)
