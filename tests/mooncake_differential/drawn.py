"""Draws programs of calls of ``mooncake.engine``, runs them, and prints the outcome of each call as JSON.

``python drawn.py FIRST COUNT``: the seeds.  It needs nothing of peerlane: it runs on the vendor's wheel as well.
"""

import itertools
import json
import os
import random
import sys
import time
import zlib

os.environ.setdefault("GLOG_minloglevel", "4")

import logging

import numpy as np
from mooncake.engine import Read, TransferEngine, TransferNotify, Write

logging.getLogger("mooncake").setLevel(logging.CRITICAL)

CALLS = 60
SIZE, APART = 512, 2048
SECONDS = 20.0
TRIES, LATE = 2, 0.02
SIZES = (0, 1, 16, 32, 64, 256)


class Program:
    """One drawn program: three engines, each with two arrays of its own."""

    def __init__(self, seed, engines):
        self.drawn = random.Random(seed)
        self.engines = engines
        self.names = [f"127.0.0.1:{each.get_rpc_port()}" for each in engines]
        self.memory = np.zeros(6 * APART, np.uint8)
        self.arrays = [self.memory[at * APART :][:SIZE] for at in range(6)]
        for at, array in enumerate(self.arrays):
            array[:] = np.arange(SIZE) % 199 + at
        self.managed = [[], [], []]
        self.outcomes = []

    def run(self):
        """Make the calls; return their outcomes, and the bytes that are left."""
        kinds = [name[5:] for name in dir(self) if name.startswith("draw_")]
        weights = [4 if kind in ("register", "sync", "batch", "asynchronous") else 1 for kind in kinds]
        for kind in ["register"] * 6 + self.drawn.choices(kinds, weights, k=CALLS - 6):
            text, call = getattr(self, f"draw_{kind}")()
            try:
                outcome = call()
            except Exception as error:  # noqa: BLE001 - the outcome
                outcome = f"!{type(error).__name__}"
            self.outcomes.append(f"{text} -> {outcome}")
        self.close()
        return [*self.outcomes, self.sum()]

    def close(self):
        """Unregister all memory: the next program has the same engines."""
        for at, engine in enumerate(self.engines):
            for array in self.arrays[2 * at : 2 * at + 2]:
                for offset in range(SIZE):
                    engine.unregister_memory(int(array.ctypes.data) + offset)
            for address, size in self.managed[at]:
                engine.free_managed_buffer(address, size)
            engine.get_notifies()

    def sum(self):
        """Return a checksum of all arrays."""
        return f"{zlib.crc32(b''.join(each.tobytes() for each in self.arrays)):08x}"

    # What the draws choose from.

    def engine(self):
        return self.drawn.randrange(3)

    def address(self, array, offset):
        return int(self.arrays[array].ctypes.data) + offset

    def piece(self, one, other):
        """Return a text, and the numbers of a piece between two engines, whose two ends never overlap."""
        while True:
            near, far = 2 * one + self.drawn.randrange(2), 2 * other + self.drawn.randrange(2)
            start, there = (self.drawn.randrange(0, 256, 16) for _ in range(2))
            size = self.drawn.choice(SIZES)
            if self.drawn.random() < 0.05:
                there = SIZE - 8
            if near != far or abs(start - there) >= size:
                return f"{near}+{start} {far}+{there} {size}", (
                    self.address(near, start),
                    self.address(far, there),
                    size,
                )

    def target(self, other):
        wrong = self.drawn.choice([None] * 12 + ["127.0.0.1:1", "", "nobody", "//"])
        return self.names[other] if wrong is None else wrong, wrong

    def restored(self, call):
        """Make a transfer; bring back all bytes if it failed.

        The vendor moves the other pieces of a failed batch, also behind the call.  And after a failure, one in four
        of its next transfers fails, whatever they are: so a failed one is made again (facts/mooncake 4).
        """
        kept = [each.copy() for each in self.arrays]
        for _ in range(TRIES):
            code = call()
            if code == 0:
                break
            time.sleep(LATE)
            for array, before in zip(self.arrays, kept, strict=True):
                array[:] = before
        return f"{code} {self.sum()}"

    # The calls.

    def draw_register(self):
        at = self.engine()
        array = 2 * at + self.drawn.randrange(2)
        first, size = (0, SIZE) if self.drawn.random() < 0.7 else (self.drawn.randrange(0, 256, 16), 64)
        size = 0 if self.drawn.random() < 0.05 else size
        address = self.address(array, first)
        return f"{at}.register {array}+{first} {size}", lambda: self.engines[at].register_memory(
            address, size
        )

    def draw_unregister(self):
        at = self.engine()
        array, first = 2 * at + self.drawn.randrange(2), self.drawn.choice([0, 0, 16, 32, 5])
        address = self.address(array, first)
        return f"{at}.unregister {array}+{first}", lambda: self.engines[at].unregister_memory(address)

    def draw_registrations(self):
        at = self.engine()
        array = 2 * at + self.drawn.randrange(2)
        firsts = [self.drawn.randrange(0, 448, 32) for _ in range(self.drawn.randrange(4))]
        sizes = [self.drawn.choice([0, 16, 32, 32, 48]) for _ in firsts]
        addresses = [self.address(array, first) for first in firsts]
        call = self.engines[at].batch_register_memory
        return f"{at}.registrations {array} {firsts} {sizes}", lambda: call(addresses, sizes)

    def draw_ends(self):
        """One address: after a refused list the vendor's engine never registers its other addresses again."""
        at = self.engine()
        array, first = 2 * at + self.drawn.randrange(2), self.drawn.choice([0, 16, 32, 64])
        addresses = [self.address(array, first)] * self.drawn.randrange(2)
        return (
            f"{at}.ends {array} {first} {len(addresses)}",
            lambda: self.engines[at].batch_unregister_memory(addresses),
        )

    def draw_sync(self):
        one, other = self.engine(), self.engine()
        shown, piece = self.piece(one, other)
        name, wrong = self.target(other)
        kind = self.drawn.choice(["write", "read"])
        call = getattr(self.engines[one], f"transfer_sync_{kind}")
        return f"{one}.{kind} {other} {shown} {wrong}", lambda: self.restored(lambda: call(name, *piece))

    def draw_notified(self):
        one, other = self.engine(), self.engine()
        shown, piece = self.piece(one, other)
        name, wrong = self.target(other)
        opcode = self.drawn.choice([Read, Write])
        notify = TransferNotify(f"note {len(self.outcomes)}", self.drawn.choice(["", "text", "é"]))
        call = self.engines[one].transfer_sync
        return (
            f"{one}.notified {other} {shown} {int(opcode)} {wrong}",
            lambda: self.restored(lambda: call(name, *piece, opcode, notify)),
        )

    def pieces(self, one, other):
        """Return texts and the lists of a batch whose targets never overlap each other."""
        texts, rows, taken = [], [], []
        for _ in range(self.drawn.randrange(4)):
            shown, (near, far, size) = self.piece(one, other)
            spans = [(near, near + size), (far, far + size)]
            if not any(a < d and c < b for a, b in spans for c, d in taken):
                texts.append(shown)
                rows.append((near, far, size))
                taken += spans
        lists = [[row[at] for row in rows] for at in range(3)]
        if self.drawn.random() < 0.05:
            lists[self.drawn.randrange(3)].append(1)
        return f"{texts} {[len(each) for each in lists]}", lists

    def draw_batch(self):
        one, other = self.engine(), self.engine()
        shown, lists = self.pieces(one, other)
        name, wrong = self.target(other)
        kind = self.drawn.choice(["write", "read"])
        call = getattr(self.engines[one], f"batch_transfer_sync_{kind}")
        return f"{one}.batch_{kind} {other} {shown} {wrong}", lambda: self.restored(
            lambda: call(name, *lists)
        )

    def draw_asynchronous(self):
        one, other = self.engine(), self.engine()
        shown, lists = self.pieces(one, other)
        name, wrong = self.target(other)
        opcode = self.drawn.choice([Read, Write])
        engine = self.engines[one]

        def begin_and_wait():
            number = engine.batch_transfer_async(name, *lists, opcode)
            return engine.get_batch_transfer_status([number]) if number else "refused"

        return (
            f"{one}.asynchronous {other} {shown} {int(opcode)} {wrong}",
            lambda: self.failed_alike(begin_and_wait),
        )

    def draw_submitted(self):
        one, other = self.engine(), self.engine()
        shown, piece = self.piece(one, other)
        name, wrong = self.target(other)
        engine = self.engines[one]

        def submit_and_ask():
            number = engine.transfer_submit_write(name, *piece)
            if not number:
                return "refused"
            deadline = time.monotonic() + SECONDS
            while (status := engine.transfer_check_status(number)) == 0 and time.monotonic() < deadline:
                pass
            return status - 1  # 0 if it succeeded, as of the other calls

        return f"{one}.submitted {other} {shown} {wrong}", lambda: self.failed_alike(submit_and_ask)

    def failed_alike(self, call):
        """Make an asynchronous transfer; the vendor learns some mistakes when it is begun, others later."""
        return self.restored(lambda: 0 if call() == 0 else -1)

    def draw_notifies(self):
        at = self.engine()
        return f"{at}.notifies", lambda: [(each.name, each.msg) for each in self.engines[at].get_notifies()]

    def draw_probe(self):
        one, other = self.engine(), self.engine()
        name, wrong = self.target(other)
        return f"{one}.probe {other} {wrong}", lambda: self.engines[one].send_probe(name)

    def draw_managed(self):
        at, size = self.engine(), self.drawn.choice([1, 100, 9000])
        engine = self.engines[at]
        content = bytes(self.drawn.randrange(256) for _ in range(min(size, 200)))

        def call():
            address = engine.allocate_managed_buffer(size)
            self.managed[at].append((address, size))
            written = engine.write_bytes_to_buffer(address, content, len(content))
            return address != 0, written, engine.read_bytes_from_buffer(address, len(content)) == content

        return f"{at}.managed {size}", call

    def draw_from_managed(self):
        one, other = self.engine(), self.engine()
        name = self.names[other]
        array = 2 * one + self.drawn.randrange(2)
        near = self.address(array, 0)
        choice = self.drawn.randrange(1 << 16)

        def call():
            known = self.managed[other]
            if not known or one == other:
                return "none"
            address, size = known[choice % len(known)]
            return self.restored(
                lambda: self.engines[one].transfer_sync_read(name, near, address, min(size, 64))
            )

        return f"{one}.from_managed {other} {array}", call


def main():
    first, count = int(sys.argv[1]), int(sys.argv[2])
    engines = [TransferEngine() for _ in range(3)]
    for each in engines:
        assert each.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    for seed in itertools.islice(itertools.count(first), count):
        print("program " + json.dumps([seed, Program(seed, engines).run()]), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the vendor's threads need no orderly end
