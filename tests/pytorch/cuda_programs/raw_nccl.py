"""A trainer sends weights to a worker by NCCL's own calls, as servers of models do for reinforcement learning.

Each calls ``libnccl.so.2`` with addresses of tensors and the numbers of streams.  Buckets of weights are packed and
sent on two streams in turn.  With the word ``missing`` the trainer changes weights on a stream that nobody waits for.
"""

import ctypes
import socket
import sys

import torch
import torch.distributed as dist

PROBE = torch.arange(12.0).reshape(2, 6) / 12
BUCKET = 512  # bytes: some weights are larger
BYTES = 1  # ncclUint8


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


class Communicator:
    """Two ranks on NCCL, which meet in a store."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._nccl, self._comm, key = ctypes.CDLL("libnccl.so.2"), ctypes.c_void_p(), UniqueId()
        if rank == 0:
            self._call("ncclGetUniqueId", ctypes.byref(key))
            store.set("key", bytes(key))
        key = UniqueId.from_buffer_copy(store.get("key"))
        with torch.accelerator.device_index(rank):
            self._call("ncclCommInitRank", ctypes.byref(self._comm), ctypes.c_int(2), key, ctypes.c_int(rank))

    def broadcast(self, content: torch.Tensor) -> None:
        """Send the bytes of rank 0 on the current stream."""
        at, size = ctypes.c_void_p(content.data_ptr()), ctypes.c_size_t(content.nbytes)
        stream = ctypes.c_void_p(torch.cuda.current_stream(content.device).cuda_stream)
        self._call("ncclBroadcast", at, at, size, ctypes.c_int(BYTES), ctypes.c_int(0), self._comm, stream)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._nccl, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")


def net(seed: int, device: str) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.GELU(), torch.nn.Linear(64, 3)).to(device)


def buckets(model: torch.nn.Module) -> list[list[torch.nn.Parameter]]:
    filled: list[list[torch.nn.Parameter]] = [[]]
    for each in model.parameters():
        if filled[-1] and sum(part.nbytes for part in filled[-1]) + each.nbytes > BUCKET:
            filled.append([])
        filled[-1].append(each)
    return filled


def send(model: torch.nn.Module, group: Communicator, streams: list[torch.cuda.Stream]) -> None:
    for number, parts in enumerate(buckets(model)):
        stream = streams[number % len(streams)]
        stream.synchronize()
        with torch.cuda.stream(stream):
            packed = torch.cat([each.detach().flatten().view(torch.uint8) for each in parts])
            group.broadcast(packed)
    for stream in streams:
        stream.synchronize()


def receive(model: torch.nn.Module, group: Communicator, streams: list[torch.cuda.Stream]) -> None:
    for number, parts in enumerate(buckets(model)):
        with torch.cuda.stream(streams[number % len(streams)]), torch.no_grad():
            packed = torch.empty(sum(each.nbytes for each in parts), dtype=torch.uint8, device="cuda:1")
            group.broadcast(packed)
            for each, content in zip(parts, packed.split([part.nbytes for part in parts]), strict=True):
                each.copy_(content.view(each.dtype).view(each.shape))
    for stream in streams:
        stream.synchronize()


def generate(port: int, orders, answers) -> None:
    torch.cuda.set_device(1)
    model, group = net(1, "cuda:1"), Communicator(dist.TCPStore("127.0.0.1", port, 2, False), 1)
    streams = [torch.cuda.Stream() for _ in range(2)]
    while orders.get():
        receive(model, group, streams)
        answers.put(model(PROBE.to("cuda:1")).tolist())


def main(is_right: bool) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    orders, answers = context.Queue(), context.Queue()
    worker = context.Process(target=generate, args=(port, orders, answers), daemon=True)
    worker.start()
    model = net(2, "cuda:0")
    group = Communicator(dist.TCPStore("127.0.0.1", port, 2, True), 0)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    streams, training = [torch.cuda.Stream() for _ in range(2)], torch.cuda.Stream()
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 6, device="cuda:0")).pow(2).mean().backward()
        training.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(training):
            optimizer.step()
        if is_right:
            for stream in (*streams, torch.cuda.current_stream()):
                stream.wait_stream(training)
        orders.put(True)
        send(model, group, streams)
        received = answers.get(timeout=200)
        if is_right:
            print(received == model(PROBE.to("cuda:0")).tolist())
        torch.cuda.synchronize()
    orders.put(False)
    worker.join(60)
    print(worker.exitcode)


if __name__ == "__main__":
    main("missing" not in sys.argv[1:])
