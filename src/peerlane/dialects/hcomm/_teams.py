"""``hcomm``: teams, some ranks of a communicator with their channels and windows (facts/hcomm 2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from peerlane import Buffer
from peerlane.dialects._shared.call import Check
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm._arguments import (
    HANDLE,
    Handle,
    Mem,
    RequiredTeamChannelsDesc,
    RequiredTeamDesc,
    TeamChannelsDesc,
    UInt32,
    field,
    listed,
    meaning,
    part,
    required,
)
from peerlane.dialects.hcomm._channels import acquire, refuse_notifies, refuse_protocol
from peerlane.dialects.hcomm._codes import AGAIN, NOT_FOUND, NOT_SUPPORT, PARA, PTR
from peerlane.dialects.hcomm._comm import Comm, CommHandle, keep, refuse_suspended
from peerlane.dialects.hcomm._elements import memory
from peerlane.dialects.hcomm._header import CommEngine, CommMemType, CommProtocol
from peerlane.dialects.hcomm._meeting import digest_of, next_use
from peerlane.dialects.hcomm._rank_graph import layers_of, protocols_of
from peerlane.dialects.hcomm._state import HcommResource, drop, hcomm, object_of
from peerlane.dialects.hcomm._threads import refuse_engine
from peerlane.dialects.hcomm._windows import Window, windows_of

_LAYERS = 3
_NO_PROTOCOL = int(CommProtocol.COMM_PROTOCOL_RESERVED)
#: The protocols that the vendor's HcclTeamCreate takes.
_URMA = frozenset(
    int(each)
    for each in (
        *(CommProtocol.COMM_PROTOCOL_UB_CTP, CommProtocol.COMM_PROTOCOL_UBC_TP),
        *(CommProtocol.COMM_PROTOCOL_UBOE, CommProtocol.COMM_PROTOCOL_UB_RTP),
    )
)


class TeamWindow(Window):
    """A symmetric window of a team."""

    __slots__ = ("team",)

    name = "team window"
    ended_by = "HcclTeamWindowDeregister"

    def __init__(self, team: Team, whole: Buffer) -> None:
        super().__init__(team.comm, f"{team.key}.{team.next_window}", whole)
        self.team = team

    def of(self, rank: int) -> int:
        """Return the address of a rank's memory: HCCL_E_AGAIN before it takes effect for that rank."""
        if rank != self.comm.group.rank and rank not in self._reached:
            raise AGAIN.refusal(
                f"{self} does not reach rank {rank}; windows take effect when the channels of a team are made",
                "call HcclTeamChannelsCreate, with a team of that rank, after HcclTeamWindowRegister",
            )
        return super().of(rank)


class Team(HcommResource):
    """Some ranks of a communicator, this one among them."""

    __slots__ = ("comm", "is_lsa", "key", "layer", "next_window", "protocol", "ranks", "windows", "world")

    name = "team"
    is_owned = False

    def __init__(self, comm: Comm, world: Team | None, ranks: list[int], layer: int, protocol: int) -> None:
        super().__init__(comm.context)
        #: ``world``: the world team of a sub team; None for a world team.
        #: ``ranks``: by member.
        #: ``layer``, ``protocol``: the layer and the protocol of its channels.
        self.comm, self.world, self.ranks, self.layer, self.protocol = comm, world, ranks, layer, protocol
        self.key: str = ""  #: the same in all of its ranks; no other team has it
        self.is_lsa = False  #: whether it is the communicator's own, of ``HcclTeamGetLsaTeam``
        self.windows: list[TeamWindow] = []
        self.next_window: int = 0  #: the number of the next one

    @property
    def peers(self) -> list[int]:
        """The ranks of the other members."""
        return [each for each in self.ranks if each != self.comm.group.rank]

    @property
    def subs(self) -> list[Team]:
        """Its sub teams."""
        return [each for each in teams_of(self.comm) if each.world is self]

    def give(self) -> int:
        """Keep it, and return its handle."""
        comm, world = self.comm, self.world
        with comm.guard:
            if world is not None:
                team_of(world.handle)  # another thread may have ended it, with all its sub teams
            handle = keep(self)
            comm.parts.append(self)
            kind = world.key if world else "lsa" if self.is_lsa else ""
            identity = f"{comm.key}.{kind}.{self.ranks}"
            self.key = digest_of(f"{identity}.{next_use(f'{identity}.{comm.group.rank}')}".encode())
        return handle


