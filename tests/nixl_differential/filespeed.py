"""Times transfers between memory of the host and a file, on the vendor's wheel and on the dialect.

``python -m nixl_differential.filespeed VENDOR [FOLDER]``: VENDOR is an interpreter that has the wheel; the file lies
in FOLDER, and in the page cache.  Both take turns for seven rounds.  The figure is the median of the rounds' ratios.
``python filespeed.py OPERATION COUNT BYTES TIMES FOLDER`` is one round: the median of many transfers.
"""

import os
import statistics
import sys
import tempfile
import time

CASES = ((1, 4096, 3000), (1, 1 << 20, 300), (1, 64 << 20, 10), (1000, 4096, 100))


def one_round(operation, count, size, times, folder):
    """Print the microseconds of one round."""
    import numpy as np
    from nixl._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("a", nixl_agent_config(backends=["POSIX"]))
    memory = np.ones(count * size, np.uint8)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(memory)
        file.flush()
        fd, address = file.fileno(), int(memory.ctypes.data)
        agent.register_memory([(address, memory.nbytes, 0, "")], "DRAM")
        agent.register_memory([(0, 0, fd, "")], "FILE")
        # Backwards in the file: no two descriptors are one.
        near = agent.get_xfer_descs([(address + at * size, size, 0) for at in range(count)], "DRAM")
        far = agent.get_xfer_descs([((count - 1 - at) * size, size, fd) for at in range(count)], "FILE")
        handle = agent.initialize_xfer(operation, near, far, "a")
        rates = []
        for _ in range(times):
            begin = time.perf_counter()
            state = agent.transfer(handle)
            while state == "PROC":
                state = agent.check_xfer_state(handle)
            rates.append(time.perf_counter() - begin)
            assert state == "DONE", state
    print(f"us {statistics.median(rates) * 1e6}")


def main(vendor, folder):
    """Print the ratios."""
    from nixl_differential.pingpong import compared

    for case in CASES:
        for operation in ("READ", "WRITE"):
            compared(
                vendor, __file__, f"{operation} {case[0]:,} of {case[1]:,} bytes", [operation, *case, folder]
            )


if __name__ == "__main__":
    if len(sys.argv) < 4:
        main(sys.argv[1], *sys.argv[2:] or [tempfile.gettempdir()])
    else:
        one_round(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5])
        sys.stdout.flush()
        os._exit(0)
