"""The connectors that run: what of them, with which stand-ins, and how each ends when prefill is killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Connector(NamedTuple):
    """A connector of a serving system.

    Attributes
    ----------
    title : str
    module : str
        Its module in this package.
    variant : str
        Which of the module's connectors.
    dialect : str
    distribution : str
        Where it is from.
    ran : str
        The classes that run unmodified.
    stand_ins : str
        What is ours.
    when_killed : str
        A pattern of decode's error when prefill is killed before the request; empty if the connector then says that
        the blocks are there.
    order : str
        What brings decode's reads behind the transfer.
    defects : tuple of str
        What of it fails, by its kind.
    buffers : int
        How many buffers the cache has.
    is_seen : bool
        Whether ``check`` sees the transfer.
    """

    title: str
    module: str
    variant: str
    dialect: str
    distribution: str
    ran: str
    stand_ins: str
    when_killed: str
    order: str = ""
    defects: tuple[str, ...] = ()
    buffers: int = 4
    is_seen: bool = True


_OF_VLLM = (
    "`vllm.config`, `platforms`, `parallel_state`, the attention back-end, the scheduler's output and the "
    "request; tensors without bytes at the addresses of device memory"
)
_OF_SGLANG = (
    "`runtime_context` (one rank of everything), `server_args`, tracing, the model's pools; the addresses of device "
    "memory and one array of the host"
)
_OF_LMCACHE = (
    "the engine that calls the back-end, and the router; the pool of chunks is a tensor on device memory, which "
    "LMCache takes for memory of the CPU"
)
_NO_WORD = r"^no answer within 10"
_OWN_STATE = "decode's own query of the transfer's state"
_NOTIFICATION = "a NIXL notification"
_MESSAGE = "a ZeroMQ message of prefill, which has seen the transfer's end"
_MESSAGE_OF_SGLANG = (
    f"{_MESSAGE}; decode's thread that receives it sets an entry of a dict, which `poll` reads"
)
_MESSAGE_TO_ROUTER = f"{_MESSAGE}, to the router"

OF_PEERLANE: Mapping[str, Connector] = {
    "vllm-nixl-pull": Connector(
        "vLLM, NIXL, pull",
        "vllm_kv",
        "pull",
        "nixl",
        "vllm",
        "`NixlPullConnector` as scheduler and as worker, with its listener for handshakes",
        _OF_VLLM,
        r"^get_block_ids_with_load_errors: \[3, 4, 5, 9\]$",
        _OWN_STATE,
    ),
    "vllm-nixl-push": Connector(
        "vLLM, NIXL, push",
        "vllm_kv",
        "push",
        "nixl",
        "vllm",
        "`NixlPushConnector` as scheduler and as worker, with its writer's thread",
        _OF_VLLM,
        r"^get_block_ids_with_load_errors: \[3, 4, 5, 9\]$",
        _NOTIFICATION,
        (
            "hang: when prefill is killed after it has taken decode's registration, no error ends the request; after "
            "`push_registration_timeout` the scheduler drops the registration and logs it, and decode's blocks stay "
            "taken",
        ),
    ),
    "vllm-mooncake": Connector(
        "vLLM, Mooncake",
        "vllm_kv",
        "mooncake",
        "mooncake",
        "vllm",
        "`MooncakeConnector` as scheduler and as worker, with its bootstrap server",
        _OF_VLLM,
        r"^get_block_ids_with_load_errors: \[3, 4, 5, 9\]$",
        f"{_MESSAGE}, to decode's loop of asyncio",
    ),
    "vllm-ascend": Connector(
        "vllm-ascend, Mooncake",
        "vllm_ascend_kv",
        "pull",
        "mooncake",
        "vllm-ascend",
        "`MooncakeConnector` as scheduler and as worker, with its sending and its receiving thread, and `GlobalTE`",
        "`vllm.distributed`, `ascend_config`, `torch_npu`, the scheduler's output and the request; tensors without "
        "bytes at the addresses of device memory",
        "",
        "decode's own transfer, which is over when the call returns, and a lock",
        (
            "stale bytes: when prefill is killed before the pull, `_handle_request` logs the failure and counts the "
            "request as received, so decode takes what was in the memory before",
        ),
    ),
    "vllm-tier": Connector(
        "vLLM, tier of other engines",
        "vllm_tier",
        "p2p",
        "nixl",
        "vllm",
        "`P2PSecondaryTierManager` of both sides, with `P2PSession`, `ZmqTransport` and `NixlTransport`",
        "the tiering manager that calls the tier, `OffloadingSpec`; the tier's memory of the host is the "
        "host's view of device memory",
        r"^JobResult: success is False$",
        _MESSAGE,
        (),
        1,
    ),
    "sglang-nixl": Connector(
        "SGLang, NIXL",
        "sglang_kv",
        "nixl",
        "nixl",
        "sglang",
        "`NixlKVManager`, `NixlKVSender`, `NixlKVReceiver`, `NixlKVBootstrapServer`",
        _OF_SGLANG,
        r"^KVTransferError: .*Lost connection with prefill instance",
        _MESSAGE_OF_SGLANG,
    ),
    "sglang-mooncake": Connector(
        "SGLang, Mooncake",
        "sglang_kv",
        "mooncake",
        "mooncake",
        "sglang",
        "`MooncakeKVManager`, `MooncakeKVSender`, `MooncakeKVReceiver`, `MooncakeKVBootstrapServer`, "
        "`MooncakeTransferEngine`",
        _OF_SGLANG,
        r"^KVTransferError: .*Lost connection with prefill instance",
        _MESSAGE_OF_SGLANG,
    ),
    "lmcache-pd": Connector(
        "LMCache, disaggregated prefill",
        "lmcache_pd",
        "sync",
        "nixl",
        "lmcache",
        "`PDBackend` as sender and as receiver, `NixlChannel`, the paged allocator: the whole package",
        _OF_LMCACHE,
        _NO_WORD,
        _MESSAGE_TO_ROUTER,
        (
            "hang: no error of the back-end ends decode's wait when prefill is killed between the allocation and the "
            "write; only a time-out of the router can",
            "leak: the receiver keeps the chunks of a killed sender for ever, and `contains` says that they are "
            "there, with bytes that nobody wrote",
            "stale bytes: the next prefill of the same prompt learns that all of these chunks were sent already, so "
            "nobody writes them, and decode takes what was in the memory before",
        ),
        1,
    ),
    "lmcache-pd-async": Connector(
        "LMCache, disaggregated prefill with coroutines",
        "lmcache_pd",
        "async",
        "nixl",
        "lmcache",
        "`PDBackendAsync` as sender and as receiver, `NixlChannel`, the paged allocator: the whole package",
        _OF_LMCACHE,
        _NO_WORD,
        _MESSAGE_TO_ROUTER,
        (
            "hang: as of `PDBackend`",
            "leak: the receiver keeps the chunks of a killed sender; a cancellation frees them, and a killed sender "
            "sends none",
            "stale bytes: as of `PDBackend`",
        ),
        1,
    ),
    "dynamo-read": Connector(
        "Dynamo, decode reads",
        "dynamo_nixl",
        "read",
        "nixl",
        "ai-dynamo-runtime",
        "`nixl_connect`: `Connector`, `ReadableOperation`, `ReadOperation`, `RdmaMetadata`",
        "the workers: a pipe carries the metadata; descriptors are addresses of device memory",
        r"^(nixl\w+Error|RuntimeError)",
        _OWN_STATE,
    ),
    "dynamo-write": Connector(
        "Dynamo, prefill writes",
        "dynamo_nixl",
        "write",
        "nixl",
        "ai-dynamo-runtime",
        "`nixl_connect`: `Connector`, `WritableOperation`, `WriteOperation`, `RdmaMetadata`",
        "the workers: a pipe carries the metadata; descriptors are addresses of device memory",
        _NO_WORD,
        _NOTIFICATION,
        (
            "hang: `WritableOperation.wait_for_completion` has no deadline and does not see that the writer has "
            "ended; the same holds for `ReadableOperation` and a killed reader",
        ),
    ),
}
#: Those on NIXL that also run by their names, with NVIDIA's wheel nixl installed, on memory of CUDA's driver.
_WITH_WHEEL = ("vllm-nixl-pull", "vllm-nixl-push", "vllm-tier", "sglang-nixl", "dynamo-read", "dynamo-write")
CONNECTORS: Mapping[str, Connector] = {
    **OF_PEERLANE,
    **{
        # The tier's memory is the host's, which UCX moves without CUDA.
        f"{name}-wheel": OF_PEERLANE[name]._replace(dialect="cuda", is_seen=name != "vllm-tier")
        for name in _WITH_WHEEL
    },
}
