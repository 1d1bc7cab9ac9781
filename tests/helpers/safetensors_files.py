"""Safetensors files for tests, valid and false."""

from __future__ import annotations

import json
from pathlib import Path


def packed(header: bytes, data: bytes = b"", *, claimed: int | None = None) -> bytes:
    """Return a file's bytes; ``claimed`` is the header length that it states."""
    return (len(header) if claimed is None else claimed).to_bytes(8, "little") + header + data


def entry(dtype: str = "U8", shape: object = (4,), begin: object = 0, end: object = 4) -> dict[str, object]:
    """Return the header's entry of one tensor."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def model(tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str] | None = None) -> bytes:
    """Return a whole, valid file."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = entry(dtype, shape, len(data), len(data) + len(content))
        data += content
    return packed(json.dumps(header).encode(), data)


def small_model(folder: Path) -> Path:
    """Write a model of three tensors, one of them empty, and return its path."""
    path = folder / "small.safetensors"
    path.write_bytes(
        model(
            {
                "layer.weight": ("BF16", [512, 300], bytes(range(256)) * 1200),
                "layer.bias": ("F8_E4M3", [77], b"\x17" * 77),
                "none": ("F32", [0, 9], b""),
            },
            {"format": "pt"},
        )
    )
    return path
