"""Records behave as the frozen dataclasses with slots that type checkers take them for."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from peerlane.support.records import dataclass

pytestmark = pytest.mark.any_schedule


class Body:
    """Two fields.

    One has a default.
    """

    first: int
    second: Any = ()

    def __post_init__(self) -> None:
        if self.first == -1:
            object.__setattr__(self, "first", 1)

    @property
    def both(self) -> tuple[int, Any]:
        return self.first, self.second


def of(decorator: Any, name: str) -> Any:
    return decorator(frozen=True, slots=True)(type(name, (), {**vars(Body), "__qualname__": name}))


Record, Standard = of(dataclass, "Record"), of(dataclasses.dataclass, "Standard")


@pytest.mark.parametrize("args", [(1,), (1, "x"), (-1,), (2, [3])])
def test_record_is_as_a_standard_dataclass(args: tuple[Any, ...]) -> None:
    mine, theirs = Record(*args), Standard(*args)
    assert mine.both == theirs.both
    assert repr(mine) == repr(theirs).replace("Standard", "Record")
    assert dataclasses.asdict(mine) == dataclasses.asdict(theirs)
    assert dataclasses.astuple(mine) == dataclasses.astuple(theirs)
    assert mine == Record(*args) and mine != theirs and mine != Record(7)
    for copied in (pickle.loads(pickle.dumps(mine)), copy.copy(mine), copy.deepcopy(mine)):
        assert type(copied) is Record and copied == mine
    assert dataclasses.replace(mine, first=5).both == (5, mine.second)


def test_record_hash_is_that_of_its_values() -> None:
    assert hash(Record(1, "x")) == hash(Record(1, "x")) == hash(Standard(1, "x"))
    with pytest.raises(TypeError, match="unhashable"):
        hash(Record(1, []))


def test_record_that_holds_itself_has_a_repr() -> None:
    held: list[Any] = []
    held.append(Record(1, held))
    assert repr(held[0]) == "Record(first=1, second=[...])"


@pytest.mark.parametrize("cls", [Record, Standard])
def test_record_refuses_changes_and_unknown_names(cls: Any) -> None:
    copied = cls(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        copied.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del copied.first
    with pytest.raises((AttributeError, TypeError)):  # the standard one of Python 3.11 raises a TypeError
        copied.third = 3
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        cls()
    with pytest.raises(TypeError, match="unexpected keyword argument 'third'"):
        cls(1, third=3)
    assert not hasattr(copied, "__dict__")


def test_record_describes_itself_as_a_standard_dataclass() -> None:
    assert dataclasses.is_dataclass(Record) and dataclasses.is_dataclass(Record(1))

    def described(cls: Any) -> list[tuple[Any, ...]]:
        return [
            (each.name, each.type, each.default, each.repr, each.compare) for each in dataclasses.fields(cls)
        ]

    assert described(Record) == described(Record(1)) == described(Standard)
    assert inspect.signature(Record) == inspect.signature(Standard)
    for name in ("__match_args__", "__slots__", "__doc__", "__module__"):
        assert getattr(Record, name) == getattr(Standard, name)
    assert Record.__name__ == Record.__qualname__ == "Record"
    match Record(1, 2):
        case Record(first, second):
            assert (first, second) == (1, 2)


def test_dataclass_that_inherits_a_record_has_its_fields_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Wider(Record):  # type: ignore[misc, valid-type]
        third: int = 3

    copied = Wider(1)
    assert dataclasses.astuple(copied) == (1, (), 3)
    assert copied == Wider(1) and copied != Wider(1, third=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copied.first = 2


def test_plain_class_that_inherits_a_record_describes_its_fields_first() -> None:
    parent = of(dataclass, "Parent")
    child = type("Child", (parent,), {"__slots__": ()})
    assert [each.name for each in dataclasses.fields(child)] == ["first", "second"]
    assert repr(child(1)) == "Child(first=1, second=())"
