"""A small connector of our own, by which the harness is tested: prefill writes, and a notification ends the wait."""

from __future__ import annotations

from connectors.caches import BLOCK_BYTES, Caches
from connectors.pair import SOURCE, TARGET, Link, Outcome


def _blocks(caches: Caches, numbers: list[int]) -> list[tuple[int, int, int]]:
    return [
        (each.address + n * BLOCK_BYTES, BLOCK_BYTES, caches.device)
        for each in caches.buffers
        for n in numbers
    ]


def _whole(caches: Caches) -> list[tuple[int, int, int, str]]:
    return [(each.address, each.size, caches.device, "") for each in caches.buffers]


def prefill(link: Link, caches: Caches) -> None:
    """Write the blocks when decode has asked."""
    from nixl._api import nixl_agent

    agent = nixl_agent("prefill")
    agent.register_memory(_whole(caches), "VRAM")
    metadata, blocks = link.receive()
    agent.add_remote_agent(metadata)
    sources = SOURCE[::-1] if link.variant == "mixed up" else SOURCE
    near = agent.get_xfer_descs(_blocks(caches, sources), "VRAM")
    far = agent.get_xfer_descs(blocks, "VRAM")
    handle = agent.initialize_xfer("WRITE", near, far, "decode", b"request")
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)


def decode(link: Link, caches: Caches) -> Outcome:
    """Ask for the blocks, and wait for the notification."""
    from nixl._api import nixl_agent

    agent = nixl_agent("decode")
    agent.register_memory(_whole(caches), "VRAM")
    link.ready()
    link.try_send((agent.get_agent_metadata(), _blocks(caches, TARGET)))
    link.look_early(caches)
    if link.variant == "hasty":
        return Outcome(True)
    return link.until(
        lambda: Outcome(True) if agent.check_remote_xfer_done("prefill", b"request") else None,
        3 if link.event == "kill" else 20,
    )
