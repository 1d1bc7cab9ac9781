"""A prefill engine writes the block of each request to a decode engine.

The words are the mode, and whether the engines are on two machines ("far") or one ("near").
"""

import multiprocessing
import os
import sys
import time

MODE, MEMORY = sys.argv[1:3]
SIZE = 1 << 16
REQUESTS = 3


def decode(pipe):
    if MEMORY == "far":
        os.environ["PEERLANE_MACHINE"] = "decode"
    from mooncake.engine import TransferEngine

    import peerlane as pl

    engine = TransferEngine()
    engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "")
    blocks = pl.devices()[1].allocate(REQUESTS * SIZE)
    blocks.fill(0)
    engine.register_memory(blocks.address, blocks.size)  # decode: the target
    pipe.send((f"127.0.0.1:{engine.get_rpc_port()}", blocks.address))
    pipe.recv()
    came = []
    for request in range(REQUESTS):
        while MODE != "early read" and f"request {request}" not in came:
            came += [each.name for each in engine.get_notifies()]
        bytes(blocks[request * SIZE : request * SIZE + SIZE])  # decode: the read
    pipe.send("read")
    pipe.recv()


def prefill():
    from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

    import peerlane as pl

    context = multiprocessing.get_context("spawn")
    pipe, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs,))
    other.start()
    engine = TransferEngine()
    engine.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "")
    device = pl.devices()[0]
    blocks = device.allocate(REQUESTS * SIZE)
    engine.register_memory(blocks.address, blocks.size)
    there, at = pipe.recv()
    stream = device.create_stream()
    blocks.fill(1, stream=stream)  # prefill: the forward pass
    if MODE != "unfinished pass":
        stream.sync()
    pipe.send("begin")
    if MODE == "early read":
        time.sleep(0.2)
    numbers = []
    for request in range(REQUESTS):
        piece = [blocks.address + request * SIZE], [at + request * SIZE], [SIZE]
        note = TransferNotify(f"request {request}", "done")
        if MODE == "reused block":
            numbers.append(engine.batch_transfer_async(there, *piece, TransferOpcode.Write))  # prefill: begun
        else:
            engine.batch_transfer_sync(there, *piece, TransferOpcode.Write, note)  # prefill: the write
    if MODE == "reused block":
        blocks.fill(2)  # prefill: the reuse
        engine.get_batch_transfer_status(numbers)
        for request in range(REQUESTS):
            engine.transfer_sync(
                there, blocks.address, at, 0, TransferOpcode.Write, TransferNotify(f"request {request}", "")
            )
    blocks.fill(3)
    stream.sync()
    pipe.recv()
    pipe.send("over")
    other.join()


if __name__ == "__main__":
    prefill()
