"""Give torch the device ``npu`` and the back-end ``hccl`` when it has been imported."""

from __future__ import annotations

import sys

import torch
import torch.distributed

import peerlane.torch  # noqa: F401 - it registers the device
from peerlane.torch.process_group import create
from peerlane.torch_npu import npu


def serve() -> None:
    """Serve ``torch.npu`` and ``hccl``."""
    vars(torch)["npu"] = sys.modules["torch.npu"] = npu
    torch.distributed.Backend.register_backend("hccl", create, extended_api=True, devices=["npu"])
