"""Rows of ``hcomm_tables``: what the calls of HCOMM's teams refuse, and with which code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BIG = 1 << 32


def declare_teams(one: Callable[..., None], each: Callable[..., None], comms: list[tuple[Any, int]]) -> None:
    """Declare them, with what declares one case and several, and what is refused for a communicator."""
    for name, desc in (("", "team desc"), ("Channels", "team channels")):
        each(f"HcclTeamCreate{name}DescInit", (), [(desc, 0), (None, 2)])
    bad = [
        *[(None, 2), ("no ranks", 2), ("raw team desc", 1), ("few ranks", 1), ("odd ranks", 1), ("twice", 1)],
        *[
            ("far ranks", 1),
            ("not there", 6),
            ("odd needs", 1),
            ("one rank", 1),
            ("many ranks", 1),
            ("not this rank", 1),
        ],
        *[("far layer", 1), ("no protocol", 1), ("protocol of a plugin", 5), ("signals", 1), ("counters", 1)],
        *[("no barrier", 1)],
    ]
    world, sub, new = "HcclWorldTeamCreate", "HcclSubTeamCreate", "HcclTeamCreate"
    for name, parent in ((world, "comm"), (sub, "team"), (new, "comm")):
        each(name, (parent,), bad)
    one(world, 0, "comm", "team desc")
    each(world, (), [*comms, ("alone", 1)], "team desc")
    one(sub, 0, "team", "team desc")
    teams = [("sub team", 1), ("comm", 6), (0, 2), (None, 2), (4096, 6)]
    each(sub, (), teams, "team desc")
    one(new, 0, "other comm", "other team desc")
    each(new, (), comms, "team desc")
    each(
        new,
        ("comm",),
        [("by HCCS", 1), ("shared", 5), ("by kernels", 5), ("in layer 1", 6), ("team desc", 9)],
    )
    register = "HcclTeamWindowRegister"
    one(register, 0, "comm", "team", "team mem", 0)
    each(register, (), comms, "team", "mem", 0)
    each(register, ("comm",), [*teams, ("other team", 1)], "mem", 0)
    mems = [(None, 2), ("mem without address", 2), ("mem without size", 1), ("host mem", 1), ("odd mem", 6)]
    each(register, ("comm", "team"), [*mems, ("long mem", 6), ("mem elsewhere", 1)], 0)
    each(register, ("comm", "team", "mem"), [(1, 1), (BIG, 1)])
    make = "HcclTeamChannelsCreate"
    one(make, 0, "comm", "team", "team channels")
    one(make, 0, "comm", "sub team", "team channels")
    each(make, (), comms, "team", "team channels")
    each(
        make, ("comm",), [("other team", 1), ("far team", 6), ("comm", 6), (0, 2), (4096, 6)], "team channels"
    )
    descs = [
        *[
            (None, 2),
            ("raw team channels", 1),
            ("no channels", 1),
            ("many channels", 5),
            ("many notifies", 1),
        ],
        *[("no engine", 1), ("of kernels", 5), ("of CCU", 5), ("of no protocol", 1), ("of a plugin", 5)],
    ]
    each(make, ("comm", "team"), descs)
    one(make, 1, "comm", "UB team", "of another protocol")
    one(make, 9, "comm", "UB team", "team channels")
    one("HcclTeamGetLsaTeam", 0, "comm")
    each("HcclTeamGetLsaTeam", (), comms)
    for name, good, wrong in (
        ("HcclTeamMemberToRank", 1, (2, 1)),
        ("HcclTeamRankToMember", 1, (2, 6)),
    ):
        one(name, 0, "comm", "team", good)
        each(name, (), comms, "team", 0)
        each(name, ("comm",), [("other team", 1), ("comm", 6), (0, 2), (4096, 6)], 0)
        each(name, ("comm", "team"), [wrong, (BIG, 1)])
    end = "HcclTeamWindowDeregister"
    each(end, (), [("other team", 1), ("comm", 6), (0, 2), (4096, 6)], "team window")
    each(end, ("team",), [("symmetric", 6), (0, 2), (4096, 6), ("other team window", 1)])
    one(end, 0, "team", "team window")
    each("HcclTeamDestroy", (), [("comm", 6), (0, 2), (4096, 6), ("lsa", 1), ("sub team", 0), ("team", 0)])
