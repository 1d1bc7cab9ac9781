"""Pictures that notebooks show: the devices of a node with their links, and the timeline of a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

from peerlane.support.sizes import format_size

#: With more devices than that a notebook shows no table of links.
MOST_DEVICES = 64

_LABEL, _WIDTH = 170, 900  # pixels: the names of streams, the picture
_ROW, _AXIS, _LEGEND = 24, 26, 22  # pixels: a stream, the axis, what the colours mean
_CHARACTER = 7  # pixels, about
_MOST_TICKS = 6
_UNITS = (("s", 10**9), ("ms", 10**6), ("us", 1000), ("ns", 1))
#: Of Okabe and Ito's palette, which the colour-blind can tell apart.
_COLOURS = {
    "copy": "#0072B2",
    "copy_2d": "#56B4E9",
    "batch": "#009E73",
    "descriptor": "#009E73",
    "fill": "#E69F00",
    "reduce": "#CC79A7",
    "file": "#D55E00",
}
_OTHER = "#888888"


def table_of_devices(devices: Sequence[Any]) -> str:
    """Return HTML: a row for each device, with its memory and its links; a link with peer access is bold."""
    columns = devices if len(devices) <= MOST_DEVICES else ()
    heads = ["device", "kind", "memory", "free", *(each.name for each in columns)]
    rows = []
    for device in devices:
        if device.is_closed:
            cells = [f"<td colspan={len(heads) - 1}>closed</td>"]
        else:
            free = f"{device.free_bytes / device.total_bytes:.0%}"
            facts = (device.info.name, format_size(device.total_bytes), free)
            cells = [f"<td>{escape(each)}</td>" for each in facts]
            cells += [_link(device, other) for other in columns]
        rows.append(f"<tr><th>{escape(device.name)}</th>{''.join(cells)}</tr>")
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _link(device: Any, other: Any) -> str:
    kind = device.link(other)
    if device == other:
        return f"<td>{escape(kind)}</td>"
    is_open = other in device.peers
    state = "peer access is enabled" if is_open else device.why_not(other) or "peer access can be enabled"
    shown = f"<b>{escape(kind)}</b>" if is_open else escape(kind)
    return f'<td title="{escape(state)}">{shown}</td>'


def drawn_timeline(operations: Sequence[Any], names: dict[int, str], width: int = _WIDTH) -> str:
    """Return SVG: a row for each stream, with its operations from the first one's start to the last one's end.

    Below the rows stands what each colour means.

    Operations that are narrower than half a pixel, and lie where the one before of their stream lies, are left out.

    ``operations``: stream by stream, each in its order.
    ``names``: the name of each stream.
    ``width``: in pixels.
    """
    streams = list(dict.fromkeys((each.device, each.stream) for each in operations))
    height = _AXIS + _ROW * max(1, len(streams)) + (_LEGEND if operations else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="currentColor">'
    ]
    if not operations:
        parts.append(f'<text x="0" y="{_AXIS}">no operation is over</text>')
    else:
        start = min(each.start_ns for each in operations)
        span = max(1, max(each.end_ns for each in operations) - start)
        scale = (width - _LABEL - 1) / span
        parts += _axis(span, scale, height - _LEGEND)
        for row, key in enumerate(streams):
            top = _AXIS + _ROW * row
            label = f"{key[0]}, {names.get(key[1], f'stream {key[1]}')}"
            parts.append(f'<text x="0" y="{top + 16}">{escape(label)}</text>')
            parts += _bars(
                [each for each in operations if (each.device, each.stream) == key], start, scale, top
            )
        parts += _legend(dict.fromkeys(each.kind for each in operations), height)
    return "".join([*parts, "</svg>"])


def _axis(span: int, scale: float, height: int) -> Iterator[str]:
    unit, length = next((name, size) for name, size in _UNITS if span >= size)
    step = _step(span)
    for at in range(0, span + 1, step):
        x = _LABEL + at * scale
        anchor = "middle" if at else "start"
        if x <= _LABEL + span * scale - 2 * _CHARACTER:  # else the picture ends before the text
            yield f'<text x="{x:.1f}" y="14" text-anchor="{anchor}">{at / length:g} {unit}</text>'
        yield f'<line x1="{x:.1f}" y1="18" x2="{x:.1f}" y2="{height}" stroke="currentColor" stroke-opacity="0.15"/>'


def _step(span: int) -> int:
    """Return the nanoseconds between ticks: 1, 2 or 5 times a power of ten, and at most so many ticks."""
    tens = 1
    while True:
        for factor in (1, 2, 5):
            if span <= factor * tens * (_MOST_TICKS - 1):
                return factor * tens
        tens *= 10


def _legend(kinds: Iterable[str], height: int) -> Iterator[str]:
    x = float(_LABEL)
    for kind in kinds:
        yield f'<rect x="{x:.1f}" y="{height - 14}" width="10" height="10" fill="{_COLOURS.get(kind, _OTHER)}"/>'
        yield f'<text x="{x + 15:.1f}" y="{height - 5}">{escape(kind)}</text>'
        x += 15 + _CHARACTER * (len(kind) + 2)


def _bars(operations: Sequence[Any], start: int, scale: float, top: int) -> Iterator[str]:
    drawn_to = -1.0
    for each in operations:
        x, width = _LABEL + (each.start_ns - start) * scale, (each.end_ns - each.start_ns) * scale
        if width < 0.5 and x < drawn_to:
            continue
        drawn_to = x + max(width, 1.0)
        moved = f", {format_size(each.nbytes)}" if each.nbytes else ""
        title = f"{each.kind}{moved}, {(each.end_ns - each.start_ns) / 1000:,.1f} us"
        yield (
            f'<rect x="{x:.1f}" y="{top + 4}" width="{max(width, 1.0):.1f}" height="{_ROW - 8}" '
            f'fill="{_COLOURS.get(each.kind, _OTHER)}"><title>{escape(title)}</title></rect>'
        )
