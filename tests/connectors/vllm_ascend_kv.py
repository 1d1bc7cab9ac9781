"""vllm-ascend's connector for Mooncake: decode pulls, with the scheduler's and the worker's side of each process."""

from __future__ import annotations

import logging
import os
import sys
import types
from importlib import import_module
from typing import Any

import torch

from connectors.caches import BLOCK_BYTES, BLOCKS, TOKENS, Caches, DeviceTensor
from connectors.pair import SOURCE, Link, Outcome
from connectors.stand_ins import Package, Record
from connectors.vllm_common import NAMES, ask_for_blocks, blocks_of, request_of

_REAL_OF_VLLM = (
    "distributed.kv_transfer.kv_connector.v1.base",
    "envs",
    "utils.network_utils",
)
_REAL = (
    "distributed.kv_transfer.kv_p2p.mooncake_connector",
    "distributed.kv_transfer.utils.mooncake_transfer_engine",
    "distributed.kv_transfer.utils.utils",
)
_ELEMENTS = BLOCK_BYTES // TOKENS // 2
_SIZES = {"tp_size": 1, "dp_size": 1}


def _load() -> tuple[Any, Any]:
    alone = Record(rank_in_group=0, world_size=1)
    Package(
        "vllm",
        _REAL_OF_VLLM,
        {
            **NAMES,
            "logger": {"logger": logging.getLogger("vllm"), **NAMES["logger"]},
            "distributed": {"get_pcp_group": lambda: alone},
            "distributed.parallel_state": {
                "get_pp_group": lambda: alone,
                "get_tp_group": lambda: alone,
                "get_tensor_model_parallel_rank": lambda: 0,
                "get_tensor_model_parallel_world_size": lambda: 1,
                "get_decode_context_model_parallel_rank": lambda: 0,
                "get_decode_context_model_parallel_world_size": lambda: 1,
            },
            "distributed.utils": {"get_pp_indices": lambda layers, rank, size: (0, layers)},
            "v1.request": {"RequestStatus": Record(default=lambda name: name)},
        },
    )
    Package(
        "vllm_ascend",
        _REAL,
        {
            "ascend_config": {"init_ascend_config": lambda config: None, "get_ascend_config": Record},
            "utils": {"is_vl_model": lambda config: False},
        },
    )
    sys.modules["torch_npu"] = types.ModuleType("torch_npu")
    connector = import_module("vllm_ascend.distributed.kv_transfer.kv_p2p.mooncake_connector")
    return connector.MooncakeConnector, connector.KVConnectorRole


class _Side:
    """The scheduler's and the worker's connector of one process."""

    def __init__(self, link: Link, role: str, caches: Caches):
        logging.basicConfig(level=os.environ.get("CONNECTORS_LOG", "CRITICAL"))
        os.environ.update(VLLM_HOST_IP="127.0.0.1", VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT="30")
        link.kept.append(self)
        connector, roles = _load()
        layers = len(caches.buffers) // 2
        config = Record(
            kv_transfer_config=Record(
                kv_role=role,
                engine_id=f"{role} engine",
                kv_port=link.port + (role == "kv_consumer"),
                get_from_extra_config=lambda name, default: {"prefill": _SIZES, "decode": _SIZES}.get(
                    name, default
                ),
            ),
            parallel_config=Record(
                tensor_parallel_size=1,
                pipeline_parallel_size=1,
                prefill_context_parallel_size=1,
                decode_context_parallel_size=1,
                data_parallel_size=1,
                data_parallel_size_local=1,
                data_parallel_rank=0,
                data_parallel_rank_local=0,
            ),
            cache_config=Record(block_size=TOKENS),
            model_config=Record(
                is_deepseek_mla=False,
                hf_text_config=Record(num_hidden_layers=layers, num_key_value_heads=1, head_dim=_ELEMENTS),
            ),
        )
        self.scheduler = connector(config, roles.SCHEDULER)
        self.worker = connector(config, roles.WORKER)
        tensors = [
            DeviceTensor(
                torch.empty((BLOCKS, TOKENS, 1, _ELEMENTS), dtype=torch.bfloat16, device="meta"),
                each,
                caches.device,
            )
            for each in caches.buffers
        ]
        self.worker.register_kv_caches(
            {f"layers.{at}.attn": (tensors[2 * at], tensors[2 * at + 1]) for at in range(layers)}
        )
        self.scheduler.set_xfer_handshake_metadata({0: self.worker.get_handshake_metadata()})

    def step(self) -> tuple[set[str], set[str]]:
        """Run a step of the engine; return the requests that were sent, and those that were received."""
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(Record()))
        self.worker.start_load_kv(None)
        sent, received = self.worker.get_finished(set())
        return sent, received


def prefill(link: Link, caches: Caches) -> None:
    """Compute a request, offer its blocks, and step until decode has them."""
    side = _Side(link, "kv_producer", caches)
    request = request_of("request-a", {"do_remote_decode": True})
    side.scheduler.update_state_after_alloc(request, blocks_of(SOURCE), 0)
    kept, parameters = side.scheduler.request_finished(request, SOURCE)
    assert kept
    side.step()
    link.send(parameters)
    sent = link.until(lambda: Outcome(True) if side.step()[0] else None, 30)
    print("prefill:", "blocks are free" if sent.done else sent.error, flush=True)


def decode(link: Link, caches: Caches) -> Outcome:
    """Pull the blocks of prefill's request."""
    side = _Side(link, "kv_consumer", caches)
    parameters = link.receive()
    link.ready()
    ask_for_blocks(side.scheduler, "request-b", parameters)

    def ended() -> Outcome | None:
        received = side.step()[1]
        link.look_early(caches)
        return Outcome(True) if received else None

    return link.until(ended, 30)
