"""torch's ``cuda`` on virtual devices: unmodified programs that say ``cuda:1`` or ``torch.cuda.*``.

* ``peerlane.torch_names`` waits for the import of torch, in this process and in its Python children;
* ``builds`` refuses builds of torch that have CUDA themselves;
* ``bindings`` is what torch's own ``torch.cuda`` asks of its native library, which a build for the processor lacks;
* ``driver`` has the streams and the device of a thread in common with CUDA's dialect;
* ``nccl_group`` is NCCL for ``torch.distributed``.
"""
