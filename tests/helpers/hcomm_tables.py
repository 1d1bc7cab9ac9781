"""Calls of HCOMM and the codes they answer; a string argument may name an object of ``hcomm_world.World``."""

from __future__ import annotations

from typing import Any

from helpers.hcomm_context_tables import declare_contexts
from helpers.hcomm_team_tables import declare_teams

BIG = 1 << 32
_COMM = [("gone", 6), (4096, 6), (0, 2), (None, 2), ("thread", 6), (-1, 1), (1 << 64, 1)]
_THREAD = [("comm", 6), (4096, 6), (0, 2), (1 << 64, 1)]
_CHANNEL = [("comm", 6), (4096, 6), (0, 2), ("thread", 6)]
_MOVE = ("there", "here", 4)
_SUM = ("there", "here", 1, 4, 0)

#: Call, arguments, the code that it answers.
CASES: list[tuple[str, tuple[Any, ...], int]] = []


def _each(name: str, before: tuple[Any, ...], bad: list[tuple[Any, int]], *after: Any) -> None:
    CASES.extend((name, (*before, value, *after), code) for value, code in bad)


def _one(name: str, code: int, *args: Any) -> None:
    CASES.append((name, args, code))


def _communicators() -> None:
    for name in ("HcclGetRankId", "HcclGetRankSize", "HcclGetCommName", "HcclGetCommAsyncError"):
        _one(name, 0, "comm")
        _each(name, (), _COMM)
    for name in ("HcclGetHcclBuffer", "HcclGetHcclBufferCleared", "HcclCommSuspend", "HcclCommResume"):
        _one(name, 0, "comm")
        _each(name, (), _COMM)
    for name in ("HcclGetHeterogMode", "HcclRankGraphGetLayers"):
        _one(name, 0, "comm")
        _each(name, (), _COMM)
    _one("HcclCommDestroy", 0, "comm")
    _each("HcclCommDestroy", (), _COMM)
    _one("HcclGetRootInfo", 0)
    _one("HcclCommInitRootInfo", 0, 1, "info", 0)
    _each("HcclCommInitRootInfo", (), [(0, 1), (BIG, 1), (1025, 1)], "info", 0)
    _each("HcclCommInitRootInfo", (1,), [(None, 2), (b"x", 1)], 0)
    _one("HcclCommInitRootInfoConfig", 0, 1, "info", 0, "config")
    _one("HcclCommInitRootInfoConfig", 2, 1, "info", 0, None)
    _one("HcclCommInitClusterInfo", 0, "table", 0)
    _each("HcclCommInitClusterInfo", (), [(None, 2), ("nowhere", 10), ("", 1)], 0)
    _one("HcclCommInitClusterInfo", 1, "table", 1)
    _one("HcclCommInitClusterInfoConfig", 0, "table", 0, "config")
    _one("HcclCommInitClusterInfoConfig", 2, "table", 0, None)
    _one("HcclCommInitAll", 0, 1, [0])
    _each("HcclCommInitAll", (1,), [(None, 2), ([], 1), ([9], 1), ([1 << 40], 1)])
    sub = "HcclCreateSubCommConfig"
    _one(sub, 0, "comm", 1, [0], 1, 0, "config")
    _each(sub, (), _COMM, 1, [0], 1, 0, "config")
    _each(sub, ("comm", 1), [(None, 2), ([2], 1), ([1], 1)], 1, 0, "config")
    _one(sub, 2, "comm", 1, [0], 1, 0, None)
    _one("HcclCommConfigInit", 0, "config")
    _one("HcclCommConfigInit", 2, None)
    for name in ("HcclCommGetHandleWithName", "HcommAcquireComm"):
        _one(name, 0, "name")
        _each(name, (), [(None, 2), ("nobody", 6), ("", 6)])
    _each("HcommReleaseComm", (), [(None, 2), ("nobody", 6), ("name", 1)])
    _one("HcclCommGetStatus", 0, "name")
    _one("HcclCommGetStatus", 2, None)
    _one("HcclSetConfig", 0, 0, 2)
    _each("HcclSetConfig", (), [(1, 5), (-1, 5), (1 << 40, 1)], 0)
    _one("HcclSetConfig", 1, 0, 3)
    _one("HcclGetConfig", 0, 0)
    _one("HcclGetConfig", 5, 1)
    _one("HcclCommRegCommStateCallback", 0, "x", print, None)
    _one("HcclCommRegCommStateCallback", 2, None, print, None)
    _one("HcclCommRegCommStateCallback", 2, "x", None, None)