def teams_of(comm: Comm) -> list[Team]:
    """Return the teams of a communicator."""
    return [each for each in comm.parts if isinstance(each, Team)]


def team_of(handle: int, *, world: bool = False, comm: Comm | None = None) -> Team:
    """Return the team of a handle: HCCL_E_PARA for a sub team, and for a team of another communicator."""
    team = object_of(Team, handle)
    if world and team.world is not None:
        raise PARA.refusal(f"{team} is a sub team", "pass what HcclWorldTeamCreate returned")
    if comm is not None and team.comm is not comm:
        raise PARA.refusal(f"{team} is not of {comm}", "pass the communicator that the team was made of")
    return team


TeamHandle = Annotated[Team, HANDLE, meaning(Team)]
_WorldTeam = Annotated[Team, HANDLE, Check(lambda _name: partial(team_of, world=True))]
_TeamWindow = Annotated[TeamWindow, HANDLE, meaning(TeamWindow)]


@hcomm.call("hcomm.HcclTeamCreateDescInit")
def HcclTeamCreateDescInit(desc: RequiredTeamDesc) -> None:
    """Fill a descriptor: the header, no ranks, layer 0, no protocol and engine, the rest 0.

    It is the struct of version 2; ``HcclWorldTeamCreate`` and ``HcclSubTeamCreate`` read what version 1 had.

    Refuses: 2 NULL
    Basis: S
    """
    header.reset(desc)
    desc.header = header.abi_header(header.HcclTeamCreateDesc)
    desc.requirement.reserved = b"\xff" * len(desc.requirement.reserved)
    desc.protocol, desc.engine = _NO_PROTOCOL, int(CommEngine.COMM_ENGINE_RESERVED)


@hcomm.call("hcomm.HcclTeamCreateChannelsDescInit")
def HcclTeamCreateChannelsDescInit(desc: RequiredTeamChannelsDesc) -> None:
    """Fill a descriptor: the header, no engine and protocol, no notifies, no channels.

    Refuses: 2 NULL
    Basis: S
    """
    header.reset(desc)
    desc.header = header.abi_header(header.HcclTeamCreateChannelsDesc)
    desc.protocol, desc.engine = _NO_PROTOCOL, int(CommEngine.COMM_ENGINE_RESERVED)


def _refuse_raw(desc: header.HcclTeamCreateDesc | header.HcclTeamCreateChannelsDesc, kind: type) -> None:
    if not header.is_initialised(desc, kind):
        name = type(desc).__name__
        raise PARA.refusal(f"the {name} is not initialised", f"call {name}Init first")


def _planned(comm: Comm, world: Team | None, wanted: header.HcclTeamCreateDesc) -> Team:
    """Return the team of a descriptor; it has no handle yet."""
    _refuse_raw(wanted, header.HcclTeamCreateDesc)
    count, known = field(wanted, "rankNum"), world.ranks if world else range(comm.group.size)
    if not 2 <= count <= len(known):
        raise PARA.refusal(
            f"rankNum is {count:,}; a team has 2 to {len(known)} ranks here", "list the ranks of the team"
        )
    ranks = listed(wanted, "rankIds", count)
    needs = part(wanted, "requirement", header.HcommTeamSyncMemRequirement)
    counts = [field(needs, f"{each}Count") for each in ("signal", "counter", "barrier")]
    if counts[0] or counts[1] or not counts[2]:
        raise PARA.refusal(
            "requirement asks for {} signals, {} counters and {} barriers; valid are 0, 0, and 1 or more".format(
                *counts
            ),
            "set barrierCount to 1",
        )
    layer, protocol = field(wanted, "netLayer"), field(wanted, "protocol", signed=True)
    if layer >= _LAYERS:
        raise PARA.refusal(f"netLayer is {layer:,}; valid are 0 to {_LAYERS - 1}", "set it to 0")
    if protocol != _NO_PROTOCOL:
        refuse_protocol(protocol)
    own = field(wanted, "selfRankId")
    if own not in ranks:
        raise NOT_FOUND.refusal(f"selfRankId {own:,} is not in rankIds {ranks[:16]}", "list this rank too")
    if own != comm.group.rank or len(set(ranks)) < count or not set(ranks) <= set(known):
        raise PARA.refusal(
            f"rankIds is {ranks[:16]}, selfRankId {own}; valid are {list(known)[:16]}, each once, and this rank is "
            f"{comm.group.rank}",
            "list ranks of the communicator, or of the world team for a sub team",
        )
    return Team(comm, world, ranks, layer, protocol)


