"""A dialect's manifest: the facts that the rest of peerlane reads about a dialect without importing it.

A dialect is a folder with a ``manifest.py``, which imports nothing and assigns the fields of :class:`Manifest` in
capitals.  Peerlane's dialects lie in ``peerlane/dialects``, others in the folders of ``PEERLANE_DIALECT_FOLDERS``;
both are imported as ``peerlane.dialects.NAME``, where NAME is the folder's.
"""

# Each `peerlane run` waits for these imports; that of pathlib takes longer than all of them.
# ruff: noqa: PTH100, PTH117, PTH119, PTH120

from __future__ import annotations

import os
import sys
from types import MappingProxyType

from peerlane.dialects._shared.hook import FOLDERS, MANIFEST, folders, outside, read_manifest
from peerlane.errors import BadArgument, Fault, InvalidValue, Refused
from peerlane.support.records import dataclass
from peerlane.support.spelling import did_you_mean

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


@dataclass(frozen=True, slots=True)
class Orders:
    """The calls that order work, by the keys of ``ORDERS``; where a manifest has none, peerlane's own."""

    #: ``wait``, ``record``, ``fence``: between ranks: ``record`` makes a token, ``wait`` waits for it, ``fence``
    #: orders a channel's operations.
    wait: str = "Channel.wait"
    record: str = "Channel.notify"
    fence: str = "Channel.fence"
    token: str = "notify"  #: the name of a token: a notify or an event
    #: ``sync``, ``event``: within a process: how a thread waits for a stream, and how a stream waits for another one.
    sync: str = "Stream.sync"
    event: str = "Stream.wait"
    edge: str = ""  #: the call that adds an edge to a graph; empty: the dialect has no graphs
    #: A barrier of ranks.  Empty: the dialect has none, and its tokens work between any two processes.
    barrier: str = "Group.barrier"
    #: ``own_record``, ``own_wait``: ``record`` and ``wait`` between streams of one process, for a notify without a
    #: channel.
    own_record: str = "Stream.notify"
    own_wait: str = "Stream.wait"
    #: How to get notifies that keep each record; empty: the dialect has none.
    fifo: str = "a notify of the kind fifo"
    #: The call that notifies another process without a token; ``wait`` and ``sync`` then only ask, and never block.
    #: Empty: the dialect has none.
    message: str = ""
    done: str = ""  #: the answer of such a ``sync`` for a transfer that is over
    #: The call that keeps freed memory from being handed out again while a stream uses it; empty: there is none.
    keep: str = ""
    #: ``threads``, ``processes``: other means to order two threads, and two processes.
    threads: str = "a join, a lock, a queue or peerlane.order"
    processes: str = "a join, a message or peerlane.order"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The values that a dialect's manifest assigns, or their defaults."""

    name: str  #: ``name``, ``folder``: not assigned in the manifest
    folder: str
    #: Each public module name to the module that serves it: ``"acl.rt"`` to ``"peerlane.dialects.acl.rt"``.
    modules: Mapping[str, str]
    #: The vendor's own modules that ``peerlane doctor`` looks for, each with the distribution that has its version,
    #: or an empty text; by default the module called ``name``.
    packages: Mapping[str, str]
    orders: Orders  #: the vendor's calls that order work; in the manifest by their keys
    #: By the beginning of calls' names, the calls that programs with such calls know by another name: of CUDA's
    #: runtime ``{"cuda": {"sync": "cudaStreamSynchronize", ...}}``.
    orders_of: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    entry: str = ""  #: the public module whose functions programs call; by default the module called ``name``
    #: Python source; run by itself it exits with 0 if and only if the vendor's own module is installed and finds a
    #: device.  Empty if the vendor has no such module.
    probe: str = ""
    #: Paths of files, of which one is there where the vendor's own driver is: then the dialect is served on request
    #: alone.  Empty if programs find devices by Python's modules.
    drivers: Sequence[str] = ()
    #: The environment variables that the vendor's software reads, for ``peerlane doctor``.
    variables: Sequence[str] = ()
    #: ``"module:function"`` that resets the dialect to its state in a new process; empty if it keeps no state.
    anew: str = ""
    #: ``"module:function"`` that returns the explanation of this thread's failed calls; empty where their errors
    #: explain themselves.
    explain: str = ""
    #: ``"module:function"`` that returns what the vendor's tool shows of a node's links, for ``peerlane topo``; empty
    #: without one.  ``peerlane.dialects.cuda.paths.shown`` is an example.
    topology: str = ""
    remedy: str = ""  #: the text that names the calls which end the objects that a test left behind
    #: The C libraries, each with its header: ``{"hccl": "hcomm"}`` for ``libhccl.so``, which has the functions of
    #: ``hcomm.h.txt``.  A name may end in a version: ``"cuda.1"`` for ``libcuda.so.1``, and ``libcuda.so`` for
    #: linkers.  If there are any, the folder's ``c_library.py`` has a function ``library`` that returns the
    #: :class:`Library` of a header.
    libraries: Mapping[str, str] = MappingProxyType({})
    #: ``"HcommIsSupport"``: the library has ``HcommIsSupportNAME`` for each function NAME; it returns whether NAME
    #: works.  Empty if there are none.
    supports: str = ""
    #: The beginning of the names of Python's calls in messages, ``"hcomm."``; empty if the names are C's.
    prefix: str = ""


