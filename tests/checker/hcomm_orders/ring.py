"""Scatter along a chain: each rank reads from the one before it, the farthest rank's slice first."""

from __future__ import annotations

import hcomm
import numpy as np

from .rank import ACK, DATA, FIN, PART, ROUNDS, SECONDS, Rank, drawn, ok

RANKS = 3


def main() -> None:
    rank = Rank()
    thread, number, size = rank.main, rank.number, rank.size
    inputs = [rank.device_memory(drawn(0, turn, size)) for turn in range(ROUNDS)]
    result = [rank.device_memory(np.zeros(PART, np.uint8)) for _ in range(ROUNDS)]
    left, right = rank.channels.get(number - 1, 0), rank.channels.get(number + 1, 0)

    def scatter(turn: int) -> None:
        if not left:
            ok(hcomm.HcommLocalCopyOnThread(thread, rank.buffer, inputs[turn], size * PART))
        for slice_ in range(size - 1, number - 1, -1):
            at = slice_ * PART
            if left:
                ok(hcomm.HcommChannelNotifyRecordOnThread(thread, left, ACK))
                ok(hcomm.HcommChannelNotifyWaitOnThread(thread, left, DATA, SECONDS))
                ok(
                    hcomm.HcommReadOnThread(
                        thread, left, rank.buffer + at, rank.theirs[number - 1] + at, PART
                    )
                )
            if right and slice_ > number:
                ok(hcomm.HcommChannelNotifyWaitOnThread(thread, right, ACK, SECONDS))
                ok(hcomm.HcommChannelNotifyRecordOnThread(thread, right, DATA))
        ok(hcomm.HcommLocalCopyOnThread(thread, result[turn], rank.buffer + number * PART, PART))
        if left:
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, left, FIN))
        if right:
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, right, FIN, SECONDS))

    rank.run(scatter)
    for turn in range(ROUNDS):
        rank.compare(result[turn], drawn(0, turn, size)[number * PART :][:PART])
    rank.end()


if __name__ == "__main__":
    main()