@hcomm.call("hcomm.HcclWorldTeamCreate", out=1)
def HcclWorldTeamCreate(comm: CommHandle, desc: RequiredTeamDesc) -> int:
    """Make a team of ranks of a communicator, of all or of some; no rank waits for another.

    The ranks make it in one order among teams of the same ranks.  It ends with the communicator at the latest.  Of
    ``requirement``, no memory is made: kernels synchronize by it, and there are none.

    Gives: worldTeam
    Refuses: 2 NULL, `rankIds` NULL; 6 the communicator, `selfRankId` is not in `rankIds`; 1 not initialised, fewer
        than 2 ranks or more than there are, a rank twice, `selfRankId` is not this rank, `netLayer` above 2,
        `signalCount` or `counterCount` but 0, `barrierCount` 0, protocol; 5 protocols of plugins
    Basis: D, S; C for ranks twice, and protocols
    """
    return _planned(comm, None, desc).give()


@hcomm.call("hcomm.HcclSubTeamCreate", out=1)
def HcclSubTeamCreate(worldTeam: _WorldTeam, desc: RequiredTeamDesc) -> int:
    """Make a team of some ranks of a world team, whose windows it has too; no rank waits for another.

    Gives: team
    Refuses: 6 the team; 1 a sub team, ranks that are not of the world team; as `HcclWorldTeamCreate`
    Basis: D, S; C for ranks twice, and protocols
    """
    return _planned(worldTeam.comm, worldTeam, desc).give()


@hcomm.call("hcomm.HcclTeamDestroy")
def HcclTeamDestroy(team: TeamHandle) -> None:
    """End a team: a world team with its sub teams and windows.  Its channels are the communicator's, and stay.

    Refuses: 2 NULL; 6 no team; 1 the communicator's own, of HcclTeamGetLsaTeam
    Basis: D, S; C for 6, and the channels
    """
    if team.is_lsa:
        raise PARA.refusal(f"{team} is the communicator's own", "it ends with HcclCommDestroy")
    with team.comm.guard:
        drop(team, "HcclTeamDestroy")
        ended: list[HcommResource] = [*team.subs, *team.windows]
        for each in ended:
            machine.drop(each, "HcclTeamDestroy")
        for each in (team, *ended):
            team.comm.parts.remove(each)
    for window in team.windows:
        window.end()


@hcomm.call("hcomm.HcclTeamWindowRegister", out=1)
def HcclTeamWindowRegister(comm: CommHandle, worldTeam: Handle, localMem: Mem, flag: UInt32) -> int:
    """Make memory of this rank its part of a window of a team; all ranks do it in one order, with one size.

    The parts of the peers are reached from ``HcclTeamChannelsCreate`` on.  For memory inside a window of this team
    the call returns that window.

    Gives: window
    Refuses: 2 NULL, `addr` NULL; 6 the communicator, the team, memory that acl has not given out; 1 a sub team,
        another communicator's, `flag` but 0, type but DEVICE, `size` 0, memory of another device; 5 memory of several
        blocks, or of the host; 20 a host view of it lives; 22 suspended
    Basis: D, S; C for 5, 6, 20, 22, and for one size
    """
    parent = team_of(worldTeam, world=True, comm=comm)
    refuse_suspended(comm)
    wanted: header.CommMem = required("localMem", localMem)
    kind, address = field(wanted, "type", signed=True), field(wanted, "addr", bits=64)
    size = field(wanted, "size", bits=64)
    if flag or kind != CommMemType.COMM_MEM_TYPE_DEVICE:
        raise PARA.refusal(f"flag is {flag}, type of the CommMem {kind}", "pass 0, and COMM_MEM_TYPE_DEVICE")
    if not address:
        raise PTR.refusal("addr of the CommMem is NULL", "pass the address of device memory")
    if not size:
        raise PARA.refusal("size of the CommMem is 0", "pass the bytes of the memory")
    with comm.guard:
        team_of(worldTeam)  # another thread may have ended it, with all its windows
        for each in parent.windows:
            if each.offset_of(address, size) is not None:
                return each.handle
        window = TeamWindow(parent, memory(comm, "addr", address, size))
        window.offer()
        handle = keep(window)
        parent.next_window += 1
        parent.windows.append(window)
        parent.comm.parts.append(window)
    return handle


