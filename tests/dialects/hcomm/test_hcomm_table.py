"""Every call of the table: its shape, its documented codes, arguments of wrong types, and random ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.each import for_each
from helpers.hcomm_tables import CASES
from helpers.hcomm_world import World
from helpers.returns import fits
from peerlane.dialects import acl
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _probes, explain
from peerlane.dialects.hcomm._comm import Comm
from peerlane.dialects.hcomm._state import hcomm as convention

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

TABLE = {name.partition(".")[2]: call for name, call in convention.table.items()}
PASSES_ON = {"HcommBatchModeEnd"}  # it returns the code of the call in the batch that failed
BARE = {"HcclGetErrorString", "HcclGetCommConfigCapability"}
ROUNDS = 3000
# These calls wait for ranks that never come, end what other calls need, or make waits endless.
NOT_DRAWN = {
    *("HcclCommInitRootInfo", "HcclCommInitRootInfoConfig", "HcclCreateSubCommConfig", "HcclCommDestroy"),
    "HcommSetNotifyWaitTimeOut",
    "HcclEngineCtxCreate",  # it clears as many bytes as the argument says
}


@pytest.fixture
def world(hcomm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "2")
    # Its ranks have longer to meet than the calls of the tests, for which no rank comes.
    world = World(tmp_path)
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "2")
    for each in machine.resources.values():
        if isinstance(each, Comm):
            each.settings = replace(each.settings, connect_timeout=2)
    return world


def resolved(world: World, args: tuple[Any, ...]) -> list[Any]:
    """Return the arguments with each name replaced by its object."""

    def one(value: Any) -> Any:
        if isinstance(value, list):
            return [one(each) for each in value]
        return world.values.get(value, value) if isinstance(value, str) else value

    return [one(each) for each in args]


def documented(name: str, seen: frozenset[str] = frozenset()) -> set[int]:
    """Return the codes that a call's page names, with those of the calls that it refers to."""
    text = TABLE[name].facts.get("Refuses", "")
    codes = {int(digits) for digits in re.findall(r"(?:^|[;,] )(\d{1,2})\b(?=[ ,;]|$)", text)}
    for other in re.findall(r"as `(\w+)`", text):
        if other not in seen:
            codes |= documented(other, seen | {name})
    return codes


def grouped() -> dict[str, list[tuple[tuple[Any, ...], int]]]:
    cases: dict[str, list[tuple[tuple[Any, ...], int]]] = {}
    for name, args, code in CASES:
        cases.setdefault(name, []).append((args, code))
    return cases


@pytest.mark.parametrize("name", grouped())
def test_hcomm_table_calls_each_case_returns_its_documented_code(
    world: World, hcomm: ModuleType, name: str
) -> None:
    explain(), acl.get_recent_err_msg()
    # Calls that end objects come last.
    for args, code in sorted(grouped()[name], key=lambda case: case[1] == 0):
        values = resolved(world, args)
        result = getattr(hcomm, name)(*values)
        ret = result[-1] if isinstance(result, tuple) else result
        text = explain()
        assert ret == code, (name, args, result, text)
        assert fits(result, TABLE[name].returns) or code, (name, args, result)
        if code:
            unfit = code == 1 and "an argument is" in text  # for any call; in the page's introduction
            assert unfit or code in documented(name), f"{name} gives {code}, and its page does not say so"
            assert (
                f"hcomm.{name} returned {code} (" in text
                and "Possible Cause:" in text
                and "Solution:" in text
            )
            assert text.strip() in (acl.get_recent_err_msg() or "")
            if isinstance(result, tuple):
                assert not any(result[:-1]), result
        else:
            assert not text


def test_hcomm_table_calls_every_call_has_a_case() -> None:
    assert set(TABLE) - {name for name, _, _ in CASES} == BARE


@for_each("name", [name for name in TABLE if TABLE[name].parameters])
def test_hcomm_table_calls_wrong_types_raise_type_error(hcomm: ModuleType, name: str) -> None:
    call, declared = getattr(hcomm, name), TABLE[name]
    most = len(declared.parameters)
    for args in ((1,) * (most + 1), ()):
        with pytest.raises(TypeError, match=f"^hcomm.{name} args parse failed$"):
            call(*args)
    with pytest.raises(TypeError):
        call(**{declared.parameters[0][0]: 1})
    fitting = {"int": 1, "float": 1.0, "Any": None, "Callable": print}
    for at, (_, kind, _) in enumerate(declared.parameters):
        plain = re.match(r"[\w.]+", kind)[0]  # type: ignore[index]
        wrong: dict[str, tuple[Any, ...]] = {
            "int": ("1", 1.0, b"1", [1], object()),
            "float": ("1", b"1", [1], None, True),
            "str": (1, 1.0, [1], object()),
            "bytes": (1, 1.0, "x", object()),
            "list": (1, "x", b"x", ["x"], [None], object()),
            "Callable": (1, "x"),
        }
        for bad in wrong.get(plain, () if plain == "Any" else (1, "x", b"x", object(), [])):
            values = [fitting.get(re.match(r"[\w.]+", k)[0]) for _, k, _ in declared.parameters]  # type: ignore[index]
            values[at] = bad
            with pytest.raises(TypeError, match=f"^hcomm.{name} args parse failed$"):
                call(*values)


