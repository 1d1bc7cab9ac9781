"""vLLM's connectors: NIXL's for pull and push, and Mooncake's, each with its scheduler's and its worker's side."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from connectors.caches import BLOCK_BYTES, BLOCKS, TOKENS, Caches, DeviceTensor
from connectors.pair import SOURCE, Link, Outcome
from connectors.stand_ins import Package, Record
from connectors.vllm_common import NAMES, ask_for_blocks, blocks_of, request_of

_CONNECTOR = "distributed.kv_transfer.kv_connector."
_REAL = (
    *(f"{_CONNECTOR}v1.{each}" for each in ("base", "metrics", "ssm_conv_transfer_utils", "nixl")),
    *(
        f"{_CONNECTOR}v1.nixl.{each}"
        for each in (
            *("base_scheduler", "base_worker", "connector", "metadata", "pull_scheduler", "pull_worker"),
            *("push_scheduler", "push_worker", "stats", "tp_mapping", "utils"),
        )
    ),
    *(f"{_CONNECTOR}v1.mooncake.{each}" for each in ("mooncake_connector", "mooncake_utils", "stats")),
    f"{_CONNECTOR}utils",
    "distributed.nixl_utils",
    "envs",
    "utils.math_utils",
    "utils.network_utils",
    "v1.kv_cache_interface",
    "v1.kv_cache_layout",
    "v1.kv_cache_spec_registry",
)
#: The module and the class of each connector.
_CONNECTORS = {
    "pull": ("nixl.connector", "NixlPullConnector"),
    "push": ("nixl.connector", "NixlPushConnector"),
    "mooncake": ("mooncake.mooncake_connector", "MooncakeConnector"),
}
#: Seconds, shorter than by default.
_EXTRA = {"kv_lease_duration": 12, "push_registration_timeout": 5}
_LAYERS = [f"layers.{each}.attn" for each in range(4)]


class _Attention:
    @staticmethod
    def get_name() -> str:
        return "STAND_IN"

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, **_: Any
    ) -> Any:
        return (num_blocks, num_kv_heads, block_size, 2 * head_size)


def _load(variant: str, port: int, device: int) -> tuple[Any, Any]:
    os.environ.update(
        VLLM_HOST_IP="127.0.0.1",
        VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1",
        VLLM_NIXL_SIDE_CHANNEL_PORT=str(port),
        VLLM_MOONCAKE_BOOTSTRAP_PORT=str(port),
        VLLM_MOONCAKE_CONNECTOR_TIMEOUT="5",
        VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT="30",
    )
    names: dict[str, dict[str, Any]] = {
        **NAMES,
        "config.utils": {
            "hash_factors": lambda factors: repr(sorted(factors.items(), key=lambda each: each[0]))
        },
        "distributed.parallel_state": {
            "get_pp_group": lambda: Record(rank_in_group=0, world_size=1),
            "get_tensor_model_parallel_rank": lambda: 0,
            "get_tensor_model_parallel_world_size": lambda: 1,
        },
        "utils.torch_utils": {
            "get_dtype_size": lambda dtype: dtype.itemsize,
            "is_non_overlapping_and_dense": lambda tensor: tensor.is_contiguous(),
        },
        "model_executor.models.utils": {"extract_layer_index": lambda name: int(name.split(".")[1])},
        "v1.attention.backends.utils": {"NULL_BLOCK_ID": 0},
        "v1.worker.utils": {"select_common_block_size": lambda block_size, *_: block_size},
        "v1.request": {"RequestStatus": Record(default=lambda name: name)},
    }
    Package("vllm", _REAL, names)
    torch.accelerator.current_device_index = lambda: device
    module, name = _CONNECTORS[variant]
    parent = "vllm.distributed.kv_transfer.kv_connector.v1."
    connector = import_module(parent + module)
    worker = import_module(parent + "nixl.base_worker") if "nixl" in module else connector
    worker.get_current_attn_backends = lambda config: [_Attention]
    worker.get_current_attn_backends_and_specs = lambda *_: ([_Attention], [])
    return getattr(connector, name), connector.KVConnectorRole


class _Side:
    """The scheduler's and the worker's connector of one process."""

    def __init__(self, link: Link, role: str, caches: Caches):
        logging.basicConfig(level=os.environ.get("CONNECTORS_LOG", "ERROR"))
        link.kept.append(self)
        connector, roles = _load(link.variant, link.port + (role == "kv_consumer"), caches.device)
        interface = import_module("vllm.v1.kv_cache_interface")
        spec = interface.FullAttentionSpec(
            block_size=TOKENS, num_kv_heads=1, head_size=BLOCK_BYTES // TOKENS // 4, dtype=torch.bfloat16
        )
        self.configuration = interface.KVCacheConfig(
            num_blocks=BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[interface.KVCacheGroupSpec(_LAYERS, spec)],
        )
        transfer = Record(
            kv_role=role,
            engine_id=f"{role} engine",
            kv_buffer_device="cuda",
            kv_connector_extra_config={"mooncake_protocol": "rdma"},
            get_from_extra_config=lambda name, default: {
                "kv_lease_duration": 12,
                "push_registration_timeout": 5,
            }.get(name, default),
        )
        config = Record(
            kv_transfer_config=transfer,
            parallel_config=Record(
                tensor_parallel_size=1,
                pipeline_parallel_size=1,
                prefill_context_parallel_size=1,
                decode_context_parallel_size=1,
                data_parallel_index=0,
                data_parallel_rank_local=0,
                local_engines_only=True,
            ),
            scheduler_config=Record(disable_hybrid_kv_cache_manager=False),
            cache_config=Record(
                block_size=TOKENS,
                cache_dtype="auto",
                get_resolved_kv_cache_layout=lambda: interface.KVCacheLayout.LBHNC,
            ),
            model_config=Record(
                model="stand-in",
                dtype=torch.bfloat16,
                use_mla=False,
                get_total_num_kv_heads=lambda: 1,
                get_head_size=lambda: spec.head_size,
                get_total_num_hidden_layers=lambda: len(_LAYERS),
            ),
            num_prefill_lookahead_tokens=0,
        )
        self.scheduler = connector(config, roles.SCHEDULER, self.configuration)
        self.worker = connector(config, roles.WORKER, self.configuration)
        shape = (BLOCKS, 1, TOKENS, 2 * spec.head_size)
        self.worker.register_kv_caches(
            {
                name: DeviceTensor(
                    torch.empty(shape, dtype=torch.bfloat16, device="meta"), buffer, caches.device
                )
                for name, buffer in zip(_LAYERS, caches.buffers, strict=True)
            }
        )
        offered = self.worker.get_handshake_metadata()
        if offered is not None:
            self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): offered})

    def step(self, forward: Callable[[], None] = lambda: None) -> Any:
        """Run a step of the engine: scheduler's metadata to the worker, the model, the worker's results back."""
        output = Record(
            scheduled_new_reqs=[], scheduled_cached_reqs=Record(req_ids=[]), num_scheduled_tokens={}
        )
        self.worker.bind_connector_metadata(self.scheduler.build_connector_meta(output))
        self.worker.start_load_kv(None)
        forward()
        results = self.worker.get_transfer_results(set())
        self.scheduler.update_connector_output(
            Record(finished_recving=results.finished_recving, finished_sending=results.finished_sending)
        )
        return results


def prefill(link: Link, caches: Caches) -> None:
    """Compute a request, offer its blocks, and step until decode has them."""
    side = _Side(link, "kv_producer", caches)
    request = request_of("request-0000000a", {"do_remote_decode": True, "transfer_id": "transfer"})
    side.scheduler.update_state_after_alloc(request, blocks_of(SOURCE), 0)
    side.step()
    kept, parameters = side.scheduler.request_finished_all_groups(request, (SOURCE,))
    assert kept
    link.send(
        parameters
        or {
            "do_remote_prefill": True,
            "transfer_id": "transfer",
            "remote_engine_id": "kv_producer engine",
            "remote_bootstrap_addr": f"http://127.0.0.1:{link.port}",
        }
    )
    sent = link.until(lambda: Outcome(True) if side.step().finished_sending else None, 30)
    print("prefill:", "blocks are free" if sent.done else sent.error, flush=True)


def decode(link: Link, caches: Caches) -> Outcome:
    """Load the blocks of prefill's request."""
    side = _Side(link, "kv_consumer", caches)
    parameters = link.receive()
    link.ready()
    ask_for_blocks(side.scheduler, "request-0000000b", parameters)

    def ended() -> Outcome | None:
        results = side.step(lambda: link.look_early(caches))
        lost = side.worker.get_block_ids_with_load_errors()
        if lost:
            return Outcome(False, f"get_block_ids_with_load_errors: {sorted(lost)}")
        return Outcome(True) if "request-0000000b" in results.finished_recving else None

    return link.until(ended, 30)
