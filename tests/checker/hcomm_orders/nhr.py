"""All-gather in steps: at distance 2, then 1, each rank writes the slices that it has to the rank behind it."""

from __future__ import annotations

import hcomm
import numpy as np

from .rank import ACK, DATA, PART, ROUNDS, SECONDS, Rank, drawn, gathered, ok

RANKS = 4


def main() -> None:
    rank = Rank()
    thread, number, size = rank.main, rank.number, rank.size
    inputs = [rank.device_memory(drawn(number, turn)) for turn in range(ROUNDS)]
    result = [rank.device_memory(np.zeros(size * PART, np.uint8)) for _ in range(ROUNDS)]

    def gather(turn: int) -> None:
        ok(hcomm.HcommLocalCopyOnThread(thread, rank.buffer + number * PART, inputs[turn], PART))
        held = [number]
        for distance in (2, 1):
            behind, before = (number + distance) % size, (number - distance) % size
            to, from_ = rank.channels[behind], rank.channels[before]
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, from_, ACK))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, to, ACK, SECONDS))
            for slice_ in held:
                at = slice_ * PART
                ok(hcomm.HcommWriteOnThread(thread, to, rank.theirs[behind] + at, rank.buffer + at, PART))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, to, DATA))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, from_, DATA, SECONDS))
            held += [(slice_ - distance) % size for slice_ in held]
        ok(hcomm.HcommLocalCopyOnThread(thread, result[turn], rank.buffer, size * PART))

    rank.run(gather)
    for turn in range(ROUNDS):
        rank.compare(result[turn], gathered(range(size), turn))
    rank.end()


if __name__ == "__main__":
    main()
