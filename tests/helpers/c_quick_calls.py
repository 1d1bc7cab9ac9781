"""Draws calls of a C library, right and wrong ones, and prints the answers.

Its words are acl, hip, cuda or cudart, a seed, and maybe ``asked`` and ``threads``.

With ``asked`` the dialect answers all of them; else native code answers those that it may.  With ``threads`` the
calls are those of CUDA in which 0 is the thread's own stream.  The last line has the number of hot calls, and how
many of them Python answered.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from peerlane.backend import host
from peerlane.c_abi import directory
from peerlane.dialects._shared.c_names import declarations_of

_ROOM = 256
_CALLS = 1200
_DEVICES = 3
_KINDS = {
    "acl": (0, 1, 2, 3, 4, 5, 6, -1),
    "hip": (0, 1, 2, 3, 4, 5),
    "cuda": (),
    "cudart": (0, 1, 2, 3, 4, 5),
}
_LIBRARIES = {
    "acl": "libascendcl.so",
    "hip": "libamdhip64.so",
    "cuda": "libcuda.so.1",
    "cudart": "libcudart.so.13",
}
_ON_EVENTS = ("record", "await", "query", "sync", "ask", "wait")
_OF_POOLS = ("pooled", "unpooled")
_OF_MEMORY = ("attribute", "attributes", "device")
_ATTRIBUTES = (1, 2, 6, 8, 9, 99)  # context, type, SYNC_MEMOPS, managed, device; no attribute
_OF_CONTEXTS = ("push", "pop", "current", "id", "state", "retain", "release")
_LAST_ERRORS = ("peek", "take")
_COMMON = ("get", "copy", "queue", "launch")
_QUEUED = _COMMON + _ON_EVENTS + _OF_POOLS
_HOT = {
    "acl": _COMMON,
    "hip": _QUEUED,
    "cudart": _QUEUED + _LAST_ERRORS,
    "cuda": _QUEUED + _OF_CONTEXTS + _OF_MEMORY,
}
_NOT_READY = 600  # of hip and cuda
_NAMES = {
    "acl": {
        "set": "aclrtSetDevice", "get": "aclrtGetDevice", "reset": "aclrtResetDevice", "copy": "aclrtMemcpy",
        "queue": "aclrtMemcpyAsync", "stream": "aclrtCreateStream", "end": "aclrtDestroyStream",
        "wait": "aclrtSynchronizeStream", "make": "aclrtMalloc", "make_host": "aclrtMallocHost", "free": "aclrtFree",
        "free_host": "aclrtFreeHost", "peer": "aclrtDeviceEnablePeerAccess", "launch": "aclrtLaunchHostFunc",
    },
    "hip": {
        "set": "hipSetDevice", "get": "hipGetDevice", "reset": "hipDeviceReset", "copy": "hipMemcpy",
        "queue": "hipMemcpyAsync", "stream": "hipStreamCreate", "end": "hipStreamDestroy",
        "wait": "hipStreamSynchronize", "make": "hipMalloc", "make_host": "hipHostMalloc", "free": "hipFree",
        "free_host": "hipHostFree", "peer": "hipDeviceEnablePeerAccess", "launch": "hipLaunchHostFunc",
        "event": "hipEventCreate", "end_event": "hipEventDestroy", "record": "hipEventRecord",
        "await": "hipStreamWaitEvent", "query": "hipEventQuery", "sync": "hipEventSynchronize",
        "ask": "hipStreamQuery", "pooled": "hipMallocAsync", "unpooled": "hipFreeAsync",
    },
    "cudart": {
        "set": "cudaSetDevice", "get": "cudaGetDevice", "reset": "cudaDeviceReset", "copy": "cudaMemcpy",
        "queue": "cudaMemcpyAsync", "stream": "cudaStreamCreate", "end": "cudaStreamDestroy",
        "wait": "cudaStreamSynchronize", "make": "cudaMalloc", "make_host": "cudaMallocHost", "free": "cudaFree",
        "free_host": "cudaFreeHost", "peer": "cudaDeviceEnablePeerAccess", "launch": "cudaLaunchHostFunc",
        "event": "cudaEventCreate", "end_event": "cudaEventDestroy", "record": "cudaEventRecord",
        "await": "cudaStreamWaitEvent", "query": "cudaEventQuery", "sync": "cudaEventSynchronize",
        "ask": "cudaStreamQuery", "pooled": "cudaMallocAsync", "unpooled": "cudaFreeAsync",
        "peek": "cudaPeekAtLastError", "take": "cudaGetLastError",
    },
    "cuda": {
        "set": "cuCtxSetCurrent", "get": "cuCtxGetDevice", "reset": "cuDevicePrimaryCtxReset_v2", "copy": "cuMemcpy",
        "queue": "cuMemcpyAsync", "stream": "cuStreamCreate", "end": "cuStreamDestroy_v2",
        "wait": "cuStreamSynchronize", "make": "cuMemAlloc_v2", "make_host": "cuMemAllocHost_v2",
        "free": "cuMemFree_v2", "free_host": "cuMemFreeHost", "peer": "cuCtxEnablePeerAccess",
        "launch": "cuLaunchHostFunc",
        "event": "cuEventCreate", "end_event": "cuEventDestroy_v2", "record": "cuEventRecord",
        "await": "cuStreamWaitEvent", "query": "cuEventQuery", "sync": "cuEventSynchronize", "ask": "cuStreamQuery",
        "pooled": "cuMemAllocAsync", "unpooled": "cuMemFreeAsync",
        "push": "cuCtxPushCurrent_v2", "pop": "cuCtxPopCurrent_v2", "current": "cuCtxGetCurrent", "id": "cuCtxGetId",
        "state": "cuDevicePrimaryCtxGetState", "retain": "cuDevicePrimaryCtxRetain",
        "release": "cuDevicePrimaryCtxRelease_v2", "own": "cuCtxCreate_v2", "end_own": "cuCtxDestroy_v2",
        "flags": "cuDevicePrimaryCtxSetFlags_v2", "attribute": "cuPointerGetAttribute",
        "attributes": "cuPointerGetAttributes", "device": "cuDeviceGet", "set_attribute": "cuPointerSetAttribute",
    },
}  # fmt: skip


def _variant(dialect: str, name: str) -> str:
    """Return the name of a function's variant for threads' default streams; its own if it has none."""
    variant = declarations_of("cuda", dialect).functions[name].variant
    return f"{name}_{variant}" if variant else name


class Program:
    """A program that draws its calls.

    Parameters
    ----------
    dialect : {"acl", "hip", "cuda", "cudart"}
    seed : int
    is_asked : bool
        Whether the dialect is asked each time.
    of_threads : bool
        Whether the calls are the variants for threads' default streams.
    """

    def __init__(self, dialect: str, seed: int, is_asked: bool, of_threads: bool = False) -> None:
        self.dialect, self.is_asked = dialect, is_asked
        self.names = {
            what: _variant(dialect, name) if of_threads else name for what, name in _NAMES[dialect].items()
        }
        functions = declarations_of("cuda" if dialect == "cudart" else dialect, dialect).functions
        self.sources = {what: functions[name].name_in_source for what, name in self.names.items()}
        self.draw = random.Random(seed)
        self.library = ctypes.CDLL(str(directory() / _LIBRARIES[dialect]))
        self.hot = self.answered = 0
        self.events: list[int] = [0, 1 << 40]
        self.contexts: list[int] = [0, 1 << 40]
        self.streams: list[int] = [0, 1 << 40]
        # The default streams: in acl there is one.
        self.default_streams = [0] if dialect == "acl" else [0, 1, 2]
        self.buffers: list[int] = [0]
        self.pinned: list[int] = []
        self.pageable = ctypes.create_string_buffer(
            2 * _ROOM
        )  # copies begin in its first half, and may end behind
        self.called: list[int | None] = []
        self.function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.called.append)

    def call(self, what: str, *words: Any) -> int:
        """Call a function and return what it answers."""
        if self.is_asked:
            host.forget_c_threads()
        name = self.names[what]
        self.hot += what in _HOT[self.dialect]
        sys.setprofile(self._see)
        try:
            return int(getattr(self.library, name)(*words))
        finally:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        hot = (self.sources[what] for what in _HOT[self.dialect])
        at = frame.f_code
        self.answered += event == "call" and at.co_name in hot and at.co_filename.endswith("c_library.py")

    def created(self, what: str, *words: Any) -> tuple[int, int]:
        """Call what makes something, and return the code and the number."""
        drawn_address = ctypes.c_void_p()
        code = self.call(what, ctypes.byref(drawn_address), *words)
        return code, drawn_address.value or 0

    def drawn_address(self) -> int:
        """Draw an address: of a device or the host, alive or freed, or one where nothing is."""
        kinds = [self.buffers[-6:], self.pinned[-3:] or [0], [ctypes.addressof(self.pageable)], [0, 1 << 45]]
        drawn = self.draw.choice(self.draw.choices(kinds, [40, 20, 20, 1])[0])
        return drawn and drawn + self.draw.choice((0, 0, 0, 0, 8, 8, _ROOM - 8))

    def stream(self) -> ctypes.c_void_p:
        """Draw a stream: one of the newest, or a default one."""
        return ctypes.c_void_p(self.draw.choice([*self.streams[-5:], *self.default_streams]))

    def queued(self) -> object:
        """Queue some copies on one stream, and wait for them: a copy that still runs makes what follows a race."""
        stream = self.stream()
        codes = [self.copied("queue", stream) for _ in range(self.draw.randint(1, 3))]
        return codes, self.call("wait", stream)

    def copied(self, what: str, *stream: ctypes.c_void_p) -> object:
        """Make a copy."""
        dst, src, size = self.drawn_address(), self.drawn_address(), self.draw.choice((0, 8, 8, 16, _ROOM))
        if ctypes.addressof(self.pageable) <= dst < ctypes.addressof(self.pageable) + _ROOM:
            size = min(size, 8)
        words = [ctypes.c_void_p(dst), ctypes.c_void_p(src), ctypes.c_size_t(size)]
        if self.dialect == "acl":
            words.insert(1, ctypes.c_size_t(self.draw.choice((*[size] * 8, _ROOM, 4))))
        if kinds := _KINDS[self.dialect]:
            words.append(
                ctypes.c_int32(self.draw.choices(kinds, [1, 4, 4, 8, 4, *[1] * (len(kinds) - 5)])[0])
            )
        return self.call(what, *words, *stream)

    def got(self) -> object:
        """Ask for the device, sometimes without a place for it."""
        number = ctypes.c_int32(-7)
        code = self.call("get", ctypes.byref(number) if self.draw.random() < 0.9 else None)
        return code, number.value

    def launched(self) -> object:
        """Pass a function, sometimes one that is none."""
        code = self.draw.choices([self.function, None, 8, self.pageable], [40, 1, 1, 1])[0]
        return self.call("launch", self.stream(), code, ctypes.c_void_p(self.draw.randrange(1000)))

    def on_event(self, what: str) -> object:
        """Record an event, wait for it or ask for it, or ask for a stream; what is not over yet may be over now."""
        stream = self.stream()
        event = ctypes.c_void_p(self.draw.choice(self.events[-5:]))
        words = {
            "record": (event, stream),
            "await": (stream, event, ctypes.c_uint32(self.draw.choices((0, 1, 2), [40, 1, 1])[0])),
            "ask": (stream,),
        }
        code = self.call(what, *words.get(what, (event,)))
        return 0 if code == _NOT_READY else code

    def of_memory(self, what: str, device: int) -> object:
        """Ask for a device, or for attributes of an address, or set one."""
        values = (ctypes.c_uint64 * 2)(7, 7)
        if what == "device":
            return self.call(what, values, device), list(values)
        numbers = (ctypes.c_int32 * 2)(self.draw.choice(_ATTRIBUTES), self.draw.choice(_ATTRIBUTES))
        address = ctypes.c_void_p(self.drawn_address())
        if what == "attributes":
            start, second = ctypes.addressof(values), self.draw.choices((8, None), [40, 1])[0]
            addresses = (ctypes.c_void_p * 2)(start, second and start + second)
            return self.call(what, ctypes.c_uint32(2), numbers, addresses, address), list(values)
        if what == "set_attribute":
            return self.call(what, ctypes.byref(ctypes.c_bool(self.draw.random() < 0.5)), 6, address)
        return self.call(what, values, numbers[0], address), list(values)

    def of_context(self, what: str, device: int) -> object:
        """Make a call of contexts."""
        drawn_address, other = ctypes.c_void_p(7), ctypes.c_int32(7)
        context = ctypes.c_void_p(self.draw.choice(self.contexts[-6:]))
        if what == "push":
            return self.call(what, context)
        if what in ("pop", "current"):
            wanted = ctypes.byref(drawn_address) if what == "current" or self.draw.random() < 0.5 else None
            return self.call(what, wanted), drawn_address.value
        if what == "id":
            return self.call(
                what, context if self.draw.random() < 0.5 else None, ctypes.byref(drawn_address)
            ), drawn_address.value
        if what == "state":
            return (
                self.call(what, device, ctypes.byref(drawn_address), ctypes.byref(other)),
                drawn_address.value,
                other.value,
            )
        if what == "release":
            return self.call(what, device)
        if what == "flags":
            return self.call(what, device, ctypes.c_uint32(self.draw.choice((0, 1, 4))))
        if what == "end_own":
            return self.call(what, context)
        code, handle = self.created(what, *([device] if what == "retain" else [ctypes.c_uint32(0), device]))
        if not code and handle not in self.contexts:
            self.contexts.append(handle)
        return code, handle

    def step(self) -> object:
        """Make one call."""
        weights = {
            "get": 20, "copy": 60, "queue": 60, "wait": 10, "make": 5, "make_host": 3, "free": 1, "free_host": 1,
            "stream": 4, "end": 1, "set": 6, "reset": 0.3, "peer": 3, "there": 0.3, "launch": 20,
        }  # fmt: skip
        if self.dialect != "acl":
            weights |= {
                "event": 5, "end_event": 0.5, "record": 30, "await": 30, "query": 30, "sync": 20, "ask": 20,
                "pooled": 10, "unpooled": 10,
            }  # fmt: skip
        if self.dialect == "cuda":
            weights |= (
                dict.fromkeys(_OF_CONTEXTS, 10)
                | dict.fromkeys(_OF_MEMORY, 15)
                | {"set_attribute": 1, "own": 0.5, "end_own": 0.3, "flags": 0.5}
            )
        what = self.draw.choices(list(weights), list(weights.values()))[0]
        device = self.draw.choice((0, 0, 0, 0, 0, 1, 1, 2, 7))
        if what == "there":
            return what, self.beside(
                lambda: self.call("reset", *([device] if self.dialect in ("acl", "cuda") else []))
            )
        return what, self.one(what, device)

    def one(self, what: str, device: int) -> object:
        """Make a call of a kind."""
        if what == "copy":
            return self.copied(what)
        if what == "queue":
            return self.queued()
        if what == "get":
            return self.got()
        if what == "launch":
            return self.launched()
        if what in ("make", "make_host", "pooled"):
            more: list[Any] = [0]
            if (self.dialect, what) in (("acl", "make_host"), ("hip", "make")) or self.dialect.startswith(
                "cud"
            ):
                more = []
            if what == "pooled":
                return self.pooled(self.stream())
            code, address = self.created(what, ctypes.c_size_t(_ROOM), *more)
            if not code:
                (self.pinned if what == "make_host" else self.buffers).append(address)
            return code
        if what in ("free", "free_host"):
            return self.call(what, ctypes.c_void_p(self.draw.choice([*self.buffers, *self.pinned])))
        if what == "unpooled":
            stream = self.stream()
            code = self.call(what, ctypes.c_void_p(self.draw.choice(self.buffers)), stream)
            # The stream frees the memory in its own time, and what follows could come before it or after it.
            return code, self.call("wait", stream)
        if what in ("stream", "event"):
            code, handle = self.created(what, *([ctypes.c_uint32(0)] if self.dialect == "cuda" else []))
            if not code:
                (self.streams if what == "stream" else self.events).append(handle)
            return code
        if what in ("wait", "end"):
            return self.call(what, ctypes.c_void_p(self.draw.choice(self.streams)))
        if what == "end_event":
            return self.call(what, ctypes.c_void_p(self.draw.choice(self.events)))
        if what in _ON_EVENTS:
            return self.on_event(what)
        if what in (*_OF_CONTEXTS, "own", "end_own", "flags"):
            return self.of_context(what, device)
        if what in (*_OF_MEMORY, "set_attribute"):
            return self.of_memory(what, device)
        if what == "set":
            return self.set(device)
        if what == "peer":
            return self.call(
                what, ctypes.c_void_p(self.contexts[-1]) if self.dialect == "cuda" else device, 0
            )
        return self.call(what, *([device] if self.dialect in ("acl", "cuda") else []))

    def pooled(self, stream: ctypes.c_void_p) -> object:
        """Allocate memory of a pool, and write it: it may have bytes of an earlier use."""
        size = ctypes.c_size_t(self.draw.choice((_ROOM, _ROOM, _ROOM, 0)))
        code, address = self.created("pooled", size, stream)
        if code or not address:
            return code, bool(address)
        self.buffers.append(address)
        words = [ctypes.c_void_p(address), self.pageable, ctypes.c_size_t(_ROOM)]
        kind = [] if self.dialect == "cuda" else [ctypes.c_int32(4)]
        return code, self.call("queue", *words, *kind, stream), self.call("wait", stream)

    def set(self, device: int) -> object:
        """Make a device current: in CUDA, its primary context."""
        if self.dialect != "cuda":
            return self.call("set", device)
        code, handle = self.of_context("retain", device)
        return code or self.call("set", ctypes.c_void_p(handle))

    @staticmethod
    def beside(work: Callable[[], int]) -> int:
        """Do something in another thread, and wait for it."""
        drawn: list[int] = []
        thread = threading.Thread(target=lambda: drawn.append(work()))
        thread.start()
        thread.join()
        return drawn[0]

    def run(self) -> None:
        """Make the calls, and print what they answer and leave."""
        if self.dialect == "acl":
            self.library.aclInit(None)
        if self.dialect == "cuda":
            self.library.cuInit(0)
        for number in range(_CALLS):
            print(number, *map(str, (self.step(), bytes(self.pageable)[:8].hex())))
            if number % 10 == 0:
                self.pageable[number % 8] = number % 256
        for device in range(_DEVICES):  # a stream is waited for while its device is set
            self.set(device)
            for each in (*self.default_streams, *self.streams):
                print("end", self.call("wait", ctypes.c_void_p(each)))
        for each in self.pinned:
            print("pinned", self.call("copy", *self._into_pageable(each)), bytes(self.pageable)[:16].hex())
        for each in self.buffers:
            print("buffer", self.call("copy", *self._into_pageable(each)), bytes(self.pageable)[:16].hex())
        print("called", sorted(each or 0 for each in self.called))
        self.fork()
        print(self.hot, self.answered)

    def fork(self) -> None:
        """Print what a forked child is answered after calls that worked."""
        self.set(0)
        _, address = self.created("make", ctypes.c_size_t(_ROOM), *([0] if self.dialect == "acl" else []))
        words = self._into_pageable(address)
        print("parent", self.got(), self.call("copy", *words), self.call("copy", *words), flush=True)
        child = os.fork()
        if child == 0:
            print("child", self.got(), self.call("copy", *words), flush=True)
            os._exit(0)
        os.waitpid(child, 0)

    def _into_pageable(self, address: int) -> list[Any]:
        words = [
            ctypes.c_void_p(ctypes.addressof(self.pageable)),
            ctypes.c_void_p(address),
            ctypes.c_size_t(16),
        ]
        if self.dialect == "acl":
            words.insert(1, ctypes.c_size_t(_ROOM))
        return words if self.dialect == "cuda" else [*words, ctypes.c_int32(2)]


def answers(*words: str) -> list[str]:
    """Run Python with these words and return the lines that it prints."""
    process = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        # On a node of its own: what other processes have allocated there decides how a copy beyond memory fails.
        env={
            **os.environ,
            "PEERLANE_NODE": f"name=quick-{os.getpid()},devices=3",
            "PEERLANE_SCHEDULE": "eager",
            "PYTHONPATH": str(Path(__file__).parents[1]),
        },
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


if __name__ == "__main__":
    Program(sys.argv[1], int(sys.argv[2]), "asked" in sys.argv, "threads" in sys.argv).run()