def _resources() -> None:
    _one("HcclCommMemReg", 0, "comm", "tag", "mem")
    _each("HcclCommMemReg", (), _COMM, "tag", "mem")
    _each("HcclCommMemReg", ("comm",), [(None, 2), ("", 1), ("x" * 256, 1), ("HcclBuffer", 1)], "mem")
    _one("HcclCommMemReg", 2, "comm", "tag", None)
    acquire = "HcclThreadAcquire"
    _one(acquire, 0, "comm", 1, 3, 4)
    _one(acquire, 0, "comm", 3, 1, 0)
    _each(acquire, (), _COMM, 1, 1, 1)
    _each(acquire, ("comm",), [(0, 5), (2, 0), (4, 5), (5, 5), (-1, 1), (6, 1), (1 << 31, 1)], 1, 1)
    _each(acquire, ("comm", 1), [(0, 1), (BIG, 1), (100_000, 7)], 1)
    _each(acquire, ("comm", 1, 1), [(65536, 1), (65535, 7)])
    config = "HcclThreadAcquireWithConfig"
    _one(config, 0, "comm", 0, 1, 0, "thread configs")
    _one(config, 5, "comm", 1, 1, 1, "thread configs")
    _one(config, 1, "comm", 1, 2, 0, "thread configs")
    _one(config, 1, "comm", 1, 0, 0, "thread configs")
    _one(config, 2, "comm", 1, 1, 0, None)
    stream = "HcclThreadAcquireWithStream"
    _one(stream, 0, "comm", 1, "stream", 4)
    _each(stream, (), _COMM, 1, "stream", 1)
    _each(stream, ("comm",), [(2, 0), (4, 5), (5, 5), (-1, 1), (6, 1)], "stream", 1)
    _each(stream, ("comm", 1), [(0, 2), (None, 2), (4096, 6), ("comm", 6)], 1)
    _each(stream, ("comm", 1, "stream"), [(65536, 1), (BIG, 1)])
    _one(stream, 1, "other comm", 1, "stream", 1)
    dedicated = "HcclDedicatedThreadAcquire"
    _one(dedicated, 0, "comm", 0, 64)
    _each(dedicated, ("comm",), [(-1, 1), (6, 1)], 1)
    _one(dedicated, 1, "comm", 0, 65)
    export = "HcclThreadExportToCommEngine"
    _one(export, 0, "comm", 1, ["thread"], 3)
    _one(export, 6, "comm", 1, [4096], 3)
    _one(export, 1, "comm", 2, ["thread"], 3)
    _one(export, 2, "comm", 1, None, 3)
    _one(export, 5, "comm", 1, ["thread"], 4)
    info = "HcclThreadResGetInfo"
    _one(info, 0, "comm", "thread", 0, 8)
    _one(info, 5, "comm", "slave", 0, 8)
    _one(info, 5, "comm", "basic thread", 0, 8)
    _one(info, 1, "comm", "thread", 1, 8)
    _one(info, 1, "comm", "thread", 0, 4)
    _each(info, ("comm",), _THREAD, 0, 8)
    _one("HcclChannelDescInit", 0, "raw descs", 1)
    _one("HcclChannelDescInit", 0, None, 0)
    _one("HcclChannelDescInit", 2, None, 1)
    _one("HcclChannelDescInit", 1, "raw descs", 2)
    _one("HcommChannelDescInit", 0, "basic descs", 1)
    _one("HcommChannelDescInit", 2, None, 1)
    for name in ("HcclChannelAcquire", "HcclChannelQuery"):
        _one(name, 0, "comm", 1, "descs", 1)
        _each(name, (), _COMM, 1, "descs", 1)
        _each(name, ("comm",), [(4, 5), (5, 5), (-1, 1), (6, 1)], "descs", 1)
        _each(name, ("comm", 1), [(None, 2), ([], 1), ("raw descs", 1)], 1)
        _each(name, ("comm", 1, "descs"), [(0, 1), (2, 1), (1048577, 1), (BIG, 1)])
    _one("HcclChannelDestroy", 5, "comm", ["channel"], 1)
    _one("HcclChannelDestroy", 6, "comm", [4096], 1)
    _one("HcclChannelDestroy", 2, "comm", None, 1)
    _one("HcclChannelDestroy", 1, "comm", [], 0)
    for name in ("HcclChannelGetHcclBuffer", "HcclChannelGetRemoteMems", "HcclChannelGetNotifyNum"):
        _one(name, 0, "comm", "channel")
        _each(name, (), _COMM, "channel")
        _each(name, ("comm",), _CHANNEL)
        _one(name, 6, "other comm", "channel")


