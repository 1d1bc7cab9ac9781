"""Two devices work on pieces of one buffer in turn, with events between their streams: ``cuda.core``, unmodified.

::

    pip install cuda-core 'cuda-bindings==13.*'
    peerlane run --dialect cuda --devices 2 examples/cuda_pipeline.py
    peerlane check --dialect cuda --devices 2 examples/cuda_pipeline.py
"""

import numpy as np
from cuda.core import Device, DeviceMemoryResource, LegacyPinnedMemoryResource

PIECE, PIECES = 1 << 16, 8


def main() -> None:
    """Send pieces through both devices, and compare every byte."""
    first, second = Device(0), Device(1)
    pinned = LegacyPinnedMemoryResource()

    first.set_current()
    first.memory_resource.peer_accessible_by = [
        second
    ]  # what it allocates, streams of the second device read
    loading = first.create_stream()
    staged = [first.allocate(PIECE, stream=loading) for _ in range(2)]
    loaded = [first.create_event() for _ in range(2)]
    second.set_current()
    sending = second.create_stream()
    target = DeviceMemoryResource(second).allocate(PIECE, stream=sending)
    passed = [second.create_event() for _ in range(2)]

    source, result = pinned.allocate(PIECE * PIECES), pinned.allocate(PIECE * PIECES)
    numbers = np.from_dlpack(source).view(np.uint8)
    numbers[:] = np.random.default_rng(1).integers(0, 256, PIECE * PIECES, np.uint8)

    def piece_of(buffer, number):
        return type(buffer).from_handle(int(buffer.handle) + number * PIECE, PIECE, owner=buffer)

    for number in range(PIECES):
        at = number % 2
        if number >= 2:
            loading.wait(passed[at])  # before the buffer is written again
        piece_of(source, number).copy_to(staged[at], stream=loading)
        sending.wait(loading.record(loaded[at]))
        target.copy_from(staged[at], stream=sending)
        sending.record(passed[at])
        target.copy_to(piece_of(result, number), stream=sending)
    sending.sync()

    came = np.from_dlpack(result).view(np.uint8)
    assert np.array_equal(came, numbers)
    print(f"{came.nbytes:,} bytes went through two devices, every byte verified")


if __name__ == "__main__":
    main()
