"""Draws programs of calls of ``nixl``, runs them, and prints the outcome of each call as JSON.

``python drawn.py FIRST COUNT deregistered|kept|files|modes``: the seeds, and whether transfers may use deregistered
memory, or move bytes of files (``drawn_files.py``), whose paths may have wrong modes.  It needs nothing of peerlane:
it runs on the vendor's wheel as well.
"""

import itertools
import json
import os
import random
import sys
import time
import zlib

import numpy as np

os.environ.setdefault("NIXL_LOG_LEVEL", "FATAL")
os.environ.setdefault("UCX_LOG_LEVEL", "fatal")

import nixl._bindings as bindings
from nixl._api import nixl_agent, nixl_agent_config

CALLS = 50
SIZE = 512
SECONDS = 20.0
QUIET = 0.25  # seconds in which a notification arrives


class Drawn:
    """A drawn program: each ``draw_`` method draws a call."""

    first = often = ()

    def __init__(self, seed):
        self.drawn = random.Random(seed)
        self.outcomes = []

    def run(self):
        """Make the calls; return their outcomes, and the bytes and notifications that are left."""
        kinds = [name[5:] for name in dir(self) if name.startswith("draw_")]
        weights = [3 if kind in self.often else 1 for kind in kinds]
        for kind in [*self.first, *self.drawn.choices(kinds, weights, k=CALLS - len(self.first))]:
            self.call(kind)
        return [*self.outcomes, *self.left()]

    def call(self, kind):
        """Draw the arguments of a call, make it, and note what came of it."""
        drawn_call = getattr(self, f"draw_{kind}")()
        if drawn_call is None:
            return
        expression, call = drawn_call
        try:
            outcome = call()
        except Exception as error:  # noqa: BLE001 - the outcome
            outcome = f"!{type(error).__name__}"
        self.outcomes.append(
            f"{expression} -> {outcome if isinstance(outcome, (str, bool, int)) else repr(outcome)}"
        )


