"""What stand-ins of several modules of vLLM have."""

from __future__ import annotations

import logging
from typing import Any

from connectors.caches import TOKENS
from connectors.pair import TARGET
from connectors.stand_ins import Record


class _Logger(logging.Logger):
    def info_once(self, *arguments: Any) -> None:
        self.info(*arguments)

    warning_once = debug_once = info_once


NAMES: dict[str, dict[str, Any]] = {
    "": {"__version__": "0.33.0"},
    "logger": {"init_logger": _Logger},
    "platforms": {
        "current_platform": Record(
            device_type="cuda",
            set_device=lambda device: None,
            get_nixl_memory_type=lambda: None,
            get_nixl_supported_devices=dict,
            is_rocm=lambda: False,
            is_xpu=lambda: False,
            is_cuda=lambda: True,
        )
    },
}


def request_of(name: str, parameters: dict[str, Any]) -> Record:
    """Return the scheduler's request of a prompt that fills the blocks, with its first token."""
    tokens = len(TARGET) * TOKENS
    return Record(
        request_id=name,
        kv_transfer_params=parameters,
        status="FINISHED_LENGTH_CAPPED",
        prompt_token_ids=list(range(tokens)),
        output_token_ids=[1],
        num_prompt_tokens=tokens,
        num_computed_tokens=tokens,
    )


def ask_for_blocks(scheduler: Any, name: str, parameters: dict[str, Any]) -> None:
    """Let decode's scheduler ask prefill for all blocks of a request."""
    request = request_of(name, parameters)
    tokens, is_asynchronous = scheduler.get_num_new_matched_tokens(request, 0)
    assert tokens == len(TARGET) * TOKENS and is_asynchronous
    scheduler.update_state_after_alloc(request, blocks_of(TARGET), tokens)


def blocks_of(numbers: list[int]) -> Record:
    """Return what the scheduler has allocated for a request."""
    return Record(
        blocks=([Record(block_hash=None, is_null=False) for _ in numbers],),
        get_unhashed_block_ids=lambda: numbers,
        get_unhashed_block_ids_all_groups=lambda: (numbers,),
    )
