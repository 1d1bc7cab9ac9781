"""A prefill process writes the block of each request to a decode process; the first word is "right" or a mistake."""

import multiprocessing
import sys

MODE = sys.argv[1]
SIZE = 1 << 16
REQUESTS = 3


def decode(pipe):
    from nixl._api import nixl_agent

    import peerlane as pl

    agent = nixl_agent("decode")
    blocks = pl.devices()[1].allocate(REQUESTS * SIZE)
    blocks.fill(0)
    agent.register_memory([(blocks.address, blocks.size, 1, "")], "VRAM")
    pipe.send((agent.get_agent_metadata(), blocks.address))
    pipe.recv()
    for request in range(REQUESTS):
        waited = 1 - request if MODE == "wrong request" and request < 2 else request
        while MODE != "early read" and not agent.check_remote_xfer_done("prefill", b"request %d" % waited):
            pass
        bytes(blocks[request * SIZE : request * SIZE + SIZE])  # decode: the read
    pipe.send("read")
    pipe.recv()


def prefill():
    from nixl._api import nixl_agent

    import peerlane as pl

    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs,))
    other.start()
    agent = nixl_agent("prefill")
    blocks = pl.devices()[0].allocate(REQUESTS * SIZE)
    agent.register_memory([(blocks.address, blocks.size, 0, "")], "VRAM")
    metadata, there = pipe.recv()
    agent.add_remote_agent(metadata)
    blocks.fill(1)
    handles = []
    for request in range(REQUESTS):
        near = agent.get_xfer_descs([(blocks.address + request * SIZE, SIZE, 0)], "VRAM")
        far = agent.get_xfer_descs([(there + request * SIZE, SIZE, 1)], "VRAM")
        message = b"" if MODE == "overtaking" else b"request %d" % request
        handles.append(agent.initialize_xfer("WRITE", near, far, "decode", message))
        agent.transfer(handles[-1])  # prefill: the write
        if MODE == "overtaking":
            agent.send_notif("decode", b"request %d" % request)
    pipe.send("posted")
    if MODE == "reused block":
        blocks.fill(2)  # prefill: the reuse
    for handle in handles:
        while agent.check_xfer_state(handle) != "DONE":
            pass
    blocks.fill(3)
    pipe.recv()
    pipe.send("over")
    other.join()


if __name__ == "__main__":
    prefill()
