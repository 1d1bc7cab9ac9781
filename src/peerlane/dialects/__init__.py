"""Dialects: vendors' modules, served on request under the vendors' own names.

``install("acl")`` lets ``import acl`` find the dialect, in this process and in its Python children.  Nothing
is imported until the program imports it.
"""

# Each `peerlane run` waits for these imports; that of pathlib takes longer than all of them.
# ruff: noqa: PTH118, PTH120

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

from peerlane.dialects._shared.hook import FINDER, VARIABLE, exported
from peerlane.dialects._shared.manifests import Manifest as Manifest
from peerlane.dialects._shared.manifests import let_outside_be_imported
from peerlane.dialects._shared.manifests import manifest_of as manifest_of
from peerlane.dialects._shared.manifests import register as register
from peerlane.dialects._shared.manifests import registered as registered
from peerlane.errors import Busy, Refused, Unsupported, VendorModule

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "Manifest",
    "begin_anew",
    "entry",
    "explanations",
    "has_driver",
    "install",
    "installed",
    "manifest_of",
    "register",
    "registered",
    "unasked",
    "uninstall",
    "vendor_is_there",
]

PROBE_SECONDS = 20.0

_PROBED = "PEERLANE_PROBED"
_SITE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "_site")

let_outside_be_imported()


def installed() -> tuple[str, ...]:
    """Return the names of the dialects in place, in the order they were installed."""
    return tuple(FINDER.installed)


def install(name: str, *, shadow_real: bool = False) -> None:
    """Let ``import`` find a dialect under its vendor's name, here and in Python children started from now on.

    A dialect that is installed already is left as it is.  Children need the environment of this process:
    ``python -I``, ``-E`` and ``-S`` have no dialects.

    Parameters
    ----------
    name : str
        One of ``registered()``.
    shadow_real : bool
        Install even if the vendor's own module is there and finds a device.

    Raises
    ------
    InvalidValue
        No dialect has that name.
    Busy
        A module of that name, not the dialect's, is imported already.
    Unsupported
        The vendor's own module is there and finds a device.  A module in the current folder, or beside the
        script, is the program's: it is neither asked nor imported, and the name means the dialect.

    In each case nothing was changed.
    """
    dialect = manifest_of(name)
    if name in FINDER.installed:
        return
    for public, serving in dialect.modules.items():
        if public in sys.modules and sys.modules[public] is not sys.modules.get(serving):
            raise Busy(
                f"cannot install dialect {name!r}: {public!r} is imported already ({sys.modules[public]!r}); "
                f"install the dialect before anything imports {public!r}; in pytest, where test files import it, by "
                f"the ini setting peerlane_dialects = {name}",
                detail=Refused(reason="imported_already", dialect=name, module=public),
            )
    if not shadow_real:
        _refuse_real(dialect)
    FINDER.install(name, tuple(dict.fromkeys(public.partition(".")[0] for public in dialect.modules)))
    _export()


def has_driver(name: str) -> bool:
    """Tell whether the driver of a dialect's vendor is on this machine: programs use it, if no option forbids it."""
    return any(map(os.path.exists, manifest_of(name).drivers))


def unasked(*, shadow_real: bool = False) -> tuple[str, ...]:
    """Return the dialects that a program gets which names none: all but those whose vendor's driver is there."""
    return tuple(name for name in registered() if shadow_real or not has_driver(name))


def uninstall(name: str) -> None:
    """Undo ``install``: the vendor's name means again what it meant; does nothing if it is not installed.

    Modules that the program has imported by then go on working.

    Raises
    ------
    InvalidValue
        No dialect has that name.
    """
    manifest_of(name)
    if name in FINDER.installed:
        FINDER.uninstall(name)
        _export()


def begin_anew(name: str) -> None:
    """Put a dialect back to how a new process finds it; what the program imported goes on working.

    For tests: nothing is initialised, no thread has a device, no message is kept.  It imports nothing.

    Raises
    ------
    InvalidValue
        No dialect has that name.
    """
    dialect = manifest_of(name)
    if dialect.anew.partition(":")[0] in sys.modules:
        _named(dialect.anew)()


