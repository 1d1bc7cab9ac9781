"""``peerlane launch --predict``: how long the streams of all ranks would take on a real machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from peerlane.checker.clocks import align
from peerlane.diagnostics.log.log_files import logs_in
from peerlane.prediction.recorded import of_logs


def lines(profile: str, folder: Path) -> Iterator[str]:
    """Yield the prediction for the logs in a folder in lines: all, each stream, and what is not known."""
    logs = logs_in(folder)
    for line in align(logs):
        yield f"peerlane launch: --predict: {line}"
    prediction = of_logs(profile, logs)
    most = prediction.bottleneck
    through = f"; the bottleneck is {most.name}, {most.share:.0%} used" if most else ""
    yield f"peerlane launch: predicted for {profile}: {prediction.seconds * 1e6:,.1f} us{through}"
    for each in prediction.streams:
        yield f"peerlane launch:   {each.name}: {each.end * 1e6:,.1f} us, {each.nbytes:,} bytes"
    for what, times in prediction.unknown.items():
        yield f"peerlane launch:   not known: {what} ({times:,})"