_FIELDS = tuple(name.upper() for name in Manifest.__match_args__ if name not in ("name", "folder"))
_PACKAGE = "peerlane.dialects"
_read: dict[str, Manifest] = {}


def registered() -> tuple[str, ...]:
    """Return the names of all dialects."""
    return tuple(_folders())


def manifest_of(name: str) -> Manifest:
    """Return the manifest of a dialect.

    Raises InvalidValue: no dialect has that name; or ``BAD_CONFIG``: its manifest has no ``MODULES``, or an unknown
        name or key.
    """
    known = _folders()
    if name not in known:
        raise InvalidValue(
            f"no dialect {name!r}{did_you_mean(name, known)}; valid are {', '.join(known)}, and what "
            f"{FOLDERS} names",
            detail=BadArgument("name", name, choices=tuple(known)),
        )
    return _manifest_in(known[name])


def register(folder: str | os.PathLike[str]) -> None:
    """Make the dialect of a folder known in this process, and in children that are started from now on.

    Raises InvalidValue: another folder has a dialect of that name; or the folder has no manifest, or one that is
        wrong.  Nothing was changed.
    """
    path = os.path.abspath(folder)
    name = _manifest_in(path).name
    known = _folders()
    if known.setdefault(name, path) != path:
        raise InvalidValue(
            f"dialect {name!r} is registered already, of {known[name]}; give the folder another name",
            detail=Refused(reason="dialect_taken", dialect=name, registered=tuple(known)),
        )
    if name not in outside():
        os.environ[FOLDERS] = os.pathsep.join(filter(None, [os.environ.get(FOLDERS), path]))
        let_outside_be_imported()


def let_outside_be_imported() -> None:
    """Let dialects outside peerlane be imported as those inside are."""
    path = sys.modules[_PACKAGE].__path__
    path.extend(sorted({os.path.dirname(each) for each in outside().values()} - {*path}))


def _folders() -> dict[str, str]:
    """Return the folder of each dialect by its name."""
    for each in outside().values():
        if not os.path.isabs(each):
            raise _wrong(
                each, f"{FOLDERS} has {each!r}; give whole paths of folders, which begin with a slash"
            )
    let_outside_be_imported()
    return folders()


def _manifest_in(folder: str) -> Manifest:
    if folder in _read:
        return _read[folder]
    try:
        assigned = read_manifest(folder)
    except OSError as error:
        raise _wrong(folder, f"{folder} has no {MANIFEST} that can be read: {error.strerror}") from None
    names = {name: value for name, value in assigned.items() if not name.startswith("_")}
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        close = did_you_mean(unknown[0], _FIELDS)
        raise _wrong(
            folder, f"{folder}/{MANIFEST} assigns {unknown[0]}{close}; valid are {', '.join(_FIELDS)}"
        )
    if "MODULES" not in names:
        raise _wrong(folder, f"{folder}/{MANIFEST} assigns no MODULES, which names the vendor's modules")
    orders = names.pop("ORDERS", {})
    for key in (*orders, *(key for calls in names.get("ORDERS_OF", {}).values() for key in calls)):
        if key not in Orders.__match_args__:
            close = did_you_mean(key, Orders.__match_args__)
            valid = ", ".join(Orders.__match_args__)
            raise _wrong(folder, f"{folder}/{MANIFEST} has {key!r} in ORDERS{close}; valid are {valid}")
    name = os.path.basename(folder)
    fields: dict[str, Any] = {"packages": {name: ""}, "orders": Orders(**orders), "entry": name}
    fields.update((each.lower(), value) for each, value in names.items())
    return _read.setdefault(folder, Manifest(name, folder, **fields))


def _wrong(folder: str, text: str) -> InvalidValue:
    return InvalidValue(text, fault=Fault.BAD_CONFIG, detail=BadArgument("folder", folder))
