"""The calls of ``acl.rt``, raising where they return a code that is not 0.  The examples beside it import it.

``rt.malloc(64, 0)`` returns the pointer alone; a call with two outputs returns both, one without returns None.
"""

import contextlib

import acl

REPEAT_INITIALIZE = 100002


class AclError(Exception):
    """A call did not return 0, or bytes differ."""


class _Checked:
    def __getattr__(self, name):
        call = getattr(acl.rt, name)

        def checked(*args):
            *outputs, ret = result if isinstance(result := call(*args), tuple) else (result,)
            if ret != 0:
                raise AclError(f"{name} returned {ret}\n{acl.get_recent_err_msg() or ''}".rstrip())
            return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

        return checked


rt = _Checked()


@contextlib.contextmanager
def initialized():
    """Initialise acl, and finalize it at the end."""
    ret = acl.init()
    if ret not in (0, REPEAT_INITIALIZE):
        raise AclError(f"init returned {ret}\n{acl.get_recent_err_msg() or ''}".rstrip())
    try:
        yield
    finally:
        acl.finalize()


@contextlib.contextmanager
def using(device):
    """Set a device in this thread, and reset it at the end."""
    rt.set_device(device)
    try:
        yield
    finally:
        rt.reset_device(device)


@contextlib.contextmanager
def created(what, *args, **names):
    """Make with ``malloc``, ``create_stream`` and the like; undo it at the end.

    ``undo=`` names the call for that; by default it is ``free``, ``free_host`` or ``destroy_...``.
    """
    undo = names.get("undo") or what.replace("malloc", "free").replace("create", "destroy")
    handle = getattr(rt, what)(*args)
    try:
        yield handle
    finally:
        getattr(rt, undo)(handle)


def equal(content, expected, what):
    """Raise unless two arrays hold the same bytes."""
    wrong = (content != expected).sum()
    if wrong:
        raise AclError(f"{what}: {wrong} of {content.size} elements differ")
