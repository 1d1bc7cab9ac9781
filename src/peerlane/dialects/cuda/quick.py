"""What native code records to answer calls of CUDA without Python."""

from __future__ import annotations

import os

from peerlane.dialects.cuda.state import LOG_FILE, gpu
from peerlane.dialects.gpu.quick import ASK, QuickCalls
from peerlane.dialects.gpu.vendor import Reason

_NOT_READY = gpu.vendor.code(Reason.NOT_READY)
quick = QuickCalls("cuda", gpu, not_ready=lambda: ASK if os.environ.get(LOG_FILE) else _NOT_READY)
