"""The owner's side of sharing: workers get handles and verify each tensor; the first writes one tensor back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import peerlane as pl
from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.state import tidy
from peerlane.cli.children import Child, gather_from, interrupts_deferred
from peerlane.cli.demo import transfer, worker
from peerlane.cli.demo.rank import START_SECONDS, Span
from peerlane.cli.demo.residence import Residence, residence
from peerlane.cli.demo.transfer import Advance, Place, Replica
from peerlane.cli.weights import Tensor

MOST_WORKERS = 64
WORKER_BYTES = 64 << 20

#: Resident memory above this multiple of the weights' size means more than one copy.
_ONE_COPY = 1.05

_ANSWER_SECONDS = 30.0
_LEAST_RATE = 10e6
_BATCH_TENSORS, _BATCH_BYTES = 256, 32 << 20

Begin = Callable[[str], Advance]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has opened the weights.

    Attributes
    ----------
    name : str
    rights : str
        Its rights on them.
    seconds : float or None
        From the handle to usable memory; None for the owner.
    residence : Residence or None
        None if the system does not tell.
    mismatched : tuple of str
        The tensors whose digest differed from the file's.
    """

    name: str
    rights: str
    seconds: float | None
    residence: Residence | None
    mismatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """The result of sharing.

    Attributes
    ----------
    nbytes : int
        The size of the shared block.
    holders : sequence of Holder
        The owner, then the workers.
    written : str
        The tensor that the first worker wrote back.
    unseen : dict of str to tuple of str
        By process, the tensors that were wrong after that.
    """

    nbytes: int
    holders: Sequence[Holder]
    written: str
    unseen: dict[str, tuple[str, ...]]

    @property
    def resident(self) -> int | None:
        """Bytes of memory that the weights take in all processes together; None if the system does not tell."""
        found = [holder.residence for holder in self.holders]
        return None if None in found else sum(each.share for each in found if each is not None)

    @property
    def is_one_copy(self) -> bool:
        return self.resident is None or self.resident <= _ONE_COPY * self.nbytes

    @property
    def is_verified(self) -> bool:
        wrong = (*(holder.mismatched for holder in self.holders), *self.unseen.values())
        return self.is_one_copy and not any(wrong)


def checked_count(count: int) -> int:
    """Return ``count`` if there can be so many workers."""
    if not 0 <= count <= MOST_WORKERS:
        raise pl.InvalidValue(
            f"--workers is {count}; valid are 0 (share with none) to {MOST_WORKERS}", call="demo"
        )
    return count


