"""A paged KV cache moves between devices: scattered blocks gathered by one launch, and scattered at the other end.

The neutral form: one ``CopyDescriptor`` is a list of 10,000 copies in device memory.  Its entries cross devices, so
one launch brings the blocks of a sequence from the pages of device 0 to the pages of device 1.  The next sequence
rewrites the list in place, by an ordinary copy on the same stream, and launches it again: no allocation, no wait, no
Python per block.
``acl_kv_cache.py`` does the same with pyACL, whose descriptors hold one copy within one device each.

Runs on virtual devices: ``python kv_cache.py``.
"""

import argparse
import time

import numpy as np

import peerlane as pl


def run(blocks, block, sequences):
    """Move sequences, one launch each; return the seconds of the launches, the waiting included."""
    rng = np.random.default_rng(3)
    pages = 2 * blocks
    content = rng.integers(0, 256, (pages, block), dtype=np.uint8)
    near, far = pl.devices()[:2]
    near.peers.add(far)
    far.peers.add(near)
    with (
        near.allocate(pages * block, peer=True) as source,
        far.allocate(pages * block, peer=True) as target,
        near.allocate(pl.CopyDescriptor.size_for(blocks)) as table,
        near.create_stream() as stream,
    ):
        source.copy_from(content)
        target.fill(0)
        lists, expected = [], np.zeros((pages, block), np.uint8)
        for _ in range(sequences):
            taken, assigned = rng.permutation(pages)[:blocks], rng.permutation(pages)[:blocks]
            pairs = [
                (
                    target[int(to) * block : (int(to) + 1) * block],
                    source[int(at) * block : (int(at) + 1) * block],
                )
                for to, at in zip(assigned, taken, strict=True)
            ]
            encoded = pl.Host().allocate(
                pl.CopyDescriptor.size_for(blocks)
            )  # pinned: queued copies do not block
            encoded.copy_from(pl.CopyDescriptor.encode(pairs))
            lists.append(encoded)
            expected[assigned] = content[taken]
        launch = pl.CopyDescriptor(table)
        began = time.perf_counter()
        for encoded in lists:
            table.copy_from(encoded, stream=stream)
            launch.launch(stream)
        stream.sync(timeout=60)
        seconds = time.perf_counter() - began
        assert np.array_equal(target.view(np.uint8, (pages, block)), expected)
        for encoded in lists:
            encoded.close()
    return seconds


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--block-bytes", type=int, default=4096)
    parser.add_argument("--sequences", type=int, default=3)
    args = parser.parse_args()
    seconds = run(args.blocks, args.block_bytes, args.sequences)
    moved = args.blocks * args.block_bytes * args.sequences
    print(
        f"{args.sequences} x {args.blocks:,} blocks of {args.block_bytes:,} bytes moved by one launch each, every "
        f"byte verified: {moved / seconds / 1e9:.1f} GB/s"
    )


if __name__ == "__main__":
    main()
