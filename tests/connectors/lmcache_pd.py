"""LMCache's back-end of disaggregated prefill: the one with threads, and the one with coroutines."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from threading import Thread
from typing import Any

import torch

from connectors.caches import BLOCK_BYTES, BLOCKS, LAYERS, TOKENS, Caches
from connectors.pair import SOURCE, Link, Outcome
from connectors.stand_ins import Record

_HEAD_BYTES = BLOCK_BYTES // (2 * LAYERS * TOKENS)
_SHAPE = torch.Size([2, LAYERS, TOKENS, _HEAD_BYTES // 2])
_CHUNKS = len(SOURCE)


class _Side:
    """The back-end of one process, whose chunks are on a virtual device."""

    def __init__(self, link: Link, role: str, caches: Caches):
        link.kept.append(self)
        self.allocated, self._request = caches.buffers[0], list[bytes]()
        from lmcache.v1 import memory_management
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata

        logging.disable(os.environ.get("CONNECTORS_LOG", "WARNING"))
        memory_management._allocate_cpu_memory = self._allocate
        self.initialization, self.allocation, self.router, self._relayed = range(link.port, link.port + 4)
        is_receiver = role == "receiver"
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=TOKENS,
            enable_pd=True,
            transfer_channel="nixl",
            pd_role=role,
            pd_buffer_size=BLOCKS * BLOCK_BYTES,
            pd_buffer_device="cpu",
            pd_peer_host="127.0.0.1" if is_receiver else None,
            pd_peer_init_port=[self.initialization] if is_receiver else None,
            pd_peer_alloc_port=[self._relayed] if is_receiver else None,
            pd_proxy_host="127.0.0.1",
            pd_proxy_port=self.router,
            pd_backend_mode=link.variant,
        )
        metadata = LMCacheMetadata(
            "stand-in",
            1,
            1,
            0,
            0,
            torch.bfloat16,
            (LAYERS, 2, TOKENS, 1, _HEAD_BYTES // 2),
            chunk_size=TOKENS,
        )
        module, cls = {"sync": ("pd_backend", "PDBackend"), "async": ("pd_backend_async", "PDBackendAsync")}[
            link.variant
        ]
        self.backend = getattr(import_module(f"lmcache.v1.storage_backend.{module}"), cls)(config, metadata)

    def _allocate(self, size: int, *_: Any, **__: Any) -> torch.Tensor:
        return self.allocated.tensor("uint8", (size,))

    def keys(self) -> list[Any]:
        """Return the keys of the request's chunks."""
        from lmcache.utils import CacheEngineKey

        return [CacheEngineKey("stand-in", 1, 0, 1000 + each, torch.bfloat16) for each in range(_CHUNKS)]

    def relay(self, link: Link) -> None:
        """Pass allocations on to the back-end; the request's is answered when what befalls prefill has begun."""
        import zmq

        context = zmq.Context()
        front, back = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        front.bind(f"tcp://127.0.0.1:{self.allocation}")
        back.connect(f"tcp://127.0.0.1:{self._relayed}")
        sender, *self._request = front.recv_multipart()
        back.send_multipart(self._request)
        answer = back.recv_multipart()
        link.ready()
        front.send_multipart([sender, *answer])

    def ask_again(self) -> int:
        """Ask for the same chunks, as the next prefill of the prompt does; return how many it need not write."""
        import msgspec
        import zmq

        again = zmq.Context().socket(zmq.DEALER)
        again.connect(f"tcp://127.0.0.1:{self._relayed}")
        again.send_multipart(self._request)
        return len(msgspec.msgpack.decode(again.recv_multipart()[-1])["already_sent_indexes"])


def prefill(link: Link, caches: Caches) -> None:
    """Compute chunks, and put them to decode."""
    side = _Side(link, "sender", caches)
    link.receive()
    chunks = [side.backend.allocate(_SHAPE, torch.bfloat16) for _ in range(_CHUNKS)]
    numbers = [each.meta.address for each in chunks]
    caches.compute(numbers)
    link.send(numbers)
    specification = Record(
        req_id="request",
        receiver_host="127.0.0.1",
        receiver_init_port=[side.initialization],
        receiver_alloc_port=[side.allocation],
        is_last_prefill=True,
        total_chunks=_CHUNKS,
    )
    written = []
    side.backend.batched_submit_put_task(
        side.keys(), chunks, specification, on_complete_callback=written.append
    )
    sent = link.until(lambda: Outcome(True) if len(written) == _CHUNKS else None, 30)
    print("prefill:", f"{len(written)} chunks are written", sent.error, flush=True)


def decode(link: Link, caches: Caches) -> Outcome:
    """Wait for the router's message, which prefill's back-end sends, and take the chunks."""
    import zmq

    side = _Side(link, "receiver", caches)
    router = zmq.Context().socket(zmq.PULL)
    router.bind(f"tcp://127.0.0.1:{side.router}")
    Thread(target=side.relay, args=(link,), daemon=True).start()
    link.send("listening")
    sources = link.receive()
    keys = side.keys()

    def ended() -> Outcome | None:
        if link.event == "early" and all(map(side.backend.contains, keys)):
            caches.look([side.backend.get_blocking(each).meta.address for each in keys])
        return Outcome(True) if router.poll(0) else None

    outcome = link.until(ended, 10)
    present = [each for each in keys if side.backend.contains(each)]
    targets = [side.backend.get_blocking(each).meta.address for each in present]
    moved = dict(zip(targets, sources, strict=False))
    if outcome.done:
        return Outcome(len(present) == _CHUNKS, "", moved)
    error = f"{outcome.error}; contains() is true for {len(present)} of {_CHUNKS} chunks"
    if present:
        error += f", and {side.ask_again()} of them count as sent"
    return Outcome(False, error, moved)
