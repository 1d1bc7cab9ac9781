"""The drawings of docs/mental-model.md; `python -m docs_site.drawings`, run in scripts/, writes them anew.

Each has a light ground of its own, so it reads on a light and on a dark page.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "drawings"
INK, SOFT, BLUE, GREEN, RED = "#1f2933", "#9aa5b1", "#dbeafe", "#d9f2e3", "#c0262d"
WIDTH = 640


class Drawing:
    """A picture of boxes, arrows and words; lengths are pixels.

    Parameters
    ----------
    title : str
        What the picture shows, for those who do not see it.
    height : int
    """

    def __init__(self, title: str, height: int) -> None:
        self.title, self.height = title, height
        self._parts: list[str] = []

    def words(self, x: int, y: int, text: str, *, colour: str = INK, middle: bool = False) -> None:
        """Write a line of text on the base line `y`."""
        anchor = ' text-anchor="middle"' if middle else ""
        self._parts.append(f'<text x="{x}" y="{y}" fill="{colour}"{anchor}>{escape(text)}</text>')

    def box(self, x: int, y: int, width: int, height: int, text: str = "", *, fill: str = "none") -> None:
        """Draw a box with its text in the middle; one without a fill has a dashed edge and its text on top."""
        edge = f'stroke="{INK}"' if fill != "none" else f'stroke="{SOFT}" stroke-dasharray="5 4"'
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" {edge}/>'
        )
        if text:
            self.words(x + width // 2, y + (height // 2 + 5 if fill != "none" else 18), text, middle=True)

    def arrow(
        self, start: tuple[int, int], end: tuple[int, int], text: str = "", *, orders: bool = True
    ) -> None:
        """Draw an arrow with words beside its middle; what does not order is red and dashed, and has no head."""
        (x1, y1), (x2, y2) = start, end
        style = (
            f'stroke="{INK}" marker-end="url(#head)"' if orders else f'stroke="{RED}" stroke-dasharray="6 4"'
        )
        self._parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke-width="1.6" {style}/>')
        if text:
            colour = INK if orders else RED
            self.words((x1 + x2) // 2 + 8, (y1 + y2) // 2 - 6, text, colour=colour, middle=y1 == y2)

    def lane(self, y: int, name: str) -> None:
        """Draw the line on which the operations of a stream or a thread lie, from left to right."""
        self.words(16, y + 5, name)
        self._parts.append(
            f'<line x1="100" y1="{y}" x2="{WIDTH - 16}" y2="{y}" stroke="{SOFT}" stroke-width="1.2"/>'
        )

    def operation(self, x: int, y: int, text: str, *, width: int = 96, fill: str = BLUE) -> None:
        """Draw an operation on the lane at `y`."""
        self.box(x, y - 15, width, 30, text, fill=fill)

    def svg(self) -> str:
        """Return the picture."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" role="img"'
                ' font-family="system-ui, sans-serif" font-size="14">',
                f"<title>{escape(self.title)}</title>",
                '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
                f' orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
                f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="#fff"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def node() -> Drawing:
    """Draw two processes on a node of four devices."""
    drawing = Drawing("Two processes use a node of four devices, which lie under two switches", 270)
    for x, name in ((90, "process 1 (rank 0)"), (370, "process 2 (rank 1)")):
        drawing.box(x, 12, 180, 34, name, fill=GREEN)
    drawing.arrow((180, 46), (180, 84), "pl.devices()")
    drawing.arrow((460, 46), (460, 84), "pl.devices()")
    drawing.box(12, 66, 616, 192)
    drawing.words(26, 86, "node")
    for switch in (0, 1):
        left = 40 + 290 * switch
        drawing.box(left + 70, 220, 130, 26, f"switch {switch}", fill="#e9edf2")
        for number in (0, 1):
            x = left + 140 * number
            drawing.box(x, 96, 130, 88)
            drawing.words(x + 65, 116, f"virtual:{2 * switch + number}", middle=True)
            drawing.box(x + 15, 128, 100, 42, "memory", fill=BLUE)
            drawing.arrow((x + 65, 184), (left + 95 + 80 * number, 220))
        drawing.words(left + 135, 206, "peer access", middle=True)
    drawing.arrow((240, 233), (400, 233), "through the host")
    return drawing


