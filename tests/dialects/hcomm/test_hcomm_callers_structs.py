"""Structs with nonsense in their fields: every call returns a code, and none raises."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.hcomm_ranks import CPU_TS, code
from helpers.hcomm_world import World
from peerlane.dialects import hcomm

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

NONSENSE = (None, "x", b"\xff", 1.5, -5, 1 << 70, ["x"])
KINDS = range(-1, 8)


def fields(struct: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path to every field, fields of nested structs included."""
    for each in dataclasses.fields(struct):
        path = (*before, each.name)
        yield path
        if dataclasses.is_dataclass(value := getattr(struct, each.name)):
            yield from fields(value, path)


def spoilt(struct: Any, nonsense: tuple[Any, ...] = NONSENSE) -> Iterator[Any]:
    """Yield copies of the struct with nonsense in one field, for every field."""
    for *outer, last in fields(struct):
        for value in nonsense:
            changed = inner = copy.deepcopy(struct)
            for name in outer:
                inner = getattr(inner, name)
            setattr(inner, last, value)
            yield changed


def test_hcomm_struct_calls_nonsense_in_any_field_return_code(tmp_path: Path) -> None:
    world = World(tmp_path)

    def endpoint(desc: Any) -> int:
        handle, ret = hcomm.HcommEndpointCreate(desc)
        return ret or hcomm.HcommEndpointDestroy(handle)

    def channel(desc: Any) -> int:
        handles, ret = hcomm.HcommChannelCreate(world["endpoint"], CPU_TS, [desc], 1)
        return ret or hcomm.HcommChannelDestroy(handles, 1)

    def batch(desc: Any) -> int:
        ret: int = hcomm.HcommBatchTransferOnThread(world["thread"], world["channel"], [desc], 1)
        return ret

    asked: list[tuple[Any, Callable[[Any], Any]]] = [
        (world["descs"][0], lambda each: hcomm.HcclChannelQuery(world["comm"], CPU_TS, [each], 1)),
        (world["mem"], lambda each: hcomm.HcclCommMemReg(world["comm"], "tag", each)),
        (world["endpoint desc"], endpoint),
        (world["team desc"], lambda each: hcomm.HcclWorldTeamCreate(world["comm"], each)),
        (world["mem"], lambda each: hcomm.HcclTeamWindowRegister(world["comm"], world["team"], each, 0)),
        (
            world["team channels"],  # of a team without links: a right struct gets 6 and waits for no rank
            lambda each: hcomm.HcclTeamChannelsCreate(world["comm"], world["far team"], each),
        ),
        *((dataclasses.replace(world["transfers"][0], transType=kind), batch) for kind in KINDS),
    ]
    for struct, call in asked:
        codes = {code(call(each)) for each in spoilt(struct)}
        assert 1 in codes and codes <= {0, 1, 2, 5, 6}
    # A channel that connects takes a fifth of a second to end.
    codes = {code(channel(each)) for each in spoilt(world["basic descs"][0], NONSENSE[:2])}
    assert 1 in codes and codes <= {0, 1, 2, 5, 6}
    world["endpoint desc"].loc = 3
    hcomm.explain()
    assert code(hcomm.HcommEndpointCreate(world["endpoint desc"])) == 1
    assert "loc of EndpointDesc is 3, not an EndpointLoc" in hcomm.explain()


def test_hcomm_desc_init_calls_reset_every_field() -> None:
    for kind, fill in (
        (hcomm.HcclChannelDesc, hcomm.HcclChannelDescInit),
        (hcomm.HcommChannelDesc, hcomm.HcommChannelDescInit),
        (hcomm.CommLink, hcomm.CommLinkInit),
        (hcomm.EndpointDesc, hcomm.EndpointDescInit),
        (hcomm.HcclTeamCreateDesc, lambda descs, _: hcomm.HcclTeamCreateDescInit(*descs)),
        (hcomm.HcclTeamCreateChannelsDesc, lambda descs, _: hcomm.HcclTeamCreateChannelsDescInit(*descs)),
    ):
        fresh = kind()
        assert code(fill([fresh], 1)) == 0
        for each in spoilt(kind()):
            assert code(fill([each], 1)) == 0
            assert each == fresh