class Pool:
    """Arguments for every call: live and ended objects of every kind, and wild numbers."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self.draw = draw
        self.handles = [value for value in world.values.values() if isinstance(value, int)]
        self.others = list(world.values.values())
        self.config = world["config"]

    def number(self) -> int:
        choices = (
            lambda: self.draw.choice(self.handles),
            lambda: self.draw.choice([-1, 0, 1, 2, 3, 4, 8, 64, 255]),
            lambda: self.draw.getrandbits(self.draw.choice([8, 31, 32, 33, 63, 64, 65])),
            lambda: self.draw.choice(self.handles) + self.draw.choice([-8, 4, 1 << 20, 1 << 40]),
            lambda: np.int64(self.draw.getrandbits(20)),
        )
        return self.draw.choice(choices)()

    def struct(self, module: ModuleType, kind: str) -> Any:
        struct = getattr(module, kind)()
        self._disturb(struct)
        return struct

    def _disturb(self, struct: Any) -> None:
        for name in struct.__slots__:
            value = getattr(struct, name)
            if hasattr(value, "__dataclass_fields__"):
                self._disturb(value)
            elif self.draw.random() < 0.3:
                setattr(struct, name, self.draw.choice([None, "x", -1, self.number(), 0, 1]))

    def value(self, module: ModuleType, kind: str) -> Any:
        if self.draw.random() < 0.05:
            return self.draw.choice([None, "x", 1.5, b"x", [], self.number()])
        struct = re.search(r"_structs\.(\w+)", kind)
        if struct is not None:
            if self.draw.random() < 0.3:
                return self.draw.choice(self.others)
            structs = [self.struct(module, struct[1]) for _ in range(self.draw.randrange(3))]
            return structs if kind.startswith("list") else self.struct(module, struct[1])
        if kind.startswith("list[int]"):
            return [self.number() for _ in range(self.draw.randrange(4))]
        if kind.startswith("float"):
            return self.draw.choice([0.0, -1.0, float("nan"), float("inf"), 1e300, 3])
        if kind.startswith("str"):
            return self.draw.choice(["", "x", "\0", "ä" * 300, None])
        if kind.startswith("bytes"):
            return self.draw.choice([b"", b"x", bytes(4108), self.draw.randbytes(64), None])
        return self.number() if kind == "int" else None


@pytest.fixture
def pool(world: World) -> Iterator[Callable[[int], Pool]]:
    yield lambda seed: Pool(world, random.Random(seed))


@pytest.mark.parametrize("seed", range(3))
def test_hcomm_table_calls_random_arguments_return_only_documented_codes(
    pool: Callable[[int], Pool], hcomm: ModuleType, seed: int
) -> None:
    drawn = pool(seed)
    names = sorted(set(TABLE) - NOT_DRAWN)
    for _ in range(ROUNDS):
        name = drawn.draw.choice(names)
        kinds = [kind for _, kind, _ in TABLE[name].parameters]
        args = [drawn.value(hcomm, kind) for kind in kinds]
        if "Wait" in name or "Join" in name:
            args[-1] = 1 if kinds[-1] == "int" else args[-1]  # seconds
        if name in ("HcclCommInitAll", "HcclChannelAcquire", "HcclTeamCreate", "HcclTeamChannelsCreate"):
            args[0] = 1 << 70  # not a live handle: the peer would never come
        explain()
        try:
            result = getattr(hcomm, name)(*args)
        except TypeError as error:
            assert str(error) == f"hcomm.{name} args parse failed", (name, args)
            continue
        if name in BARE:
            continue
        ret = result[-1] if isinstance(result, tuple) else result
        assert type(ret) is int, (name, args, result)
        if ret:
            # Every data call on a suspended communicator returns 22, as the page of HcclCommSuspend says.
            known = documented(name) | {1, 22}
            assert ret in known or name in PASSES_ON, (name, args, ret, explain())
            assert explain()


def test_hcomm_refused_calls_return_5_and_is_support_returns_false(hcomm: ModuleType) -> None:
    for name in _probes.refused():
        explain()
        call = getattr(hcomm, name)
        assert call() == call(1, "x", None) == 5
        text = explain()
        assert f"hcomm.{name} returned 5 (HCCL_E_NOT_SUPPORT)" in text
        assert getattr(hcomm, f"HcommIsSupport{name}")() is False
    for name in TABLE:
        assert getattr(hcomm, f"HcommIsSupport{name}")() is True
    with pytest.raises(AttributeError, match=r"close names: .*HcclGetRankId"):
        _ = hcomm.HcclGetRankID


def test_hcomm_get_error_string_starts_with_name_of_code(hcomm: ModuleType) -> None:
    for code in hcomm.HcclResult:
        assert hcomm.HcclGetErrorString(code).startswith(code.name) or code == 1042
    assert "unknown" in hcomm.HcclGetErrorString(999)
    assert hcomm.HcclGetCommConfigCapability() == 12
