"""Observers in the ranks of one program: they see exports, imports and signals, and break nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.launched import Launched

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(120)]

SECONDS = 60.0

_START = """
import os, signal, sys
import numpy as np
import peerlane as pl
from peerlane.diagnostics.log import observers
seen = observers.Recorder()
observers.set_observer(seen)
def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()
"""

_ALL = """
group = pl.Group(window=4096)
me, peer = group.rank, 1 - group.rank
more = group.device.allocate(4096)
group.register(more, "more")
with group.device.create_stream() as stream:
    channel = group.channel(peer, notifies=3)
    assert len(seen.notices("export", "Ends")) == 0
    mine = {line.id for line in channel._incoming}
    exported = {notice.id for notice in seen.notices("export", "Notify")}
    assert mine <= exported, (mine, exported)
    assert {line.id for line in channel._outgoing} <= {notice.id for notice in seen.notices("import", "Notify")}
    assert {group.window.id, more.id} <= {notice.id for notice in seen.notices("export", "Buffer")}
    assert len(seen.notices("import", "Physical")) == 2
    spans = [notice.spans for notice in seen.notices("export", "Buffer") if notice.id == more.id]
    assert [(span.size, span.written) for span in spans[0]] == [(4096, False)], spans
    channel.write(bytes([me + 7]) * 8, memory="more", notify=0, stream=stream)
    channel.wait(0, timeout=30)
    channel.drain(stream=stream)
    assert bytes(more.view()[:8]) == bytes([peer + 7]) * 8
    wrote = [op for op in seen.operations("started", "copy") if any(span.written for span in op.spans)]
    block = next(span.block for notice in seen.notices("export", "Buffer") if notice.id == more.id
                 for span in notice.spans)
    assert wrote and all(span.block != block for op in wrote for span in op.spans)
    assert len(seen.operations("started", "notify")) >= 1
    assert len(seen.operations("started", "wait_notify")) >= 1
    total = np.full(1000, me + 1, np.float32)
    group.all_reduce(total, dtype="float32", stream=stream)
    stream.sync()
    assert (total == 3).all()
    group.barrier()
    ended = channel._incoming[0].id
    channel.close()
    assert ended in {notice.id for notice in seen.notices("destroy", "Notify")}
group.close()
say("fine", me)
"""

_DEATH = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # launch ends the others at once
group = pl.Group(window=4096)
channel = group.channel(1 - group.rank)
if group.rank:
    channel.wait(0, timeout=30)
    os.kill(os.getpid(), signal.SIGKILL)
channel.notify(0)
try:
    channel.wait(0, timeout=30)
except pl.PeerLost as error:
    say("lost", "rank 1" in str(error))
group.close()
"""

_SHARED = """
group = pl.Group(window=4096)
line = group._meeting.rendezvous
peer = 1 - group.rank
pid = group.members[peer].pid
with group.device.create_notify() as notify, group.device.create_event() as event:
    with group.device.allocate(4096) as buffer, notify.export(allow=[pid]) as one, event.export(allow=[pid]) as two:
        with buffer.export(allow=[pid]) as three:
            for number, each in enumerate((one, two, three)):
                line.put(f"shared/{number}/{group.rank}", bytes(each))
            got = [line.get(f"shared/{number}/{peer}", timeout=30).decode() for number in range(3)]
            with pl.Notify.open(got[0]) as theirs, pl.Event.open(got[1]) as other, pl.Buffer.open(got[2]) as memory:
                for what, each in (("Notify", theirs), ("Event", other)):
                    assert each.id in {notice.id for notice in seen.notices("import", what)}
                assert len(seen.notices("import", "Physical")) == 1
                for what, each in (("Notify", notify), ("Event", event), ("Buffer", buffer)):
                    assert [notice.id for notice in seen.notices("export", what)][-1] == each.id
                group.barrier()
group.close()
say("fine", group.rank)
"""

_HCOMM = """
from peerlane.dialects import acl, hcomm
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
def ok(result):
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, (ret, hcomm.explain())
    return outputs[0] if len(outputs) == 1 else outputs
ok(acl.rt.set_device(rank))
comm = ok(hcomm.HcclCommInitClusterInfo(sys.argv[1], rank))
buffer, _ = ok(hcomm.HcclGetHcclBuffer(comm))
stream = ok(acl.rt.create_stream())
thread = ok(hcomm.HcclThreadAcquireWithStream(comm, hcomm.COMM_ENGINE_CPU_TS, stream, 2))
desc = hcomm.HcclChannelDesc()
ok(hcomm.HcclChannelDescInit([desc], 1))
desc.remoteRank, desc.channelProtocol, desc.notifyNum = 1 - rank, hcomm.COMM_PROTOCOL_HCCS, 2
[channel] = ok(hcomm.HcclChannelAcquire(comm, hcomm.COMM_ENGINE_CPU_TS, [desc], 1))
theirs, _ = ok(hcomm.HcclChannelGetHcclBuffer(comm, channel))
ok(acl.rt.memset(buffer, 64, rank + 3, 64))
ok(hcomm.HcommWriteWithNotifyOnThread(thread, channel, theirs + 64, buffer, 64, 0))
ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 30))
ok(acl.rt.synchronize_stream(stream))
found = bytearray(64)
ok(acl.rt.memcpy(pl.as_buffer(found).address, 64, buffer + 64, 64, 2))
assert found == bytes([4 - rank]) * 64
ok(hcomm.HcclAllReduce(buffer, buffer + 4096, 16, hcomm.HCCL_DATA_TYPE_INT32, hcomm.HCCL_REDUCE_SUM, comm, stream))
ok(acl.rt.synchronize_stream(stream))
ok(hcomm.HcclBarrier(comm, stream))
ok(acl.rt.synchronize_stream(stream))
ok(hcomm.HcclCommDestroy(comm))
assert seen.notices("export", "Notify") and seen.operations("started", "wait_notify")
say("fine", rank)
"""


@pytest.fixture
def launched(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(program: str, *words: str, size: int = 2) -> tuple[int, list[str], str]:
        path = tmp_path / "program.py"
        path.write_text(_START + program)
        with Launched(["-n", str(size), str(path), *words], env=dict(os.environ), cwd=tmp_path) as started:
            done = started.end(SECONDS)
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr

    return run


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:5"])
@pytest.mark.parametrize("program", [_ALL, _SHARED], ids=["groups", "shared objects"])
def test_observer_in_each_rank_sees_exports_and_imports(
    launched,
    program: str,
    schedule: str,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    code, lines, stderr = launched(program)
    assert (code, lines, stderr) == (0, ["[0] fine 0", "[1] fine 1"], "")


def test_observer_in_each_hcomm_rank_sees_notifies(launched, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = tmp_path / "table.json"
    ranks = [f'{{"device_id": "{rank}", "rank_id": "{rank}"}}' for rank in range(2)]
    server = f'{{"server_id": "node_0", "device": [{", ".join(ranks)}]}}'
    table.write_text(
        f'{{"version": "1.0", "status": "completed", "server_count": "1", "server_list": [{server}]}}'
    )
    code, lines, stderr = launched(_HCOMM, str(table))
    assert (code, lines, stderr) == (0, ["[0] fine 0", "[1] fine 1"], "")


def test_observer_in_rank_whose_peer_dies_leaves_peer_lost(launched) -> None:  # type: ignore[no-untyped-def]
    code, lines, _ = launched(_DEATH)
    assert code == 128 + 9
    assert "[0] lost True" in lines
