"""Rank 0 sends by putting its input into its buffer; rank 1 reads it from there."""

from __future__ import annotations

import hcomm

from .rank import ACK, DATA, PART, ROUNDS, SECONDS, Rank, drawn, ok

RANKS = 2


def main() -> None:
    rank = Rank()
    thread, peer = rank.main, 1 - rank.number
    channel = rank.channels[peer]
    memory = [rank.device_memory(drawn(rank.number, turn)) for turn in range(ROUNDS)]

    def send(turn: int) -> None:
        ok(hcomm.HcommLocalCopyOnThread(thread, rank.buffer, memory[turn], PART))
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, ACK))
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, DATA, SECONDS))

    def receive(turn: int) -> None:
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, ACK, SECONDS))
        ok(hcomm.HcommReadOnThread(thread, channel, memory[turn], rank.theirs[peer], PART))
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, DATA))

    rank.run((send, receive)[rank.number])
    for turn in range(ROUNDS):
        rank.compare(memory[turn], drawn(0, turn))
    rank.end()


if __name__ == "__main__":
    main()
