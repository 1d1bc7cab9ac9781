"""All-gather: a thread for each peer writes this rank's slice into the peer's buffer."""

from __future__ import annotations

import hcomm
import numpy as np

from .rank import ACK, DATA, PART, ROUNDS, SECONDS, Rank, drawn, gathered, ok

RANKS = 3


def main() -> None:
    rank = Rank(others=RANKS - 1)
    main_thread, own = rank.main, rank.number * PART
    inputs = [rank.device_memory(drawn(rank.number, turn)) for turn in range(ROUNDS)]
    result = [rank.device_memory(np.zeros(rank.size * PART, np.uint8)) for _ in range(ROUNDS)]

    def gather(turn: int) -> None:
        ok(hcomm.HcommLocalCopyOnThread(main_thread, rank.buffer + own, inputs[turn], PART))
        for thread in rank.others:
            ok(hcomm.HcommThreadNotifyRecordOnThread(main_thread, thread, 0))
        for index, (thread, peer) in enumerate(zip(rank.others, rank.channels, strict=True)):
            channel = rank.channels[peer]
            ok(hcomm.HcommThreadNotifyWaitOnThread(thread, 0, SECONDS))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, ACK))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, ACK, SECONDS))
            ok(hcomm.HcommWriteOnThread(thread, channel, rank.theirs[peer] + own, rank.buffer + own, PART))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, DATA))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, DATA, SECONDS))
            ok(hcomm.HcommThreadNotifyRecordOnThread(thread, main_thread, index))
        for index in range(len(rank.others)):
            ok(hcomm.HcommThreadNotifyWaitOnThread(main_thread, index, SECONDS))
        ok(hcomm.HcommLocalCopyOnThread(main_thread, result[turn], rank.buffer, rank.size * PART))

    rank.run(gather)
    for turn in range(ROUNDS):
        rank.compare(result[turn], gathered(range(rank.size), turn))
    rank.end()


if __name__ == "__main__":
    main()
