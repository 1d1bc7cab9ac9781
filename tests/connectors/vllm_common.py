"""What stand-ins of several modules of vLLM have."""

from __future__ import annotations

import logging
from typing import Any

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
