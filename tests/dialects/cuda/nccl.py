"""Calls of ``libnccl.so.2`` in the process of a test, and the ranks that one process has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from dialects.cuda.driver import INT, WORD, CudaError, Driver
from helpers.promises import Node
from peerlane import dialects

UNHANDLED_CUDA_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS, TIMEOUT = 1, 4, 5, 6, 7, 8
FLOAT, HALF, BFLOAT16, FLOAT8 = 7, 6, 9, 10
SUM, PROD, MAX, MIN, AVG = range(5)
ID = ctypes.c_ubyte * 128


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ID),)


class Config(ctypes.Structure):
    """The beginning of a ncclConfig_t, as an old program has it."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", INT),
    )

    def __init__(self, *, blocking: int, magic: int = 0xCAFEBEEF) -> None:
        super().__init__(ctypes.sizeof(Config), magic, 22000, blocking)


class WaitSignalDesc(ctypes.Structure):
    _fields_ = (("opCnt", INT), ("peer", INT), ("sigIdx", INT), ("ctx", INT))


class Nccl(Driver):
    """NCCL: each function takes words, returns what it writes, and raises for a code."""

    def __init__(self) -> None:
        super().__init__("libnccl.so.2")
        for name in ("ncclGetLastError", "ncclGetErrorString"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.ncclGetLastError.argtypes = (WORD,)
        self.library.ncclCommInitRank.argtypes = (ctypes.c_void_p, WORD, UniqueId, WORD)
        self.library.ncclCommInitRankConfig.argtypes = (
            ctypes.c_void_p,
            WORD,
            UniqueId,
            WORD,
            ctypes.c_void_p,
        )

    def last_error(self, comm: int = 0) -> str:
        text: bytes = self.library.ncclGetLastError(comm)
        return text.decode()

    def unique_id(self) -> UniqueId:
        created = UniqueId()
        self.ncclGetUniqueId(ctypes.byref(created))
        return created

    @contextmanager
    def group(self) -> Iterator[None]:
        """Put calls into a group; it is not ended if one of them fails."""
        self.ncclGroupStart()
        yield
        self.ncclGroupEnd()


class Rank:
    """A rank of this process: its device's context and a stream."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver, self.number, self.comm = driver, number, 0
        self.context = driver.cuDevicePrimaryCtxRetain(WORD, number)
        self.enter()
        self.stream = driver.cuStreamCreate(WORD, 1)

    def enter(self) -> None:
        self.driver.cuCtxSetCurrent(self.context)

    def buffer(self, values: Any) -> int:
        """Allocate memory with the bytes of an array."""
        self.enter()
        array = np.ascontiguousarray(values)
        address: int = self.driver.cuMemAlloc_v2(WORD, array.nbytes)
        self.driver.cuMemcpyHtoD_v2(address, array.ctypes.data, array.nbytes)
        return address

    def read(self, address: int, like: Any) -> Any:
        """Wait for the stream, and return memory as an array like another."""
        self.driver.cuStreamSynchronize(self.stream)
        result = np.zeros_like(like)
        self.driver.cuMemcpyDtoH_v2(result.ctypes.data, address, result.nbytes)
        return result


def ranks_of(node: Node) -> Iterator[Callable[..., Ranks]]:
    """Make the ranks of a new process, one for each device of a fresh node; end them at last."""
    created: list[Ranks] = []

    def make(count: int = 2, spec: str = "") -> Ranks:
        node(spec or f"devices={count}")
        dialects.begin_anew("cuda")
        created.append(Ranks(count))
        return created[-1]

    yield make
    for each in created:
        each.close()
    dialects.begin_anew("cuda")


class Ranks:
    """All ranks of a communicator, which one thread drives."""

    def __init__(self, count: int) -> None:
        self.driver, self.nccl = Driver(), Nccl()
        self.driver.cuInit(0)
        self.all = [Rank(self.driver, number) for number in range(count)]
        comms = (WORD * count)()
        self.nccl.ncclCommInitAll(comms, count, None)
        for each, comm in zip(self.all, comms, strict=True):
            each.comm = comm

    def __iter__(self) -> Iterator[Rank]:
        return iter(self.all)

    def __len__(self) -> int:
        return len(self.all)

    def together(self, call: Callable[[Rank], object]) -> None:
        """Call something for each rank in one group."""
        with self.nccl.group():
            for each in self.all:
                call(each)

    def close(self) -> None:
        """Abort the communicators; take what that made of calls which had not ended."""
        for each in self.all:
            if each.comm:
                self.nccl.ncclCommAbort(each.comm)
        for each in self.all:
            code_of(each.driver.cuStreamSynchronize, each.stream)


def code_of(call: Callable[..., object], *arguments: object) -> int:
    """Return the code of a call that fails."""
    try:
        call(*arguments)
    except CudaError as error:
        return error.code
    return 0