def _graph() -> None:
    for name in (
        *(
            "HcclRankGraphGetRanksByLayer",
            "HcclRankGraphGetRankSizeByLayer",
            "HcclRankGraphGetTopoTypeByLayer",
        ),
        *("HcclRankGraphGetInstSizeListByLayer", "HcclRankGraphGetTopoInstsByLayer"),
    ):
        _one(name, 0, "comm", 0)
        _each(name, (), _COMM, 0)
        _each(name, ("comm",), [(1, 1), (BIG, 1)])
    for name in (
        *("HcclRankGraphGetTopoType", "HcclRankGraphGetRanksByTopoInst", "HcclRankGraphGetEndpointNum"),
    ):
        _one(name, 0, "comm", 0, 0)
        _each(name, ("comm",), [(1, 1)], 0)
        _one(name, 1, "comm", 0, 1)
    _one("HcclRankGraphGetLinks", 0, "comm", 0, 0, 1)
    _one("HcclRankGraphGetLinks", 1, "comm", 0, 0, 2)
    _one("HcclRankGraphGetLinks", 1, "comm", 1, 0, 1)
    _one("HcclRankGraphGetEndpointDesc", 0, "comm", 0, 0, 1)
    _one("HcclRankGraphGetEndpointDesc", 1, "comm", 0, 0, 2)
    endpoint = "HcclRankGraphGetEndpointInfo"
    _one(endpoint, 0, "comm", 0, "endpoint desc", 0, 4)
    _one(endpoint, 2, "comm", 0, None, 0, 4)
    _one(endpoint, 1, "comm", 2, "endpoint desc", 0, 4)
    _one(endpoint, 1, "comm", 0, "endpoint desc", 3, 4)
    _one(endpoint, 1, "comm", 0, "endpoint desc", 0, 8)
    for name, kind in (("CommLinkInit", "links"), ("EndpointDescInit", "endpoints")):
        _one(name, 0, kind, 1)
        _one(name, 1, kind, 2)
        _one(name, 2, None, 1)


def _local() -> None:
    copy = "HcommLocalCopyOnThread"
    _one(copy, 0, "thread", "here", "stray", 4)
    _one(copy, 0, "thread", "here", "here", 0)
    _one(copy, 0, "cpu", "here", "there", 4)
    _each(copy, (), _THREAD, "here", "stray", 4)
    for bad, code in ((0, 2), (None, 2), ("host", 6), (4096, 6), ("end", 6)):
        _one(copy, code, "thread", bad, "here", 8)
        _one(copy, code, "thread", "here", bad, 8)
    reduce = "HcommLocalReduceOnThread"
    _one(reduce, 0, "thread", "here", "stray", 4, 4, 0)
    _each(reduce, (), _THREAD, "here", "stray", 4, 4, 0)
    _each(reduce, ("thread", "here", "stray", 4), [(5, 1), (7, 1), (10, 1), (13, 1), (255, 1), (-1, 1)], 0)
    _each(reduce, ("thread", "here", "stray", 4, 4), [(1, 1), (4, 1), (255, 1)])
    _one(reduce, 2, "thread", 0, "stray", 4, 4, 0)
    _one(reduce, 6, "thread", "here", "stray", 2048, 4, 0)
    _one(reduce, 6, "thread", "here", "stray", (1 << 64) - 1, 4, 0)
    record = "HcommThreadNotifyRecordOnThread"
    _one(record, 0, "thread", "slave", 0)
    _each(record, (), _THREAD, "slave", 0)
    _each(record, ("thread",), _THREAD, 0)
    _each(record, ("thread", "slave"), [(1, 1), (BIG, 1)])
    wait = "HcommThreadNotifyWaitOnThread"
    _each(wait, (), _THREAD, 0, 1)
    _each(wait, ("thread",), [(2, 1), (BIG, 1)], 1)
    _one(wait, 1, "cpu", 0, 0)
    _each(f"{wait}WithDefaultTimeout", (), _THREAD, 0)
    _one(f"{wait}WithDefaultTimeout", 1, "thread", 2)
    _one("HcommAclrtNotifyRecordOnThread", 0, "thread", "notify")
    for name, after in (("HcommAclrtNotifyRecordOnThread", ()), ("HcommAclrtNotifyWaitOnThread", (1,))):
        _each(name, (), _THREAD, "notify", *after)
        _each(name, ("thread",), [(1 << 63, 6)], *after)
    _one("HcommThreadJoin", 0, "thread", 5)
    _each("HcommThreadJoin", (), _THREAD, 1)
    for name in ("HcommSetNotifyWaitTimeOut", "HcommThreadResAcquireTimeOut"):
        _one(name, 0, 5.0)
        _each(name, (), [(-1.0, 1), (0.5, 1), (1e40, 1), (10**400, 1)])


