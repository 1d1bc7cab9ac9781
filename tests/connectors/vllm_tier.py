"""vLLM's tier of other engines' blocks on NIXL: decode loads from prefill's memory of the host."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import Any

import numpy as np

from connectors.caches import BLOCK_BYTES, BLOCKS, TOKENS, Caches
from connectors.pair import SOURCE, TARGET, Link, Outcome
from connectors.stand_ins import Package, Record
from connectors.vllm_common import NAMES

_TIER = "v1.kv_offload.tiering."
_REAL = (
    *(
        f"{_TIER}p2p.{each}"
        for each in ("manager", "control", "control.base", "control.zmq", "data", "data.base")
    ),
    *(f"{_TIER}p2p.{each}" for each in ("data.nixl", "session", "session.client", "session.protocol")),
    *(f"{_TIER}p2p.{each}" for each in ("session.server", "session.session")),
    f"{_TIER}base",
    "distributed.nixl_utils",
    "envs",
    "v1.kv_offload.base",
    "v1.kv_offload.config",
    "v1.kv_offload.file_mapper",
    "v1.metrics.cache_hit_source",
)


class _Side:
    """The tier of one process, whose blocks are the host's view of device memory."""

    def __init__(self, link: Link, caches: Caches, port: int):
        logging.basicConfig(level=os.environ.get("CONNECTORS_LOG", "ERROR"))
        Package("vllm", _REAL, {**NAMES, "v1.core.kv_cache_utils": {"get_none_hash_seed": lambda: "seed"}})
        link.kept.append(self)
        self._base = import_module("vllm.v1.kv_offload.base")
        self._tiering = import_module("vllm.v1.kv_offload.tiering.base")
        config = import_module("vllm.v1.kv_offload.config")
        parallel = config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True)
        settings = config.OffloadingConfig(
            groups=(config.OffloadingGroupConfig(TOKENS, ("layers",), 0),),
            worker_kv_bytes_per_block=BLOCK_BYTES,
            enable_kv_cache_events=False,
            extra_config={},
            engine_id=f"engine at {port}",
            model=config.OffloadingModelConfig("stand-in", "bfloat16"),
            cache=config.OffloadingCacheConfig(TOKENS, 1),
            parallel=parallel,
        )
        manager = import_module("vllm.v1.kv_offload.tiering.p2p.manager").P2PSecondaryTierManager
        self.tier = manager(
            Record(config=settings, blocks_per_chunk=1),
            memoryview(caches.buffers[0].view().reshape(BLOCKS, BLOCK_BYTES)),
            host="127.0.0.1",
            port=port,
        )

    def job(self, parameters: dict[str, Any], blocks: list[int], *, loads: bool) -> Any:
        """Begin a request; return the job for its blocks."""
        context = self._base.ReqContext("request", kv_transfer_params=parameters)
        self.tier.on_new_request(context)
        keys = [self._base.make_offload_key(each.to_bytes(32, "big"), 0) for each in SOURCE]
        return self._tiering.TransferJob(1, keys, np.array(blocks), loads, context)

    def ended(self) -> bool | None:
        """Poll; return whether the job succeeded, when it has ended."""
        results = list(self.tier.get_finished_jobs())
        return results[0].success if results else None


def prefill(link: Link, caches: Caches) -> None:
    """Store a request's blocks, and serve them."""
    side = _Side(link, caches, link.port)
    side.tier.submit_store(side.job({"remote_decoder": {"kv_request_id": "request"}}, SOURCE, loads=False))
    link.send("stored")
    sent = link.until(lambda: None if (good := side.ended()) is None else Outcome(good), 60)
    print("prefill:", "blocks are free" if sent.done else sent.error, flush=True)
    while link.lasts(0.005):
        side.ended()


def decode(link: Link, caches: Caches) -> Outcome:
    """Load the blocks from prefill."""
    side = _Side(link, caches, link.port + 1)
    link.receive()
    link.ready()
    source = {"kv_request_id": "request", "remote_host": "127.0.0.1", "remote_port": link.port}
    side.tier.submit_load(side.job({"remote_prefiller": source}, TARGET, loads=True))

    def ended() -> Outcome | None:
        link.look_early(caches)
        good = side.ended()
        return None if good is None else Outcome(good, "" if good else "JobResult: success is False")

    return link.until(ended, 60)
