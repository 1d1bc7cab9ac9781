"""Print what a program has computed, bit by bit."""

import hashlib
import json


def show(losses, devices, tensors):
    """Print the losses, the devices, and a digest of the bytes of named tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    print(
        json.dumps(
            {"losses": [loss.hex() for loss in losses], "devices": devices, "digest": digest.hexdigest()}
        )
    )