def _remote() -> None:
    for name, args, reads in (
        ("HcommWriteOnThread", _MOVE, False),
        ("HcommReadOnThread", ("here", "there", 4), True),
        ("HcommWriteReduceOnThread", _SUM, False),
        ("HcommReadReduceOnThread", ("here", "there", 1, 4, 0), True),
        ("HcommWriteWithNotifyOnThread", (*_MOVE, 0), False),
        ("HcommWriteReduceWithNotifyOnThread", (*_SUM, 0), False),
    ):
        _one(name, 0, "thread", "channel", *args)
        _each(name, (), _THREAD, "channel", *args)
        _each(name, ("thread",), _CHANNEL, *args)
        _one(name, 1, "cpu", "channel", *args)
        _one(name, 1, "thread", "by card", *args)
        far, near = (1, 0) if reads else (0, 1)
        nbytes = {2: 8} if "Reduce" not in name else {2: 2}
        for bad, code in ((0, 2), (4096, 6), ("stray", 6), ("their end", 6), ("here", 6), ("host", 6)):
            changed = {**dict(enumerate(args)), far: bad, **nbytes}
            _one(name, code, "thread", "channel", *changed.values())
        for bad, code in ((0, 2), (4096, 6), ("host", 6), ("end", 6), ("stray", 0)):
            changed = {**dict(enumerate(args)), near: bad, **nbytes}
            _one(name, code, "thread", "channel", *changed.values())
        if name != "HcommWriteReduceWithNotifyOnThread":
            changed = {**dict(enumerate(args)), near: "stray"}
            _one(name, 6, "cpu", "by card", *changed.values())
            _one(name, 0, 0, "by card", *args)
        if "Reduce" in name:
            rest = args[5:]
            _each(name, ("thread", "channel", *args[:3]), [(5, 1), (10, 1), (13, 1), (-1, 1)], 0, *rest)
            _each(name, ("thread", "channel", *args[:4]), [(1, 1), (255, 1)], *rest)
    _each("HcommWriteWithNotifyOnThread", ("thread", "channel", *_MOVE), [(2, 1), (BIG, 1)])
    _one("HcommWriteReduceWithNotifyOnThread", 5, "cpu", "by card", *_SUM, 0)
    for name, args in (
        ("HcommWriteNbi", _MOVE),
        ("HcommReadNbi", ("here", "there", 4)),
        ("HcommWriteWithNotifyNbi", (*_MOVE, 0)),
    ):
        for full, first in ((name, ()), (f"{name}OnThread", (0,))):
            _one(full, 0, *first, "by card", *args)
            _one(full, 5, *first, "channel", *args)
            _each(full, first, _CHANNEL, *args)
            _one(full, 1, *first, "by card", *args[:2], 0, *args[3:])
            _one(full, 2, *first, "by card", 0, *args[1:])
            _one(full, 6, *first, "by card", 4096, *args[1:])
    _one("HcommWriteWithNotifyNbi", 1, "by card", *_MOVE, 2)
    batch = "HcommBatchTransferOnThread"
    _one(batch, 0, "thread", "channel", "transfers", 1)
    _each(batch, ("thread", "channel"), [(None, 2), ([], 1)], 1)
    _each(batch, ("thread", "channel", "transfers"), [(0, 1), (2, 1)])
    _one(batch, 5, "cpu", "by card", "transfers", 1)


