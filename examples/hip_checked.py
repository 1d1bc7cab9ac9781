"""``hip_check``, as programs for hip-python have it, and what else the examples beside it share."""

import contextlib

from hip import hip


class HipError(Exception):
    """A call did not return hipSuccess, or bytes differ."""


def hip_check(result):
    """Return the outputs of a call: one alone, several as a tuple, None without."""
    error, *outputs = result
    if error != hip.hipError_t.hipSuccess:
        raise HipError(f"{error.name} ({int(error)}): {hip.hipGetErrorString(error)[1]}")
    return outputs[0] if len(outputs) == 1 else tuple(outputs) or None


@contextlib.contextmanager
def created(result, undo, *args):
    """Have what a call made; ``undo(it, *args)`` at the end."""
    handle = hip_check(result)
    try:
        yield handle
    finally:
        hip_check(undo(handle, *args))


def upload(pointer, data):
    """Copy an array to device memory."""
    hip_check(hip.hipMemcpy(pointer, data, data.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice))


def download(pointer, array):
    """Fill an array from device memory, and return it."""
    hip_check(hip.hipMemcpy(array, pointer, array.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
    return array


def equal(content, expected, what):
    """Raise unless two arrays hold the same bytes."""
    wrong = (content != expected).sum()
    if wrong:
        raise HipError(f"{what}: {wrong} of {content.size} elements differ")
