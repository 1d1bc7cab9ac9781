"""Programs of calls about files: an agent with back-end POSIX, two arrays, and four files."""

import os
import tempfile
import time
import zlib
from pathlib import Path

import nixl._bindings as bindings
import numpy as np
from drawn import SECONDS, SIZE, Drawn
from nixl._api import nixl_agent, nixl_agent_config

MODES = ("rw", "ro", "rw,create", "rw,sync,noatime", "wo", "")
WRONG = "ro,none"  # refused, unless the policy is the vendor's


class FileProgram(Drawn):
    """One drawn program."""

    first = "memory", "memory", "descriptor", "path"
    often = "descriptor", "path", "initialize", "make", "transfer"

    def __init__(self, seed, has_wrong_modes):
        super().__init__(seed)
        self.modes = (*MODES, WRONG) if has_wrong_modes else MODES
        self.has_ucx = seed % 3 == 0
        self.name = f"a{seed}"
        self.agent = nixl_agent(
            self.name,
            nixl_agent_config(
                enable_prog_thread=False,
                capture_telemetry=bool(seed % 2),
                backends=["UCX", "POSIX"] if self.has_ucx else ["POSIX"],
            ),
        )
        self.arrays = [np.arange(SIZE).astype(np.uint8) + at for at in range(2)]
        folder = Path(tempfile.mkdtemp())
        self.paths = [folder / str(at) for at in range(4)]
        self.fds = [os.open(path, os.O_RDWR | os.O_CREAT) for path in self.paths[:3]]
        self.fds.append(os.open(self.paths[2], os.O_RDONLY))
        for at, fd in enumerate(self.fds[:3]):
            os.pwrite(fd, bytes(range(at, 256)) * 2, 0)
        self.registered = []
        self.devices = list(range(4))  # of descriptors, by their index; of paths their numbers
        self.handles = []
        self.prepared = {"DRAM": [], "FILE": []}

    def left(self):
        """Return the bytes that are left."""
        sums = self.sums()
        for fd in self.fds:
            os.close(fd)
        return ["", sums]

    def sums(self):
        """Return checksums of the arrays, and sizes and checksums of the files."""
        contents = [path.read_bytes() if path.exists() else b"none" for path in self.paths]
        arrays = f"{zlib.crc32(b''.join(each.tobytes() for each in self.arrays)):08x}"
        return " ".join([arrays, *(f"{len(each)}:{zlib.crc32(each):08x}" for each in contents)])

    # What the draws choose from.

    def memory(self, count, size):
        array = self.drawn.randrange(2)
        offsets = [self.drawn.randrange(0, SIZE - size + 1, 16) for _ in range(count)]
        return f"{array} {offsets}", [(int(self.arrays[array].ctypes.data) + at, size, 0) for at in offsets]

    def file(self, count, size):
        device = self.drawn.choice(self.devices)
        offsets = [self.drawn.randrange(0, 640, 32) for _ in range(count)]
        number = self.fds[device] if device < 4 else device
        return f"{device} {offsets}", [(at, size, number) for at in offsets]

    def backends(self):
        return self.drawn.choice([[]] * 6 + [["POSIX"], ["UCX"]]) if self.has_ucx else []

    def register(self, expression, rows, mem, device=None):
        # The wheel's UCX takes a file that is registered with it by name, and nothing can use it.
        backends = self.backends() if mem == "DRAM" else self.drawn.choice([[], ["POSIX"]])

        def call():
            registered = self.agent.register_memory(rows, mem, backends)
            self.registered.append((registered, backends, expression))
            if device is not None:
                self.devices.append(device)
            return "registered"

        return f"register {expression} {backends}", call

    def draw_memory(self):
        array, whole = self.drawn.randrange(2), self.drawn.random() < 0.7
        size = SIZE if whole else 128
        return self.register(f"{array} {size}", [(int(self.arrays[array].ctypes.data), size, 0, "")], "DRAM")

    def draw_descriptor(self):
        at = self.drawn.randrange(4)
        offset, size = self.drawn.choice([(0, 0), (0, 0), (0, 512), (128, 256), (64, 0)])
        meta = self.drawn.choice(["", "", "name"])
        return self.register(
            f"descriptor {at} {offset}+{size} {meta}", [(offset, size, self.fds[at], meta)], "FILE"
        )

    def draw_path(self):
        at, modes = self.drawn.randrange(4), self.drawn.choice(self.modes)
        number = self.drawn.choice([1_000_000, 1_000_001, 1_000_002])
        if modes in (WRONG, "wo", ""):  # no path: strictly, the number is no descriptor
            number, at = self.fds[0], 3
        offset, size = self.drawn.choice([(0, 0), (0, 0), (0, 256)])
        rows = [(offset, size, number, f"{modes}:{self.paths[at]}")]
        device = number if number >= 1_000_000 else None
        return self.register(
            f"path {at} {modes} {number if device else ''} {offset}+{size}", rows, "FILE", device
        )

    def draw_deregister(self):
        if not self.registered or self.drawn.random() < 0.5:
            return None
        at = self.drawn.randrange(len(self.registered))
        registered, backends, expression = self.registered[at]
        # The vendor's agent keeps pointers to what is registered: no transfer may use it again.
        self.handles.clear()
        for kept in self.prepared.values():
            kept.clear()

        def call():
            # Without names the vendor's agent wants the piece to be with all back-ends that have such memory.
            names = backends or (
                ["UCX", "POSIX"] if self.has_ucx and registered.getType() == bindings.DRAM_SEG else ["POSIX"]
            )
            self.agent.deregister_memory(registered, names)
            del self.registered[at]

        return f"deregister {expression} {backends}", call

    def draw_truncate(self):
        at, size = self.drawn.randrange(3), self.drawn.choice([0, 100, 512, 2048])
        return f"truncate {at} {size}", lambda: os.ftruncate(self.fds[at], size)

    def draw_initialize(self):
        size, count = self.drawn.choice([16, 32, 100, 256]), self.drawn.choice([1, 1, 2, 5])
        near, local = self.memory(count, size)
        far, remote = self.file(count, size)
        wrong = self.drawn.choice([None] * 12 + ["count", "size", "name", "swapped", "memory", "kind"])
        name, mems = self.name, ("DRAM", "FILE")
        if wrong == "count":
            remote = remote * 2
        elif wrong == "size":
            remote = [(at, size // 2, device) for at, _, device in remote]
        elif wrong == "name":
            name = "nobody"
        elif wrong == "swapped":
            local, remote, mems = remote, local, ("FILE", "DRAM")
        elif wrong == "memory":
            remote, mems = [(at, size, 0) for at, _, _ in local], ("DRAM", "DRAM")
        elif wrong == "kind":
            mems = ("DRAM", "OBJ")
        message = self.drawn.choice([b""] * 8 + [b"message"])
        backends = ["POSIX"] if wrong == "memory" else self.backends()
        operation = self.drawn.choice(["READ", "WRITE"])

        def call():
            descs = self.agent.get_xfer_descs(local, mems[0]), self.agent.get_xfer_descs(remote, mems[1])
            self.handles.append(self.agent.initialize_xfer(operation, *descs, name, message, backends))
            return "made"

        return f"initialize {operation} {near} {far} {size} {wrong} {message} {backends}", call

    def draw_prepare(self):
        mem = self.drawn.choice(["DRAM", "FILE"])
        expression, rows = (self.memory if mem == "DRAM" else self.file)(4, 32)
        side = "" if mem == "DRAM" else self.name

        def call():
            self.prepared[mem].append(self.agent.prep_xfer_dlist(side, rows, mem))
            return "prepared"

        return f"prepare {mem} {expression}", call

    def draw_make(self):
        if not all(self.prepared.values()):
            return self.draw_prepare()
        near, far = (self.drawn.choice(each) for each in self.prepared.values())
        indices = self.drawn.choice([[0], [0, 1], [1, 0, 3], [], [9]])
        operation, message = self.drawn.choice(["READ", "WRITE"]), self.drawn.choice([b""] * 5 + [b"message"])

        def call():
            self.handles.append(self.agent.make_prepped_xfer(operation, near, indices, far, indices, message))
            return "made"

        return f"make {operation} {indices} {message}", call

    def handle(self):
        return self.drawn.randrange(len(self.handles)) if self.handles else None

    def draw_transfer(self):
        at = self.handle()
        if at is None:
            return None
        handle, message = self.handles[at], self.drawn.choice([b""] * 8 + [b"message"])

        def call():
            state = self.agent.transfer(handle, message)
            deadline = time.monotonic() + SECONDS
            while state == "PROC" and time.monotonic() < deadline:
                state = self.agent.check_xfer_state(handle)
            return state

        def noted():
            try:
                return f"{call()} {self.sums()}"
            except Exception as error:
                raise type(error)(self.sums()) from error
            finally:
                self.outcomes.append(self.sums())

        return f"transfer {at} {message}", noted

    def draw_state(self):
        at = self.handle()
        return None if at is None else (f"state {at}", lambda: self.agent.check_xfer_state(self.handles[at]))

    def draw_telemetry(self):
        at = self.handle()

        def call():
            answer = self.agent.get_xfer_telemetry(self.handles[at])
            return f"{answer.totalBytes} bytes, {answer.descCount} descriptors"

        return None if at is None else (f"telemetry {at}", call)

    def draw_backend(self):
        at = self.handle()
        return (
            None if at is None else (f"backend {at}", lambda: self.agent.query_xfer_backend(self.handles[at]))
        )

    def draw_cost(self):
        at = self.handle()
        return None if at is None else (f"cost {at}", lambda: self.agent.estimate_xfer_cost(self.handles[at]))

    def draw_query(self):
        rows = [(0, 0, 0, str(path)) for path in (*self.paths, "", f"rw:{self.paths[0]}")]

        def call():
            answered = self.agent.query_memory(rows, "POSIX", "FILE")
            return repr([each and (each["size"], each["mode"]) for each in answered])

        return "query", call

    def draw_notifications(self):
        kind = self.drawn.choice(["get", "update", "send", "get of POSIX"])

        def call():
            if kind == "send":
                return self.agent.send_notif(self.name, b"own") if not self.has_ucx else "not sent"
            if kind == "update":
                return self.agent.update_notifs()
            return self.agent.get_new_notifs(["POSIX"] if kind == "get of POSIX" else [])

        return f"notifications {kind}", call

    def draw_metadata(self):
        kind = self.drawn.choice(["all", "own", "part"])

        def call():
            if kind == "own":
                return self.agent.check_remote_metadata(self.name)
            if kind == "all":
                return len(self.agent.get_agent_metadata()) > 0
            registered = self.registered[-1][0]
            return len(self.agent.get_partial_agent_metadata(registered, True)) > 0

        return f"metadata {kind}", call