@hcomm.call("hcomm.HcclTeamWindowDeregister")
def HcclTeamWindowDeregister(worldTeam: TeamHandle, window: _TeamWindow) -> None:
    """End a window in this rank: its channels do not reach the peers' parts any more.

    Refuses: 2 NULL; 6 no team, no window; 1 another team's
    Basis: D; C for the codes
    """
    if window.team is not (worldTeam.world or worldTeam):
        raise PARA.refusal(f"{window} is not of {worldTeam}", "pass the team that it was registered with")
    with window.comm.guard:
        drop(window, "HcclTeamWindowDeregister")
        window.team.windows.remove(window)
        window.comm.parts.remove(window)
    window.end()


@hcomm.call("hcomm.HcclTeamChannelsCreate")
def HcclTeamChannelsCreate(comm: CommHandle, team: Handle, desc: TeamChannelsDesc) -> None:
    """Make channels to the other members, which call it too, and let all channels to them reach the team's windows.

    The channels are those of ``HcclChannelAcquire``: one for each engine, rank and protocol, which
    ``HcclChannelQuery`` returns; ``HcclChannelGetRemoteMems`` lists the windows.  Without a protocol, the team's
    counts, else that of ``HcclRankGraphGetLinks``.  It may be called again, after further windows were registered.

    Refuses: 2 NULL; 6 the communicator, the team, a member without links in `netLayer` of the team, or it was
        destroyed meanwhile, a rank has ended a window; 1 another communicator's team, not initialised, `channelCnt`
        0, above 64 notifies, no engine, another protocol than the team's, windows of other sizes; 5 engines AIV and
        CCU, `channelCnt` above 1, protocols of plugins, other protocols than ROCE and UBOE between servers, windows
        and members of two servers; 9 a member did not come, or did not register a window; 19 it cannot be opened; 20
        another thread acquires; 21 a member died; 24 no room for the HcclBuffer
    Basis: D, S; C for all engines but AIV, and the codes 5, 9, 19, 20, 21, 24
    """
    joined = team_of(team, comm=comm)
    wanted: header.HcclTeamCreateChannelsDesc = required("desc", desc)
    _refuse_raw(wanted, header.HcclTeamCreateChannelsDesc)
    _connect(joined, wanted)
    _take_effect(joined, (joined.world or joined).windows)


def _take_effect(team: Team, windows: Sequence[Window]) -> None:
    fresh = [(each, peer) for each in tuple(windows) for peer in team.peers if each.reach(peer)]
    for window, peer in fresh:
        window.meet(peer)


