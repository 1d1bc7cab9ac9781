"""torch's ``npu`` on virtual devices: unmodified programs that say ``npu:1``, ``torch.npu.*`` or ``torch_npu``.

* ``serving`` names the device of torch, and its back-end ``hccl``, when torch has been imported;
* ``npu`` is ``torch.npu``;
* ``library`` is the module ``torch_npu``;
* ``contrib`` and ``transfer_to_npu`` are its modules for programs that say ``cuda``.
"""