def _signals() -> None:
    record, wait = "HcommChannelNotifyRecordOnThread", "HcommChannelNotifyWaitOnThread"
    _one(record, 0, "thread", "channel", 1)
    for name, after in ((record, (0,)), (wait, (0, 1)), (f"{wait}WithDefaultTimeout", (0,))):
        _each(name, (), _THREAD, "channel", *after)
        _each(name, ("thread",), _CHANNEL, *after)
        _each(name, ("thread", "channel"), [(2, 1), (BIG, 1), (-1, 1)], *after[1:])
        _one(name, 1, "cpu", "channel", *after)
    _one(wait, 1, 0, "by card", 0, 0)
    _one(wait, 9, 0, "by card", 0, 1)
    _one("HcommChannelNotifyRecord", 0, "by card", 0)
    _one("HcommChannelNotifyRecord", 5, "channel", 0)
    _one("HcommChannelNotifyRecord", 1, "by card", 2)
    _one("HcommChannelNotifyWait", 5, "channel", 0, 1)
    _one("HcommChannelNotifyWait", 1, "by card", 0, 0)
    _one("HcommChannelNotifyWait", 1, "by card", 2, 1)
    for name in ("HcommChannelFenceOnThread", "HcommChannelDrainOnThread"):
        _one(name, 0, "thread", "channel")
        _one(name, 0, 0, "by card")
        _each(name, (), _THREAD, "channel")
        _each(name, ("thread",), _CHANNEL)
    _one("HcommChannelFence", 0, "by card")
    _each("HcommChannelFence", (), _CHANNEL)
    _each("HcommFenceOnThread", (), [(0, 0), ("thread", 0), ("comm", 6), (4096, 6)])
    _one("HcommBatchModeStart", 0, None)
    _one("HcommBatchModeEnd", 1, "never begun")


def _basic() -> None:
    endpoint = [("gone", 6), (4096, 6), (0, 2), ("comm", 6)]
    _one("HcommEndpointCreate", 0, "endpoint desc")
    _one("HcommEndpointCreate", 2, None)
    _one("HcommEndpointDestroy", 0, "endpoint")
    _one("HcommEndpointGetListenPort", 0, "endpoint")
    for name, after in (
        ("HcommEndpointDestroy", ()),
        ("HcommEndpointGetListenPort", ()),
        ("HcommMemReg", ("t", "mem")),
        ("HcommMemUnreg", ("memory",)),
        ("HcommMemExport", ("memory",)),
        ("HcommMemImport", ("said", "said bytes")),
        ("HcommMemUnimport", ("said", "said bytes")),
        ("HcommChannelCreate", (1, "basic descs", 1)),
    ):
        _each(name, (), endpoint, *after)
    _one("HcommMemReg", 0, "endpoint", "t", "mem")
    _each("HcommMemReg", ("endpoint",), [(None, 2), ("tag", 1), ("", 1), ("window", 1)], "mem")
    for name in ("HcommMemUnreg", "HcommMemExport"):
        _one(name, 0, "endpoint", "memory")
        _each(name, ("endpoint",), [(0, 2), (4096, 6)])
    _one("HcommMemImport", 0, "endpoint", "said", "said bytes")
    for name in ("HcommMemImport", "HcommMemUnimport"):
        _one(name, 2, "endpoint", None, 0)
        _one(name, 1, "endpoint", b"x", 1)
        _one(name, 1, "endpoint", "said", 5000)
        _one(name, 1, "endpoint", b'["peerlane memory 1", "", 5, 5]', 31)
    _one("HcommMemImport", 1, "endpoint", b'["peerlane memory 1", "", "x", 5]', 33)
    _one("HcommMemUnimport", 6, "endpoint", "said", "said bytes")
    _one("HcommMemAlloc", 0, 64)
    _each("HcommMemAlloc", (), [(0, 1), (1 << 50, 24), (1 << 64, 1)])
    _each("HcommMemFree", (), [(0, 2), (4096, 6), ("stray", 0)])
    create = "HcommChannelCreate"
    _one(create, 0, "endpoint", 1, "basic descs", 1)
    _each(create, ("endpoint",), [(4, 5), (-1, 1)], "basic descs", 1)
    _each(create, ("endpoint", 1), [(None, 2), ([], 1)], 1)
    _one(create, 1, "endpoint", 1, "basic descs", 0)
    _each("HcommChannelGetStatus", (), [(["channel"], 0), ([4096], 6), (None, 2), ([], 1)], 1)
    _each("HcommChannelDestroy", (), [(["channel"], 5), ([4096], 6), (None, 2), ([], 1)], 1)
    alloc = "HcommThreadAlloc"
    _one(alloc, 0, 1, 2, [1, 64])
    _each(alloc, (), [(2, 0), (4, 5), (-1, 1)], 1, [1])
    _each(alloc, (1,), [(0, 1), (201, 1), (2, 1)], [1])
    _each(alloc, (1, 1), [(None, 2), ([65], 1), ([BIG], 1)])
    _each("HcommThreadFree", (), [(["basic thread"], 0), (["thread"], 5), ([4096], 6), (None, 2)], 1)


