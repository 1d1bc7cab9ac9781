"""A small safetensors file for the example that moves a model's weights."""

from __future__ import annotations

import json
from pathlib import Path


def small_weights(folder: Path) -> str:
    """Write a file of 307,277 bytes of tensors, one of which has none, and return its path."""
    parts = {"layer.weight": bytes(range(256)) * 1200, "layer.bias": b"\x17" * 77, "none": b""}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, part in parts.items():
        end += len(part)
        header[name] = {"dtype": "U8", "shape": [len(part)], "data_offsets": [end - len(part), end]}
    text = json.dumps(header).encode()
    file = folder / "small.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts.values()))
    return str(file)