class Team:
    """Workers on the same node, which all have opened the same block.

    Parameters
    ----------
    physical : Physical
        The block with the weights.  The first worker may write to it, the others may only read.
    node : NodeConfig
    count : int
    stack : ExitStack
        Owns the processes and handles.  When it is closed, the processes leave nothing in the node.

    Raises
    ------
    Error
        A worker raised it, died, or did not answer in time.
    """

    def __init__(self, physical: pl.Physical, node: NodeConfig, count: int, stack: ExitStack) -> None:
        self.names = [f"worker {number}" for number in range(1, count + 1)]
        self.rights = ["rw", *["r"] * (count - 1)]
        self._children: list[Child] = []
        stack.callback(tidy, node)
        with interrupts_deferred():
            for name in self.names:
                child = Child(worker.serve, node.spec, name=f"the demo's {name}")
                self._children.append(stack.enter_context(child))
        handles = [
            stack.enter_context(physical.export(allow=[child.pid], rights=rights))
            for child, rights in zip(self._children, self.rights, strict=True)
        ]
        for child, handle in zip(self._children, handles, strict=True):
            child.tell((worker.OPEN, bytes(handle)))
        self.seconds: list[float] = [child.answer(timeout=START_SECONDS) for child in self._children]

    def digests(self, places: Sequence[Place], advance: Advance, *, arrived: bool = False) -> list[list[str]]:
        """Return each worker's digests of ``places``, in the shared memory or, if ``arrived``, in its own copy."""
        found: list[list[str]] = [[] for _ in self._children]
        for batch in _batches(places):
            nbytes = sum(size for _, size in batch)
            timeout = _ANSWER_SECONDS + len(self._children) * nbytes / _LEAST_RATE
            for child in self._children:
                child.tell((worker.DIGEST, batch, arrived))
            for child, mine in zip(self._children, found, strict=True):
                mine += child.answer(timeout=timeout)
                advance(nbytes)
        return found

    def invert(self, place: Place) -> None:
        """Let the first worker write a tensor back with every bit inverted."""
        self._children[0].ask((worker.INVERT, place), timeout=_ANSWER_SECONDS + place[1] / _LEAST_RATE)

    def measure(self) -> list[Residence | None]:
        """Return the residence of the weights in each worker."""
        return [child.ask((worker.MEASURE,), timeout=_ANSWER_SECONDS) for child in self._children]

    def invite(self, ranks: int, nbytes: int) -> None:
        """Let the workers become ranks 1 and up of a group, with memory for the weights; the owner makes rank 0."""
        for number, child in enumerate(self._children, 1):
            child.tell((worker.MEET, number, ranks, nbytes))

    def exchange(self, mine: bytes) -> list[bytes]:
        """Exchange the bytes of all ranks: the rendezvous of the group."""
        return gather_from(self._children, [mine], timeout=START_SECONDS)

    def begin(self, what: str) -> None:
        """Let the workers begin a collective; the owner then does its own part."""
        for child in self._children:
            child.tell((what,))

    def ended(self, seconds: float) -> list[Span]:
        """Return begin and end of the collective in each worker; it may take ``seconds``."""
        return [child.answer(timeout=_ANSWER_SECONDS + seconds) for child in self._children]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Replace an error inside by the death of a worker, if one died: the error may only follow from it."""
        try:
            yield
        except pl.Error:
            for child in self._children:
                child.check()
            raise

    def have_come(self) -> None:
        """Wait until each worker has become a rank."""
        for child in self._children:
            child.answer(timeout=START_SECONDS)


def share(
    team: Team,
    owned: Replica,
    physical: pl.Physical,
    digests: Sequence[str],
    changed: str,
    read_back: Callable[[Replica, Sequence[str]], tuple[str, ...]],
    begin: Begin,
) -> Sharing:
    """Let all workers verify the shared weights, and let the first write the first tensor back.

    Parameters
    ----------
    owned : Replica
        The weights' places in ``physical``.
    digests : sequence of str
        The right digest of each tensor.
    changed : str
        The right digest of the first tensor after it was written back.
    read_back : callable
        Returns the tensors of the owner that differ from given digests.
    """
    places = transfer.places(owned.tensors)
    verified = team.digests(places, begin("verify in the workers"))
    whole = owned.buffers[0].view().ctypes.data
    residences = [residence(whole, physical.size), *team.measure()]
    team.invert(places[0])
    expected = [changed, *digests[1:]]
    unseen = {"owner": read_back(owned, expected)}
    seen = team.digests(places[:1], lambda nbytes: None)
    for name, found in zip(team.names, seen, strict=True):
        unseen[name] = differing(owned.tensors[:1], expected[:1], found)
    wrong = [(), *(differing(owned.tensors, digests, found) for found in verified)]
    names, rights, seconds = ["owner", *team.names], ["rw", *team.rights], [None, *team.seconds]
    holders = [Holder(*each) for each in zip(names, rights, seconds, residences, wrong, strict=True)]
    return Sharing(physical.size, holders, owned.tensors[0].name, unseen)


def differing(tensors: Sequence[Tensor], wanted: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the tensors whose digests differ."""
    return tuple(t.name for t, want, got in zip(tensors, wanted, found, strict=True) if want != got)


def _batches(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Cut a list of tensors into small questions, which are soon answered."""
    batch: list[Place] = []
    nbytes = 0
    for place in places:
        if batch and (len(batch) == _BATCH_TENSORS or nbytes + place[1] > _BATCH_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(place)
        nbytes += place[1]
    if batch:
        yield batch