def streams() -> Drawing:
    """Draw what an event orders, on three lanes."""
    drawing = Drawing(
        "An event of stream 1 orders its fill before the copy on stream 2; sync orders both before the view",
        210,
    )
    for y, name in ((40, "program"), (105, "stream 1"), (170, "stream 2")):
        drawing.lane(y, name)
    drawing.operation(110, 40, "submits", fill=GREEN)
    drawing.operation(426, 40, "sync()", fill=GREEN, width=80)
    drawing.operation(530, 40, "view()", fill=GREEN, width=80)
    drawing.operation(150, 105, "fill a")
    drawing.operation(262, 105, "record", width=70)
    drawing.operation(300, 170, "wait", width=60)
    drawing.operation(380, 170, "copy a to b", width=100)
    drawing.arrow((158, 55), (190, 90))
    drawing.arrow((297, 120), (325, 155), "event")
    drawing.arrow((440, 155), (466, 55))
    return drawing


def unordered() -> Drawing:
    """Draw two accesses that nothing orders."""
    drawing = Drawing(
        "Nothing orders the fill on stream 1 and the copy on stream 2, nor the copy and the view", 210
    )
    for y, name in ((40, "program"), (105, "stream 1"), (170, "stream 2")):
        drawing.lane(y, name)
    drawing.operation(110, 40, "submits", fill=GREEN)
    drawing.operation(480, 40, "view()", fill=GREEN, width=80)
    drawing.operation(200, 105, "fill a")
    drawing.operation(340, 170, "copy a to b", width=100)
    drawing.arrow((158, 55), (240, 90))
    drawing.arrow((270, 120), (370, 155), "race", orders=False)
    drawing.arrow((410, 155), (510, 55), "race", orders=False)
    return drawing


def notify() -> Drawing:
    """Draw a channel: a write and a notify between two ranks."""
    drawing = Drawing(
        "Rank 0 writes into the window of rank 1 and records a notify, for which rank 1 waits", 250
    )
    for y, rank in ((12, 0), (142, 1)):
        drawing.box(12, y, 616, 96)
        drawing.words(26, y + 22, f"rank {rank} of the group")
    drawing.lane(72, "stream")
    drawing.lane(202, "stream")
    drawing.operation(130, 72, "write block")
    drawing.operation(270, 72, "notify 0", width=80)
    drawing.operation(330, 202, "wait 0", width=80)
    drawing.operation(440, 202, "read window", width=110)
    drawing.box(130, 172, 110, 56, "window", fill="#fff3cd")
    drawing.arrow((178, 87), (184, 172), "bytes")
    drawing.arrow((316, 87), (362, 187), "channel")
    return drawing


def handle() -> Drawing:
    """Draw a handle that travels from one process to another one."""
    drawing = Drawing(
        "A handle travels as 64 bytes; the process that opens it has the same memory, no copy", 210
    )
    drawing.box(30, 16, 200, 90)
    drawing.box(410, 16, 200, 90)
    drawing.words(130, 36, "process 1", middle=True)
    drawing.words(510, 36, "process 2", middle=True)
    drawing.box(60, 50, 140, 40, "block.export()", fill=GREEN)
    drawing.box(440, 50, 140, 40, "Buffer.open()", fill=GREEN)
    drawing.arrow((200, 70), (440, 70), "handle (64 bytes)")
    drawing.box(220, 146, 200, 44, "memory of virtual:0", fill=BLUE)
    drawing.arrow((130, 90), (250, 146))
    drawing.arrow((510, 90), (390, 146))
    return drawing


DRAWINGS = {each.__name__: each for each in (node, streams, unordered, handle, notify)}


def main() -> None:
    """Write all drawings."""
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
