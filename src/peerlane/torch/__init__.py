"""torch's device ``peerlane``, and the back-end ``"peerlane"`` of ``torch.distributed``: ``import peerlane.torch``.

The files of the device:

* ``extension/`` is the device in C++, ``extension_build`` compiles and loads it;
* ``device_objects`` is what it asks of peerlane: devices, memory, streams;
* ``shared_tensors`` sends tensors to other processes;
* ``symmetric_memory`` maps memory and signals of all ranks, ``symmetric_operations`` are operations on it;
* ``compiling`` serves ``torch.compile``;
* ``device_module`` is ``torch.peerlane``; ``device`` registers all of it.

The files of the back-end, from the ground up:

* ``failures`` turns peerlane's errors into those that programs of torch expect;
* ``lane`` runs calls one after the other, in the caller's thread where nothing is queued;
* ``work`` is what an asynchronous call returns;
* ``tensor_bytes`` gives the bytes of tensors, ``reductions`` the operations on them;
* ``collective_calls`` are the collectives of a :class:`peerlane.Group` on tensors;
* ``device_calls`` queues calls on tensors of devices;
* ``receives`` are receives that are under way, ``messages`` sends and receives with tags;
* ``dispatched`` calls collectives by way of torch's dispatcher;
* ``meeting`` brings ranks together over a store of torch, ``monitored`` tells who is missing there;
* ``flight_recorder`` keeps torch's recorder from these groups;
* ``process_group`` is the ``ProcessGroup`` that torch calls.
"""

from __future__ import annotations

import torch.distributed

from peerlane.diagnostics import call_site
from peerlane.diagnostics.waits import progress
from peerlane.support import torch_version as torch_version  # before what follows: it may refuse torch
from peerlane.torch import compiling, device, flight_recorder, monitored, work
from peerlane.torch.process_group import BACKEND, PeerlaneGroup, create

__all__ = ["PeerlaneGroup"]

device.register()
compiling.keep_from_tracing()
call_site.pass_through("torch")
progress.serving_natively.add("pt_tcpstore_uv")  # the server of a TCPStore
torch.distributed.Backend.register_backend(BACKEND, create, extended_api=True, devices=list(device.kinds()))
monitored.serve(PeerlaneGroup)
flight_recorder.leave_out(PeerlaneGroup)
work.keep_for_reducers()
