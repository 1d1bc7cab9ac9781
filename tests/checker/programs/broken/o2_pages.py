"""Eight ranks: the upper four send pages to the lower four, which read page after page."""

import peerlane as pl

PAGE, PAGES, READY = 1 << 12, 4, 0

with pl.Group(window=2 * PAGES * PAGE) as group:
    half = group.size // 2
    channel = group.channel((group.rank + half) % group.size, notifies=1)
    if group.rank >= half:
        with group.device.allocate(PAGES * PAGE) as cache, group.device.create_stream() as stream:
            cache.fill(group.rank, stream=stream)
            for page in range(PAGES):
                at = page * PAGE if page < 2 else (page + 2) * PAGE
                channel.write(cache[page * PAGE : (page + 1) * PAGE], at=at, stream=stream)
            channel.notify(READY, stream=stream)
            stream.sync(timeout=20)
    else:
        channel.wait(READY, timeout=20)
        for page in range(PAGES):
            first = int(group.window[page * PAGE : (page + 1) * PAGE].view()[0])
    group.barrier()
