"""SGLang's tier of files on NIXL: pages that go to files and come back.

``python -m peerlane run --dialect nixl -m connectors.file_tier LAYOUT [direct]`` prints a line of JSON, as `pair`
does.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from connectors.stand_ins import Package

_PAGES, _TOKENS, _ELEMENTS = 32, 4, 1024
_ALIGNMENT = 4096


class _Pool:
    """The host's pool: keys and values of each token, aligned for direct I/O."""

    def __init__(self, layout: str):
        self.layout, self.page_size, self.pin_memory, self.dtype = layout, _TOKENS, False, torch.float32
        count = 2 * _PAGES * _TOKENS * _ELEMENTS
        self._memory = torch.zeros(count + _ALIGNMENT // 4, dtype=self.dtype)
        first = -self._memory.data_ptr() % _ALIGNMENT // 4
        self.kv_buffer = self._memory[first : first + count].view(2, _PAGES * _TOKENS, _ELEMENTS)

    def get_dummy_flat_data_page(self) -> torch.Tensor:
        return torch.zeros(2 * _TOKENS * _ELEMENTS, dtype=self.dtype)

    def get_data_page(self, index: int, flat: bool = True) -> torch.Tensor:
        return self.kv_buffer[:, index : index + _TOKENS].reshape(-1)

    def set_from_flat_data_page(self, index: int, page: torch.Tensor) -> None:
        self.kv_buffer[:, index : index + _TOKENS] = page.view(2, _TOKENS, _ELEMENTS)

    def is_stride_page_aligned(self, alignment: int) -> bool:
        return True

    def get_page_buffer_meta(self, indices: torch.Tensor) -> tuple[list[int], list[int]]:
        addresses = [
            self.kv_buffer[half, first].data_ptr() for first in indices[::_TOKENS].tolist() for half in (0, 1)
        ]
        return addresses, [_TOKENS * _ELEMENTS * 4] * len(addresses)


def run(layout: str, is_direct: bool, folder: Path) -> str:
    """Write all pages, read them back, and cut some files; return what was wrong."""
    os.environ["SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR"] = str(folder)
    nixl = "srt.mem_cache.storage.nixl."
    real = [
        nixl + each
        for each in ("hicache_nixl", "nixl_cleaner", "nixl_registry", "nixl_routing", "nixl_utils")
    ]
    Package(
        "sglang",
        [
            *real,
            "srt.environ",
            *(
                f"srt.mem_cache.{each}"
                for each in ("storage.mmap", "storage.mmap.mmap_allocator", "hicache_storage")
            ),
        ],
        {"srt.mem_cache.pool_host": {"HostKVCache": object}},
    )
    storage = import_module("sglang.srt.mem_cache.hicache_storage")
    plugin: dict[str, Any] = {"plugin": {"posix": {"active": "true"}}, "use_direct_io": is_direct}
    settings = storage.HiCacheStorageConfig(
        0, 1, 0, 1, 0, 1, False, False, layout != "layer_first", "stand/in", extra_config=plugin
    )
    tier = import_module("sglang.srt.mem_cache.storage.nixl.hicache_nixl").HiCacheNixl(settings)
    pool = _Pool(layout)
    tier.register_mem_pool_host(pool)
    keys = [f"page {each}" for each in range(_PAGES)]
    indices = torch.arange(_PAGES * _TOKENS)
    expected = torch.randn(pool.kv_buffer.shape)
    pool.kv_buffer.copy_(expected)
    wrong = []
    if tier.batch_exists(keys) or not all(tier.batch_set_v1(keys, indices)):
        wrong.append("a page was there before, or was not written")
    if tier.batch_exists([*keys, "none"]) != _PAGES:
        wrong.append("pages are not there after they were written")
    pool.kv_buffer.zero_()
    if not all(tier.batch_get_v1(keys, indices)) or not torch.equal(pool.kv_buffer, expected):
        wrong.append("pages have other bytes")
    if any(tier.batch_get_v1(["none"], indices[:_TOKENS])):
        wrong.append("a page was read that nobody wrote")
    for path in [each for each in folder.rglob("*") if each.is_file()][:3]:
        os.truncate(path, 10)
    if all(tier.batch_get_v1(keys, indices)):
        wrong.append("files that were cut were read")
    tier.clear()
    if tier.batch_exists(keys):
        wrong.append("pages are there after `clear`")
    tier.close()
    return "; ".join(wrong)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as _folder:
        _wrong = run(sys.argv[1], "direct" in sys.argv[2:], Path(_folder))
        print(json.dumps({"done": not _wrong, "error": _wrong, "wrong": []}), flush=True)
    os._exit(bool(_wrong))
