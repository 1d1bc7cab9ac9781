"""Peer-to-peer copies, shared device memory and one-sided writes, on virtual devices that need no hardware."""

import os
from _thread import RLock as _RLock

from peerlane import _interpreter as _interpreter  # first: it may refuse the interpreter
from peerlane.support import exits as _exits  # noqa: F401 - its handler is to run after those of the program

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from peerlane._public import *  # noqa: F403 - __all__ says which
    from peerlane._public import __all__ as __all__

    __version__: str
else:
    _first_look = _RLock()
    # A child forked during the look of another thread would wait for its import for ever.
    os.register_at_fork(
        before=_first_look.acquire, after_in_parent=_first_look.release, after_in_child=_first_look.release
    )

    def __getattr__(name: str) -> object:
        """Look a public name up: the first look imports what `import peerlane` is too quick to import."""
        if name == "__version__":
            from importlib.metadata import version

            return globals().setdefault(name, version("peerlane"))
        if name.startswith("_") and name != "__all__":  # Python and its tools ask any module for such names
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        with _first_look:
            from peerlane import _public

            for each in ("__all__", *_public.__all__):
                globals().setdefault(each, getattr(_public, each))
        if name in globals():  # modules of the package too
            return globals()[name]
        from peerlane.support.spelling import no_attribute

        raise no_attribute(__name__, name, _public.__all__)

    def __dir__() -> list[str]:
        """Return the public names; the first call imports them."""
        return [*__getattr__("__all__"), "__version__"]


if os.environ.get("PEERLANE_LOG"):  # the log tells of what the program does from here on
    from peerlane import _public as _public
    from peerlane.diagnostics.log import event_log as _event_log

    _event_log.begin_from_environment()
    if _event_log.active:
        from peerlane.diagnostics.hooks import threads as _threads

        _threads.install()

if os.environ.get("PEERLANE_LEAKS"):
    from peerlane import _public as _public
    from peerlane.node import left_at_end as _left_at_end

    _left_at_end.begin()


class _Doc(str):
    """A docstring against a warning of pytest: `peerlane run` imports the package before pytest loads its plugin."""

    __slots__ = ()

    def __contains__(self, word: object) -> bool:
        return word == "PYTEST_DONT_REWRITE" or (isinstance(word, str) and super().__contains__(word))


if __doc__:  # not under -OO
    __doc__ = _Doc(__doc__)