def entry(name: str) -> str:
    """Return the public module whose functions programs call: ``"hip.hip"``; InvalidValue as :func:`install`."""
    return manifest_of(name).entry


def explanations(name: str) -> str:
    """Return what this thread's failed calls of a dialect meant, or else the last one of any thread, and forget it.

    Empty if no call failed, and where errors explain themselves.

    Raises
    ------
    InvalidValue
        No dialect has that name.
    """
    function = manifest_of(name).explain
    if function.partition(":")[0] not in sys.modules:
        return ""
    from peerlane.dialects._shared import message

    text = str(_named(function)()) or message.last_failure(name)
    message.forget_last(name)
    return text


def _named(text: str) -> Any:
    from pkgutil import resolve_name

    return resolve_name(text)


def _export() -> None:
    """Tell children, through the environment, what is installed."""
    inherited = os.environ.get("PYTHONPATH")
    path = [entry for entry in inherited.split(os.pathsep) if entry != _SITE] if inherited else []
    if FINDER.installed:
        os.environ[VARIABLE] = exported()
        path.insert(0, _SITE)
    else:
        os.environ.pop(VARIABLE, None)
    if path:
        os.environ["PYTHONPATH"] = os.pathsep.join(path)
    else:
        os.environ.pop("PYTHONPATH", None)


def _refuse_real(dialect: Manifest) -> None:
    own = _own_folders()
    path = [entry for entry in sys.path if os.path.realpath(entry) not in own]
    spec = _real_spec(dialect.name, path, own)
    if spec is not None and _finds_device(dialect, path):
        vendor = VendorModule(dialect.name, str(spec.origin))
        raise Unsupported(vendor_is_there(vendor, "--shadow-real"), detail=vendor)


def vendor_is_there(vendor: VendorModule, option: str) -> str:
    """Say why a dialect is not put in the place of a vendor's module, and which option does it all the same."""
    return (
        f"cannot install dialect {vendor.dialect!r}: the vendor's own module ({vendor.origin}) is there and finds a "
        f"device; run on that device without peerlane, or put virtual devices in its place with {option} (in Python: "
        "shadow_real=True)"
    )


def _own_folders() -> set[str]:
    """Return where the program's own modules are: the current folder, the script's, an archive or a folder itself."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    scripts = [os.path.realpath(script) for script in (*sys.argv[:1], main) if script]
    return {os.path.realpath(""), *scripts, *(os.path.dirname(script) for script in scripts)}


def _real_spec(name: str, path: list[str], own: set[str]) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if not find or finder is FINDER:
            continue
        spec: ModuleSpec | None = find(name, path if finder is PathFinder else None)
        if spec is not None and spec.origin is not None:
            folder = os.path.dirname(os.path.realpath(spec.origin))
            if (os.path.dirname(folder) if spec.submodule_search_locations else folder) not in own:
                return spec
    return None


def _finds_device(dialect: Manifest, path: list[str]) -> bool:
    """Ask the probe once, for this process and its children."""
    answers = dict(answer.split("=", 1) for answer in os.environ.get(_PROBED, "").split(",") if "=" in answer)
    if not dialect.probe:
        return False
    if dialect.name not in answers:
        answers[dialect.name] = "device" if _probe(dialect, path) else "none"
        os.environ[_PROBED] = ",".join(f"{name}={answer}" for name, answer in answers.items())
    return answers[dialect.name] == "device"


def _probe(dialect: Manifest, path: list[str]) -> bool:
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    source = f"import sys\nsys.path[:] = {path!r}\n{dialect.probe}"
    try:
        done = subprocess.run(
            [sys.executable, "-c", source],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        fate = f"gave no answer in {PROBE_SECONDS:g} s"
    else:
        if done.returncode >= 0:
            return done.returncode == 0
        fate = f"was killed by signal {-done.returncode}"
    print(
        f"peerlane: warning: the vendor's own {dialect.name!r} {fate} when asked for its devices; "
        f"taken as having none",
        file=sys.stderr,
    )
    return False
