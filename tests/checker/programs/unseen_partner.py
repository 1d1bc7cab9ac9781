"""A process whose partner no check sees: ``unseen_partner.py right|racy FOLDER``.

The partner fills memory that this process made and never wrote, and answers each of its records.  In ``racy`` this
process also uses memory of its own too early.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import peerlane as pl

SIZE, ROUNDS, SECONDS = 1 << 16, 3, 60


def put(folder, name, data):
    part = folder / f"{name}.part"
    part.write_bytes(data)
    part.rename(folder / name)


def get(folder, name):
    deadline = time.monotonic() + SECONDS
    while not (folder / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.01)
    return (folder / name).read_bytes()


def partner(folder):
    memory = pl.Buffer.open(get(folder, "memory"))
    asked, answered = (pl.Notify.open(get(folder, name)) for name in ("asked", "answered"))
    with memory.device.create_stream() as stream:
        for turn in range(ROUNDS):
            stream.wait(asked, timeout=SECONDS)
            memory.fill(turn + 1, stream=stream)
            stream.notify(answered)
        stream.sync(SECONDS)


def main(folder, is_racy):
    device = pl.devices()[0]
    memory, stream = device.allocate(SIZE), device.create_stream()
    asked, answered = device.create_notify(), device.create_notify()
    for name, each in (("memory", memory), ("asked", asked), ("answered", answered)):
        put(folder, name, bytes(each.export(allow="user")))
    for turn in range(ROUNDS):
        stream.notify(asked)
        stream.wait(answered, timeout=SECONDS)
        stream.sync(SECONDS)
        assert int(memory.view()[SIZE - 1]) == turn + 1
    if is_racy:
        own = device.allocate(SIZE)
        own.fill(1, stream=stream)
        own.view()[:] = 2  # racy
        stream.sync(SECONDS)


if __name__ == "__main__":
    if sys.argv[1] == "partner":
        partner(Path(sys.argv[2]))
    else:
        handle_folder = Path(sys.argv[2])
        outside = {name: value for name, value in os.environ.items() if not name.startswith("PEERLANE_LOG")}
        words = [sys.executable, __file__, "partner", str(handle_folder)]
        with subprocess.Popen(words, env=outside) as other:
            try:
                main(handle_folder, sys.argv[1] == "racy")
                assert other.wait(SECONDS) == 0
            finally:
                other.kill()
