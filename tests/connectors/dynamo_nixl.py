"""Dynamo's connector on NIXL: decode reads what prefill offers, or prefill writes where decode has room."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from connectors.caches import BLOCK_BYTES, Caches
from connectors.pair import SOURCE, TARGET, Link, Outcome

_SECONDS = 10.0


def _descriptors(caches: Caches, blocks: Sequence[int]) -> list[Any]:
    from dynamo.nixl_connect import Descriptor

    return [
        Descriptor((buffer.address + block * BLOCK_BYTES, BLOCK_BYTES, f"cuda:{caches.device}", buffer))
        for buffer in caches.buffers
        for block in blocks
    ]


async def _offer(link: Link, caches: Caches) -> None:
    from dynamo.nixl_connect import Connector

    with await Connector("prefill").create_readable(_descriptors(caches, SOURCE)) as operation:
        link.send(operation.metadata().model_dump_json())
        await operation.wait_for_completion()
        print("prefill:", operation.status, flush=True)


async def _read(link: Link, caches: Caches) -> Outcome:
    from dynamo.nixl_connect import Connector, RdmaMetadata

    metadata = RdmaMetadata.model_validate_json(await asyncio.to_thread(link.receive))
    link.ready()
    operation = await Connector("decode").begin_read(metadata, _descriptors(caches, TARGET))
    print("decode:", operation.status, flush=True)  # which posts the transfer
    link.look_early(caches)
    await asyncio.wait_for(operation.wait_for_completion(), _SECONDS)
    return Outcome(True)


async def _write(link: Link, caches: Caches) -> None:
    from dynamo.nixl_connect import Connector, RdmaMetadata

    metadata = RdmaMetadata.model_validate_json(await asyncio.to_thread(link.receive))
    operation = await Connector("prefill").begin_write(_descriptors(caches, SOURCE), metadata)
    await operation.wait_for_completion()
    print("prefill:", operation.status, flush=True)


async def _make_room(link: Link, caches: Caches) -> Outcome:
    from dynamo.nixl_connect import Connector

    operation = await Connector("decode").create_writable(_descriptors(caches, TARGET))
    link.ready()
    link.try_send(operation.metadata().model_dump_json())
    link.look_early(caches)
    await asyncio.wait_for(operation.wait_for_completion(), _SECONDS)
    return Outcome(True)


def prefill(link: Link, caches: Caches) -> None:
    """Offer the blocks, or write them."""
    asyncio.run((_offer if link.variant == "read" else _write)(link, caches))


def decode(link: Link, caches: Caches) -> Outcome:
    """Read the blocks, or wait until they are written."""
    from nixl._bindings import nixlBackendError, nixlRemoteDisconnectError

    try:
        return asyncio.run((_read if link.variant == "read" else _make_room)(link, caches))
    except TimeoutError:
        return Outcome(False, f"no answer within {_SECONDS:.0f} s")
    except (RuntimeError, nixlBackendError, nixlRemoteDisconnectError) as error:
        return Outcome(False, f"{type(error).__name__}: {error}")
