"""Times a write and its notification between two processes, on the vendor's wheel and on the dialect.

``python -m nixl_differential.pingpong VENDOR``: VENDOR is an interpreter that has the wheel.  Both take turns for
seven rounds.  Each round is half a round trip, the median of many; the figure is the median of the rounds' ratios.
``python pingpong.py KIND BYTES TIMES`` is one round.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 7
CASES = (
    *(("VRAM", 8, 3000), ("DRAM", 8, 3000)),
    *(("DRAM", 64 << 10, 200), ("DRAM", 256 << 10, 200), ("DRAM", 1 << 20, 100)),
    *(("DRAM", 4 << 20, 60), ("DRAM", 16 << 20, 30)),
    *(("VRAM", 64 << 20, 15), ("DRAM", 64 << 20, 15)),
)
SECONDS = 120.0


def side(me, other, pipe, kind, size, times):
    """Write to the other process and wait for its notification, or the other way round."""
    import numpy as np
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent(me, nixl_agent_config(enable_prog_thread=False))
    if kind == "VRAM":
        import peerlane as pl

        held = [pl.devices()[0].allocate(size) for _ in range(2)]
        for each in held:
            each.fill(0)
        near, mine = (each.address for each in held)
    else:
        held = [np.zeros(size, np.uint8) for _ in range(2)]
        near, mine = (each.ctypes.data for each in held)
    for address in (near, mine):
        agent.register_memory([(address, size, 0, "")], kind)
    pipe.send((agent.get_agent_metadata(), mine))
    metadata, far = pipe.recv()
    agent.add_remote_agent(metadata)
    descs = (agent.get_xfer_descs([(address, size, 0)], kind) for address in (near, far))
    handle = agent.initialize_xfer("WRITE", *descs, other, b"x")

    def write():
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)

    def hear():
        while not agent.get_new_notifs():
            pass

    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        for step in (write, hear) if me == "a" else (hear, write):
            step()
        seconds.append(time.perf_counter() - begin)
    pipe.send(statistics.median(seconds) / 2 * 1e6)
    pipe.recv()


def one_round(kind, size, times):
    """Print the microseconds of one round."""
    context = multiprocessing.get_context("spawn")
    first, second = context.Pipe()
    other = context.Process(target=side, args=("b", "a", second, kind, size, times), daemon=True)
    other.start()

    class Ours:
        """The first side's end of the pipe; its last message is the result."""

        send = staticmethod(lambda what: first.send(what) if isinstance(what, tuple) else print(f"us {what}"))

        @staticmethod
        def recv():
            seconds = first.recv()
            if not isinstance(seconds, tuple):
                first.send("over")
            return seconds

    side("a", "b", Ours, kind, size, times)
    other.join(10)


def timed(command, program, case):
    """Run one round of a program; return its microseconds."""
    env = {**os.environ, "NIXL_LOG_LEVEL": "FATAL", "UCX_LOG_LEVEL": "fatal"}
    done = subprocess.run(
        [*command, program, *map(str, case)],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,  # at its end the wheel crashes now and then, after it has printed
    )
    printed = [float(line[3:]) for line in done.stdout.splitlines() if line.startswith("us ")]
    if not printed:
        raise RuntimeError(
            f"{command[0]} ended with {done.returncode} and printed no time: {done.stderr[-500:]}"
        )
    return printed[0]


def compared(vendor, program, title, ours, theirs=None):
    """Run a program's rounds for the dialect and for the wheel, by turns; print the figures and their ratio."""
    command = [sys.executable, "-m", "peerlane", "run", "--dialect", "nixl"]
    rounds = [
        (timed(command, program, ours), timed([vendor], program, theirs or ours)) for _ in range(ROUNDS)
    ]
    ratios = sorted(mine / other for mine, other in rounds)
    mine, other = (statistics.median(each) for each in zip(*rounds, strict=True))
    print(
        f"{title}: {mine:,.1f} us, the wheel {other:,.1f} us, ratio {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})",
        flush=True,
    )


def main(vendor):
    """Print the ratios."""
    for kind, size, times in CASES:
        case = kind, size, times
        compared(
            vendor, __file__, f"{kind} beside the wheel's DRAM, {size:,} bytes", case, ("DRAM", size, times)
        )


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(sys.argv[1])
    else:
        one_round(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
