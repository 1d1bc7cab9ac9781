"""SGLang's disaggregation, with NIXL or Mooncake: manager, sender, receiver and bootstrap server."""

from __future__ import annotations

import logging
import os
import time
from importlib import import_module
from typing import Any

import numpy as np

from connectors.caches import BLOCK_BYTES, TOKENS, Caches
from connectors.pair import SOURCE, TARGET, Link, Outcome
from connectors.stand_ins import Package, Record

_REAL = (
    *(f"disaggregation.{each}.conn" for each in ("base", "common", "mooncake", "nixl")),
    *(f"disaggregation.common.{each}" for each in ("bootstrap", "staging_handler", "utils")),
    "disaggregation.mooncake.utils",
    "disaggregation.utils",
    "distributed.device_communicators.mooncake_transfer_engine",
    "environ",
    "utils.network",
)
_ROOM = 7
#: Prefill's and decode's rows of memory of the host, which go with a request.
_ROW, _OWN_ROW = 5, 2


class _Nothing:
    def __init__(self, *arguments: Any, **options: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def _setting(name: str) -> Any:
    if name.endswith("_size") or name in ("num_nodes", "nnodes"):
        return 1
    if name.endswith("_rank"):
        return 0
    return False if name.startswith(("enable", "is_", "use_")) else None


class _Side:
    """The connector of one process."""

    def __init__(self, link: Link, mode: str, caches: Caches):
        logging.basicConfig(level=os.environ.get("CONNECTORS_LOG", "ERROR"))
        link.kept.append(self)
        self.address = f"127.0.0.1:{link.port}"
        self.settings = Record(
            default=_setting,
            host="127.0.0.1",
            device="cuda",
            page_size=TOKENS,
            disaggregation_mode=mode,
            disaggregation_bootstrap_port=link.port,
            disaggregation_decode_allocation_policy="early",
            disaggregation_prefill_pp=1,
            load_balance_method="follow_bootstrap_room",
            max_running_requests=8,
            chunked_prefill_size=8192,
            num_dp_ranks=1,
        )
        self._load()
        base = import_module("sglang.srt.disaggregation.base.conn")
        self.poll = base.KVPoll
        self.error = import_module("sglang.srt.disaggregation.common.conn").KVTransferError
        self.connector = import_module(f"sglang.srt.disaggregation.{link.variant}.conn")
        modes = import_module("sglang.srt.disaggregation.utils").DisaggregationMode
        self._prefix = {"nixl": "NixlKV", "mooncake": "MooncakeKV"}[link.variant]
        if link.variant == "mooncake":
            engines = import_module("sglang.srt.distributed.device_communicators.mooncake_transfer_engine")
            engines.init_mooncake_transfer_engine("127.0.0.1", caches.device, None)
            import_module(
                "sglang.srt.distributed.parallel_state"
            ).get_mooncake_transfer_engine = engines.get_mooncake_transfer_engine
            self.connector.get_mooncake_transfer_engine = engines.get_mooncake_transfer_engine
        self.rows = np.zeros((8, 64), np.uint8)
        self._arguments = self._arguments_of(base.KVArgs, caches)
        self._mode = modes.PREFILL if mode == "prefill" else modes.DECODE

    def make(self, kind: str) -> Any:
        """Return a class of the connector."""
        return getattr(self.connector, self._prefix + kind)

    def manager(self) -> Any:
        """Make the connector's manager."""
        return self.make("Manager")(self._arguments, self._mode, self.settings, False)

    def _load(self) -> None:
        context = {
            f"get_{name}": lambda: self.settings
            for name in (
                *("device", "memory", "observability", "parallel", "schedule", "spec", "disagg", "serving"),
                *("exec", "model"),
            )
        }
        platforms = {f"is_{name}": lambda: False for name in ("npu", "cuda", "hip")}
        names: dict[str, dict[str, Any]] = {
            "srt.runtime_context": {
                **context,
                "linear_attn_tp_size": lambda: 1,
                "max_prefill_buffer_tokens": lambda *_, **__: 8192,
            },
            "srt.observability.mooncake_trace": {
                "mooncake_trace_func": lambda *_, **__: lambda function: function,
                "mooncake_trace_slice": _Nothing,
            },
            "srt.observability.trace": {
                "TraceNullContext": _Nothing,
                "TraceReqContext": _Nothing,
                "trace_set_thread_info": lambda *_, **__: None,
            },
            "srt.mem_cache.page_interleave": {"get_kv_shard_group": lambda *_: None},
            "srt.utils": platforms,
            "srt.utils.common": {
                **platforms,
                "run_with_deadline": lambda function, **_: function(),
                "ceil_align": lambda number, unit: -(-number // unit) * unit,
                "is_valid_ipv6_address": lambda address: ":" in address,
            },
        }
        Package("sglang", [f"srt.{each}" for each in _REAL], names)
        import torch

        torch.get_device_module = lambda device=None: Record(set_device=lambda number: None)

    def _arguments_of(self, cls: Any, caches: Caches) -> Any:
        arguments = cls()
        values = dict.fromkeys(cls.__annotations__)
        values.update(
            engine_rank=0,
            kv_data_ptrs=[each.address for each in caches.buffers],
            kv_data_lens=[each.size for each in caches.buffers],
            kv_item_lens=[BLOCK_BYTES] * len(caches.buffers),
            kv_data_mem_kinds=["VRAM"] * len(caches.buffers),
            aux_data_ptrs=[self.rows.ctypes.data],
            aux_data_lens=[self.rows.nbytes],
            aux_item_lens=[self.rows.shape[1]],
            gpu_id=caches.device,
            kv_head_num=1,
            total_kv_head_num=1,
            page_size=TOKENS,
            prefill_pp_size=1,
            pp_rank=0,
            prefill_start_layer=0,
            prefill_end_layer=len(caches.buffers) // 2,
            kv_cache_dtype_str="auto",
            system_dp_rank=0,
            num_draft_entries=0,
            decode_tp_size=1,
            ib_device="",
            is_hybrid_mla_backend=False,
            **{
                f"state_{each}": []
                for each in ("types", "data_ptrs", "data_lens", "item_lens", "dim_per_tensor")
            },
            **{f"state_{each}": [] for each in ("layer_ids", "slice_outer_counts", "conv_shard_groups")},
            kv_layer_ids=[],
        )
        for name, value in values.items():
            setattr(arguments, name, value)
        return arguments


def _wait(link: Link, ready: Any, what: str) -> None:
    outcome = link.until(lambda: Outcome(True) if ready() else None, 30)
    if not outcome.done:
        raise TimeoutError(f"{what}: {outcome.error}")


def prefill(link: Link, caches: Caches) -> None:
    """Serve the bootstrap, and send a request's pages when decode has asked for them."""
    side = _Side(link, "prefill", caches)
    side.rows[_ROW] = 42
    server = side.make("BootstrapServer")("127.0.0.1", link.port)
    manager = side.manager()
    sender = side.make("Sender")(manager, side.address, _ROOM)
    sender.init(len(SOURCE), _ROW)
    link.send("serving")
    _wait(link, lambda: sender.poll() != side.poll.Bootstrapping, "bootstrap")
    link.receive()
    sender.send(np.array(SOURCE, np.int32))
    _wait(link, lambda: sender.poll() in (side.poll.Success, side.poll.Failed), "transfer")
    print("prefill:", sender.poll(), flush=True)
    del server


def decode(link: Link, caches: Caches) -> Outcome:
    """Ask for the pages, and poll until the connector has an answer."""
    side = _Side(link, "decode", caches)
    link.receive()
    manager = side.manager()
    last = time.monotonic() + 30
    while not manager.try_ensure_parallel_info(side.address) and time.monotonic() < last:
        time.sleep(0.05)
    receiver = side.make("Receiver")(manager, side.address, _ROOM)
    receiver.init(0)
    _wait(link, lambda: receiver.poll() != side.poll.Bootstrapping, "bootstrap")
    receiver.send_metadata(np.array(TARGET, np.int32), _OWN_ROW)
    link.ready()
    link.try_send("send")

    def ended() -> Outcome | None:
        link.look_early(caches)
        state = receiver.poll()
        if state == side.poll.Failed:
            try:
                receiver.failure_exception()
            except side.error as error:
                return Outcome(False, f"{type(error).__name__}: {error}")
        if state != side.poll.Success:
            return None
        assert (side.rows[_OWN_ROW] == 42).all(), side.rows[_OWN_ROW]
        return Outcome(True)

    return link.until(ended, 60)