class Program(Drawn):
    """One drawn program: three agents, each with two arrays of its own."""

    first = "register", "register", "register", "add", "add", "add"
    often = "register", "add", "initialize", "make", "transfer"

    def __init__(self, seed, may_use_deregistered):
        super().__init__(seed)
        self.may_use_deregistered = may_use_deregistered
        self.names = [f"{name}{seed}" for name in "abc"]
        config = nixl_agent_config(enable_prog_thread=False, capture_telemetry=bool(seed % 2))
        self.agents = [nixl_agent(name, config) for name in self.names]
        self.arrays = [np.arange(SIZE).astype(np.uint8) + at for at in range(6)]
        self.registered = {0: [], 1: [], 2: []}
        self.gone = []
        self.handles = []
        self.prepared = {0: [], 1: [], 2: []}

    def left(self):
        """Return the notifications and bytes that are left."""
        self.go_on()
        left = [sorted(each for each in agent.notifs.items() if each[1]) for agent in self.agents]
        return [repr(left), self.sums()]

    def sums(self):
        """Return a checksum of all arrays."""
        return f"{zlib.crc32(b''.join(each.tobytes() for each in self.arrays)):08x}"

    def go_on(self):
        """Let notifications arrive."""
        deadline = time.monotonic() + QUIET
        while time.monotonic() < deadline:
            self.settle()

    def settle(self):
        """Let every agent go on for a while, without taking notifications out."""
        for agent in self.agents:
            agent.update_notifs()

    # What the draws choose from.

    def agent(self):
        return self.drawn.randrange(3)

    def piece(self, owner, array=None):
        at = 2 * owner + self.drawn.randrange(2) if array is None else array
        first, size = self.drawn.randrange(0, 256, 16), self.drawn.choice([16, 32, 64, 256])
        return at, first, size

    def address(self, at, first):
        return int(self.arrays[at].ctypes.data) + first

    def draw_register(self):
        owner = self.agent()
        at, first, size = self.piece(owner)
        if self.drawn.random() < 0.6:
            first, size = 0, SIZE
        wrong = self.drawn.choice([None] * 9 + ["type", "three"])
        rows = [(self.address(at, first), size, 0, "")]
        mem = "DRAM"
        if wrong == "type":
            mem = None
        elif wrong == "three":
            rows = [row[:3] for row in rows]
        elif wrong == "VRAM":
            mem = "VRAM"

        def call():
            created = self.agents[owner].register_memory(rows, mem)
            self.registered[owner].append((created, at, first, size))
            return "registered"

        return f"{owner}.register {at} {first}+{size} {wrong}", call

    def draw_deregister(self):
        owner = self.agent()
        known = self.registered[owner]
        if self.drawn.random() < 0.2 or not known:
            rows = self.agents[owner].get_reg_descs([(self.address(2 * owner, 5), 7, 0, "")], "DRAM")
            return f"{owner}.deregister unknown", lambda: self.agents[owner].deregister_memory(rows)
        if not self.may_use_deregistered:
            return None
        number = self.drawn.randrange(len(known))
        created, at, first, size = known[number]

        def call():
            self.agents[owner].deregister_memory(created)
            del known[number]

        return f"{owner}.deregister {at} {first}+{size}", call

    def draw_add(self):
        one, other = self.agent(), self.agent()
        choice = self.drawn.choice(["all"] * 4 + ["part", "part without connection", "garbage", "empty part"])
        source = self.agents[other]

        def call():
            if choice == "garbage":
                return self.agents[one].add_remote_agent(b"garbage")
            if choice == "all":
                return self.agents[one].add_remote_agent(source.get_agent_metadata())
            descs = bindings.nixlRegDList(bindings.DRAM_SEG)
            if choice != "empty part":
                if not self.registered[other]:
                    return "nothing registered"
                descs = self.registered[other][-1][0]
            answer = source.get_partial_agent_metadata(descs, choice != "part without connection")
            return self.agents[one].add_remote_agent(answer)

        return f"{one}.add {other} {choice}", call

    def draw_remove(self):
        one, other = self.agent(), self.agent()
        if self.drawn.random() < 0.5:
            return None
        return f"{one}.remove {other}", lambda: self.agents[one].remove_remote_agent(self.names[other])

    def draw_check_metadata(self):
        one, other = self.agent(), self.agent()
        at, first, size = self.piece(other)
        agent = self.agents[one]
        descs = agent.get_xfer_descs([(self.address(at, first), size, 0)], "DRAM")
        named = self.drawn.random() < 0.5
        return (
            f"{one}.check_metadata {other} {at} {first}+{size} {named}",
            lambda: agent.check_remote_metadata(self.names[other], descs if named else None),
        )

    def draw_initialize(self):
        one, other = self.agent(), self.agent()
        at, first, size = self.piece(one)
        to, there, _ = self.piece(other)
        wrong = self.drawn.choice(
            [None] * 12 + ["count", "size", "name", "operation", "beyond", "device", "list"]
        )
        near = [(self.address(at, first), size, 0)]
        far = [(self.address(to, there), size, 0)]
        name = self.names[other]
        operation = self.drawn.choice(["WRITE", "READ"])
        if wrong == "count":
            far *= 2
        elif wrong == "size":
            far = [(far[0][0], size // 2, 0)]
        elif wrong == "name":
            name = "nobody"
        elif wrong == "operation":
            operation = "MOVE"
        elif wrong == "beyond":
            far = [(self.address(to, SIZE - 8), size, 0)]
        elif wrong == "device":
            far = [(far[0][0], size, 3)]
        if at == to and abs(first - there) < size:
            return None  # they overlap, and the order of bytes is nobody's promise
        agent = self.agents[one]
        message = self.drawn.choice([b"", b"done %d" % len(self.outcomes)])

        def call():
            local = near if wrong == "list" else agent.get_xfer_descs(near, "DRAM")
            created = agent.initialize_xfer(
                operation, local, agent.get_xfer_descs(far, "DRAM"), name, message
            )
            self.handles.append((one, created))
            return "made"

        return (
            f"{one}.initialize {operation} {at} {first}+{size} {other} {to} {there} {message} {wrong}",
            call,
        )

    def draw_prepare(self):
        one = self.agent()
        side = self.drawn.choice(["NIXL_INIT_AGENT", "", *self.names, "nobody"])
        owner = one if side in ("NIXL_INIT_AGENT", "", "nobody") else self.names.index(side)
        at, first, _ = self.piece(owner)
        agent = self.agents[one]
        count = self.drawn.choice([0, 1, 4, 4, 40])
        if self.drawn.random() < 0.3:
            rows = np.array([[self.address(at, first), 8, 0, 16, count]], np.uint64)
        else:
            rows = np.array([[self.address(at, first) + 16 * i, 8, 0] for i in range(count)], np.uint64)
            rows = rows.reshape(-1, 3)

        def call():
            created = agent.prep_xfer_dlist(side, rows, "DRAM")
            self.prepared[one].append(created)
            return "prepared"

        return f"{one}.prepare {side} {at} {first} {count} {rows.shape[1]}", call

    def draw_make(self):
        one = self.agent()
        known = self.prepared[one]
        if len(known) < 2:
            return self.draw_prepare()
        near, far = self.drawn.randrange(len(known)), self.drawn.randrange(len(known))
        indices = self.drawn.choice([[0], [0, 1], [1, 0, 3], [], [9], [-1]])
        theirs = indices if self.drawn.random() < 0.8 else [0, 2]
        agent, message = self.agents[one], b"made %d" % len(self.outcomes)

        def call():
            created = agent.make_prepped_xfer("WRITE", known[near], indices, known[far], theirs, message)
            self.handles.append((one, created))
            return "made"

        return f"{one}.make {near} {indices} {far} {theirs}", call

    def handle(self):
        return self.drawn.choice(self.handles) if self.handles else None

    def draw_transfer(self):
        answered = self.handle()
        if answered is None:
            return None
        one, handle = answered
        agent = self.agents[one]
        message = self.drawn.choice([None, None, b"new %d" % len(self.outcomes)])

        def call():
            state = agent.transfer(handle) if message is None else agent.transfer(handle, message)
            deadline = time.monotonic() + SECONDS
            while state == "PROC" and time.monotonic() < deadline:
                state = agent.check_xfer_state(handle)
                self.settle()
            return f"{state} {self.sums()}"

        return f"{one}.transfer {self.handles.index(answered)} {message}", call

    def draw_state(self):
        answered = self.handle()
        return answered and (
            f"{answered[0]}.state {self.handles.index(answered)}",
            lambda: self.agents[answered[0]].check_xfer_state(answered[1]),
        )

    def draw_telemetry(self):
        answered = self.handle()

        def call():
            answer = self.agents[answered[0]].get_xfer_telemetry(answered[1])
            return f"{answer.totalBytes} bytes, {answer.descCount} descriptors"

        return answered and (f"{answered[0]}.telemetry {self.handles.index(answered)}", call)

    def draw_backend(self):
        answered = self.handle()
        return answered and (
            f"{answered[0]}.backend {self.handles.index(answered)}",
            lambda: self.agents[answered[0]].query_xfer_backend(answered[1]),
        )

    def draw_release(self):
        answered = self.handle()
        if answered is None:
            return None
        number = self.handles.index(answered)

        def call():
            del self.handles[number]
            self.agents[answered[0]].release_xfer_handle(answered[1])

        return f"{answered[0]}.release {number}", call

    def draw_notify(self):
        one, other = self.agent(), self.drawn.choice([*range(3), None])
        name = "nobody" if other is None else self.names[other]
        message = self.drawn.choice([b"", b"note %d" % len(self.outcomes), "text"])
        return f"{one}.notify {other} {message}", lambda: self.agents[one].send_notif(name, message)

    def draw_heard(self):
        one = self.agent()
        agent = self.agents[one]

        def call():
            self.go_on()
            answered, agent.notifs = agent.notifs, {}
            return repr(sorted((name, each) for name, each in answered.items() if each))

        return f"{one}.heard", call

    def draw_check_done(self):
        one, other = self.agent(), self.agent()
        tag = self.drawn.choice([b"", b"done", b"note", b"made", b"ote"])
        prefix = self.drawn.random() < 0.7
        agent = self.agents[one]

        def call():
            self.go_on()
            return agent.check_remote_xfer_done(self.names[other], tag, tag_is_prefix=prefix)

        return f"{one}.check_done {other} {tag} {prefix}", call

    def draw_connect(self):
        one, other = self.agent(), self.agent()
        return f"{one}.connect {other}", lambda: self.agents[one].make_connection(self.names[other])


def main():
    first, count, use = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    for seed in itertools.islice(itertools.count(first), count):
        if use in ("files", "modes"):
            from drawn_files import FileProgram

            program = FileProgram(seed, use == "modes")
        else:
            program = Program(seed, use == "deregistered")
        print("program " + json.dumps([seed, program.run()]), flush=True)


if __name__ == "__main__":
    sys.modules["drawn"] = sys.modules["__main__"]
    main()
    sys.stdout.flush()
    os._exit(0)  # the agents of some hundred programs need no orderly end
