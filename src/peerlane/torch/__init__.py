"""The back-end ``"peerlane"`` of ``torch.distributed``: ``import peerlane.torch``, then ask for it by name.

The files, from the ground up:

* ``failures`` turns peerlane's errors into those that programs of torch expect;
* ``lane`` runs calls one after the other, in the caller's thread where nothing is queued;
* ``work`` is what an asynchronous call returns;
* ``host_tensors`` gives the bytes of tensors, ``reductions`` the operations on them;
* ``collective_calls`` are the collectives of a :class:`peerlane.Group` on tensors;
* ``receives`` are receives that are under way, ``messages`` sends and receives with tags;
* ``meeting`` brings ranks together over a store of torch, ``monitored`` tells who is missing there;
* ``process_group`` is the ``ProcessGroup`` that torch calls.
"""

from __future__ import annotations

import torch.distributed

from peerlane.diagnostics.waits import progress
from peerlane.torch import monitored
from peerlane.torch.process_group import BACKEND, PeerlaneGroup, create

__all__ = ["PeerlaneGroup"]

progress.passed_through.add("torch")
progress.serving_natively.add("pt_tcpstore_uv")  # the server of a TCPStore
torch.distributed.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu"])
monitored.serve(PeerlaneGroup)