def _collectives() -> None:
    """Of each call: its arguments, by what they are; with one rank all of them work."""
    send, recv, count, dtype, op, root = "stray", "here", 8, 4, 0, 0
    one, zero = [8], [0]
    shapes: dict[str, dict[str, Any]] = {
        "HcclAllReduce": {"send": send, "recv": recv, "count": count, "reduced": dtype, "op": op},
        "HcclReduce": {"send": send, "recv": recv, "count": count, "reduced": dtype, "op": op, "root": root},
        "HcclReduceScatter": {"send": send, "recv": recv, "count": count, "reduced": dtype, "op": op},
        "HcclReduceScatterV": {
            "send": send,
            "counts": one,
            "offsets": zero,
            "recv": recv,
            "own": count,
            "reduced": dtype,
            "op": op,
        },
        "HcclBroadcast": {"send": send, "count": count, "moved": dtype, "root": root},
        "HcclScatter": {"send": send, "recv": recv, "count": count, "moved": dtype, "root": root},
        "HcclAllGather": {"send": send, "recv": recv, "count": count, "moved": dtype},
        "HcclAllGatherV": {
            "send": send,
            "own": count,
            "recv": recv,
            "counts": one,
            "offsets": zero,
            "moved": dtype,
        },
        "HcclAlltoAll": {
            "send": send,
            "own": count,
            "type": dtype,
            "recv": recv,
            "own too": count,
            "type too": dtype,
        },
        "HcclAlltoAllV": {
            "send": send,
            "counts": one,
            "offsets": zero,
            "type": dtype,
            "recv": recv,
            "counts too": one,
            "offsets too": zero,
            "type too": dtype,
        },
        "HcclAlltoAllVC": {"send": send, "counts": one, "type": dtype, "recv": recv, "type too": dtype},
        "HcclBarrier": {},
    }
    counts = [(None, 2), ([], 1), ([1 << 65], 1)]
    bad: dict[str, list[tuple[Any, int]]] = {
        "send": [(0, 2), (None, 2), ("host", 6), ("stray end", 6), (1 << 64, 1)],
        "recv": [(0, 2), (None, 2), ("host", 6), ("end", 6)],
        "count": [(1 << 36, 1), (1 << 64, 1), (2000, 6)],
        "own": [(9, 1)],
        "own too": [(9, 1)],
        "reduced": [(7, 5), (9, 5), (12, 5), (13, 5), (14, 5), (255, 5), (-1, 5), (1 << 40, 1)],
        "moved": [(12, 5), (13, 5), (18, 5), (255, 5), (-1, 5), (1 << 40, 1)],
        "type": [(5, 1), (1 << 40, 1)],
        "type too": [(5, 1)],
        "op": [(4, 5), (255, 5), (-1, 5), (1 << 40, 1)],
        "root": [(1, 1), (BIG, 1)],
        "counts": [*counts, ([1 << 36], 1)],
        "counts too": counts,
        "offsets": [*counts, ([1 << 40], 6)],
        "offsets too": [*counts, ([1 << 40], 6)],
    }
    for name, shape in shapes.items():
        _one(name, 0, *shape.values(), "alone", "stream")
        _each(name, tuple(shape.values()), _COMM, "stream")
        _each(name, (*shape.values(), "alone"), [(0, 2), (None, 2), (4096, 6), ("comm", 6)])
        _one(name, 1, *shape.values(), "other comm", "stream")
        for part in shape:
            for value, code in bad[part]:
                _one(name, code, *{**shape, part: value}.values(), "alone", "stream")
    for name in ("HcclAllReduce", "HcclReduce", "HcclReduceScatter"):
        for dtype in (1, 11):  # products of int16 and bfp16
            changed = {**shapes[name], "reduced": dtype, "op": 1}
            _one(name, 5, *changed.values(), "alone", "stream")
            _one(name, 0, *{**changed, "op": 2}.values(), "alone", "stream")
        _one(name, 0, *{**shapes[name], "count": 0, "send": 0, "recv": 0}.values(), "alone", "stream")
        _one(name, 0, *{**shapes[name], "recv": send}.values(), "alone", "stream")  # in place
    for name in ("HcclReduceScatterV", "HcclAllGatherV", "HcclAlltoAll", "HcclAlltoAllV", "HcclAlltoAllVC"):
        _one(name, 1, *{**shapes[name], "recv": send}.values(), "alone", "stream")
    for name in ("HcclSend", "HcclRecv"):
        _each(name, ("here", 8, 4, 1), _COMM, "stream")
        _each(name, ("here", 8, 4, 1, "comm"), [(0, 2), (4096, 6), ("comm", 6)])
        _each(name, (), [(0, 2), ("host", 6), ("end", 6)], 8, 4, 1, "comm", "stream")
        _each(name, ("here",), [(1 << 36, 1), (1 << 64, 1)], 4, 1, "comm", "stream")
        _each(name, ("here", 8), [(12, 5), (255, 5), (1 << 40, 1)], 1, "comm", "stream")
        _each(name, ("here", 8, 4), [(2, 1), (0, 5), (BIG, 1)], "comm", "stream")
    batch = "HcclBatchSendRecv"
    _one(batch, 0, "items", 2, "alone", "stream")
    _one(batch, 0, None, 0, "alone", "stream")
    _each(
        batch,
        (),
        [(None, 2), ([], 1), ("odd items", 1), ("far items", 1), ("items", 1)],
        1,
        "alone",
        "stream",
    )
    _each(batch, ("items", 2), _COMM, "stream")
    _each(batch, ("items", 2, "alone"), [(0, 2), (4096, 6), ("comm", 6)])
    _one("HcclGroupEnd", 5)
    _one("HcclGroupStart", 0)