def _connect(team: Team, desc: header.HcclTeamCreateDesc | header.HcclTeamCreateChannelsDesc) -> None:
    engine, protocol = (field(desc, each, signed=True) for each in ("engine", "protocol"))
    notifies, count = field(desc, "notifyNum"), field(desc, "channelCnt")
    if not count:
        raise PARA.refusal("channelCnt is 0", "set it to 1")
    refuse_engine(engine, cpu=True)
    refuse_notifies(notifies)
    if count > 1:
        raise NOT_SUPPORT.refusal(
            f"channelCnt is {count:,}; two ranks have one channel for each engine and protocol here, and kernels "
            "alone can tell several apart",
            "set it to 1",
        )
    if protocol == _NO_PROTOCOL:
        protocol = team.protocol
    else:
        refuse_protocol(protocol)
    if team.protocol not in (_NO_PROTOCOL, protocol):
        raise PARA.refusal(
            f"protocol is {protocol}, and that of {team} {team.protocol}", "a team has one protocol"
        )
    comm, own = team.comm, team.comm.group.rank
    keys: dict[tuple[int, int, int], int] = {}
    for peer in team.peers:
        known = protocols_of(comm, team.layer, own, peer) if team.layer in layers_of(comm) else []
        if not known:
            raise NOT_FOUND.refusal(
                f"no links to rank {peer} are in netLayer {team.layer} of {team}; layer 0 is within a server, and "
                "several servers have layer 1",
                "make the team with a netLayer for which HcclRankGraphGetLinks gives links",
            )
        chosen = protocol if protocol >= 0 else known[0]
        comm.servers.refuse_unjoined(own, peer, chosen)
        keys[engine, peer, chosen] = notifies
    acquire(comm, keys)


@hcomm.call("hcomm.HcclTeamCreate", out=1)
def HcclTeamCreate(comm: CommHandle, desc: RequiredTeamDesc) -> int:
    """Make a team with its channels, as newer versions do; its members call it, and wait for one another.

    All channels to them reach the symmetric windows of the communicator, which all have registered in one order.

    Gives: team
    Refuses: as `HcclWorldTeamCreate`; as `HcclTeamChannelsCreate`; 1 protocols but UB_CTP, UBC_TP, UBOE and UB_RTP; 5
        shared queues
    Basis: D, S; C for all engines but AIV
    """
    team = _planned(comm, None, desc)
    if team.protocol not in _URMA:
        raise PARA.refusal(
            f"protocol is {team.protocol}; this call takes UB_CTP, UBC_TP, UBOE and UB_RTP",
            "set COMM_PROTOCOL_UB_CTP, or use HcclWorldTeamCreate and HcclTeamChannelsCreate",
        )
    if field(desc, "isSharedQueue"):
        raise NOT_SUPPORT.refusal(
            "queues are shared by channels of engine AIV only, and there are none", "set it to 0"
        )
    _connect(team, desc)
    _take_effect(team, windows_of(team.comm))
    return team.give()


@hcomm.call("hcomm.HcclTeamGetLsaTeam", out=1)
def HcclTeamGetLsaTeam(comm: CommHandle) -> int:
    """Return the team of all ranks that reach this one's memory by addresses: those of its server, in their order.

    The team belongs to the communicator, and the program does not destroy it.  Newer versions have this call.

    Gives: team
    Refuses: 2 NULL; 6 the communicator
    Basis: D, S; C for which ranks
    """
    with comm.guard:
        for each in teams_of(comm):
            if each.is_lsa:
                return each.handle
        ranks = comm.servers.ranks_with(comm.group.rank)
        team = Team(comm, None, ranks, 0, int(CommProtocol.COMM_PROTOCOL_UB_MEM))
        team.is_lsa = True
        return team.give()


@hcomm.call("hcomm.HcclTeamMemberToRank", out=1)
def HcclTeamMemberToRank(comm: CommHandle, team: Handle, memberId: UInt32) -> int:
    """Return the rank of a member of a team.

    Gives: rank
    Refuses: 2 NULL; 6 the communicator, the team; 1 another communicator's team, the member
    Basis: D, S
    """
    ranks = team_of(team, comm=comm).ranks
    if memberId >= len(ranks):
        raise PARA.refusal(f"memberId is {memberId:,}; valid are 0 to {len(ranks) - 1}", "pass a member")
    return ranks[memberId]


@hcomm.call("hcomm.HcclTeamRankToMember", out=1)
def HcclTeamRankToMember(comm: CommHandle, team: Handle, rankId: UInt32) -> int:
    """Return which member of a team a rank is.

    Gives: member
    Refuses: 2 NULL; 6 the communicator, the team, the rank is not a member; 1 another communicator's team
    Basis: D, S
    """
    joined = team_of(team, comm=comm)
    if rankId not in joined.ranks:
        raise NOT_FOUND.refusal(
            f"rank {rankId:,} is not a member of {joined}", f"pass one of {joined.ranks[:16]}"
        )
    return joined.ranks.index(rankId)
