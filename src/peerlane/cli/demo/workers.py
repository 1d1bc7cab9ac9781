"""The owner's side of sharing: worker processes get handles, verify every tensor, and one writes one back."""

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

#: More than this of what the weights take is no longer one copy.
_ONE_COPY = 1.05

_ANSWER_SECONDS = 30.0
_LEAST_RATE = 10e6
_BATCH_TENSORS, _BATCH_BYTES = 256, 32 << 20

Begin = Callable[[str], Advance]


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that has the weights.

    Attributes
    ----------
    name : str
    rights : str
        What it may do with them.
    seconds : float or None
        From the handle to memory that it can use; None for the owner.
    residence : Residence or None
        None where the system does not tell.
    mismatched : tuple of str
        Tensors whose digest was not that of the file.
    """

    name: str
    rights: str
    seconds: float | None
    residence: Residence | None
    mismatched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sharing:
    """What became of it.

    Attributes
    ----------
    nbytes : int
        Of the block that all processes have.
    holders : sequence of Holder
        The owner, then the workers.
    written : str
        The tensor that the first worker wrote back.
    unseen : dict of str to tuple of str
        By process, tensors that were not what they should have been after that.
    """

    nbytes: int
    holders: Sequence[Holder]
    written: str
    unseen: dict[str, tuple[str, ...]]

    @property
    def resident(self) -> int | None:
        """Bytes that all processes together have in memory of the weights; None where the system does not tell."""
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
    """Return a number of workers that there can be."""
    if not 0 <= count <= MOST_WORKERS:
        raise pl.InvalidValue(
            f"--workers is {count}; valid are 0 (share with none) to {MOST_WORKERS}", call="demo"
        )
    return count


class Team:
    """Workers on the same node, which all have the same block.

    Parameters
    ----------
    physical : Physical
        Where the weights are.  The first worker may write to it, the others can only read.
    node : NodeConfig
    count : int
    stack : ExitStack
        Owns processes and handles.  Nothing of the processes is left in the node when it is closed.

    Raises
    ------
    Error
        What a worker met; or it died, or did not answer in time.
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
        """Return each worker's digests of what lies at ``places``, in the owner's memory or as it arrived."""
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
        """Let the first worker write a tensor back with every bit turned over."""
        self._children[0].ask((worker.INVERT, place), timeout=_ANSWER_SECONDS + place[1] / _LEAST_RATE)

    def measure(self) -> list[Residence | None]:
        """Return what each worker has in memory."""
        return [child.ask((worker.MEASURE,), timeout=_ANSWER_SECONDS) for child in self._children]

    def invite(self, ranks: int, nbytes: int) -> None:
        """Let each be a rank of a group, from 1 on, with room for the weights; the owner is to make its own."""
        for number, child in enumerate(self._children, 1):
            child.tell((worker.MEET, number, ranks, nbytes))

    def exchange(self, mine: bytes) -> list[bytes]:
        """Bring the ranks together."""
        return gather_from(self._children, [mine], timeout=START_SECONDS)

    def begin(self, what: str) -> None:
        """Let all do their part of a collective; the owner is to do its own."""
        for child in self._children:
            child.tell((what,))

    def ended(self, seconds: float) -> list[Span]:
        """Return when each began and was done; ``seconds`` are what it may take."""
        return [child.answer(timeout=_ANSWER_SECONDS + seconds) for child in self._children]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Say of an error which worker's death it came from, if one has died: others may only see what followed."""
        try:
            yield
        except pl.Error:
            for child in self._children:
                child.check()
            raise

    def have_come(self) -> None:
        """Return when each is a rank."""
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
    """Let all workers verify the weights that they share, and the first write the first tensor back.

    Parameters
    ----------
    owned : Replica
        Where the weights lie in ``physical``.
    digests : sequence of str
        What each tensor should be.
    changed : str
        What the first one should be once it was written back.
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
    """Cut a list of tensors into questions that are small, and soon answered."""
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