def _windows() -> None:
    register = "HcclCommSymWinRegister"
    _one(register, 0, "alone", "stray", 4096, 1)
    _each(register, (), _COMM, "stray", 4096, 0)
    _each(register, ("comm",), [(0, 2), (None, 2), ("host", 6), ("stray end", 6)], 4096, 0)
    _each(register, ("comm", "stray"), [(0, 1), (4097, 6)], 0)
    _each(register, ("comm", "stray", 64), [(2, 1), (BIG, 1)])
    _one("HcclCommSymWinGet", 0, "comm", "stray", 4096)
    _each("HcclCommSymWinGet", (), _COMM, "stray", 1)
    _each("HcclCommSymWinGet", ("comm",), [(0, 6), ("here", 6)], 1)
    _one("HcclCommSymWinGet", 6, "comm", "stray", 4097)
    _one("HcclCommSymWinGet", 6, "alone", "stray", 1)
    pointer = "HcclSymWinGetPeerPointer"
    _one(pointer, 0, "symmetric", 4095, 0)
    _each(pointer, (), [(0, 2), (4096, 6), ("comm", 6)], 0, 0)
    _each(pointer, ("symmetric",), [(4096, 1), (1 << 64, 1)], 0)
    _each(pointer, ("symmetric", 0), [(2, 1), (BIG, 1), (1, 9)])
    _each("HcclCommSymWinDeregister", (), [("symmetric", 0), (0, 2), (4096, 6), ("comm", 6)])
    _one(pointer, 0, "team window", 0, 1)
    _one(pointer, 20, "silent window", 0, 1)
    _one("HcclCommSymWinDeregister", 6, "team window")


for _declare in (
    *(
        _communicators,
        _resources,
        _graph,
        _local,
        _remote,
        _signals,
        _basic,
        _collectives,
        _windows,
    ),
):
    _declare()
declare_contexts(_one, _each, _COMM, _THREAD)
declare_teams(_one, _each, _COMM)
