"""What holds after `peerlane.predict` raises."""

from __future__ import annotations

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.diagnostics.log import event_log
from peerlane.errors import BadArgument, Busy, InvalidValue, Unsupported
from peerlane.prediction.machines import MACHINES

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


@pytest.fixture
def devices(node: Node) -> list[pl.Device]:
    return node("devices=4")


def test_predict_block_that_fails_leaves_prediction_empty(devices: list[pl.Device]) -> None:
    a = devices[0].allocate(64)
    with pytest.raises(KeyError), pl.predict("h100-8") as prediction:
        pl.copy(a[:8], a[8:16])
        raise KeyError
    assert (prediction.operations, prediction.seconds, event_log.active) == ((), 0.0, False)
    assert repr(prediction) == "<Prediction for h100-8: empty until its block ends without an error>"
    with pl.predict("h100-8") as prediction:
        pl.copy(a[:8], a[8:16])
    assert len(prediction.operations) == 1
    assert repr(prediction).startswith(
        "<Prediction for h100-8: 2.0 us, 1 operation, bottleneck: memory of device 0"
    )


def test_predict_outside_of_a_with_statement_shows_what_to_write_and_can_be_entered_again(
    devices: list[pl.Device],
) -> None:
    a, block = devices[0].allocate(64), pl.predict("h100-8")
    assert repr(block).startswith("<pl.predict('h100-8'): write `with` before it")
    with block as first:
        pl.copy(a[:8], a[8:16])
    with block as second, pytest.raises(Busy), block:
        pass
    assert (len(first.operations), len(second.operations)) == (1, 0)


def test_predict_twice_raises_busy_and_first_goes_on(
    devices: list[pl.Device],
) -> None:
    a = devices[0].allocate(64)
    with pl.predict("h100-8") as prediction:
        with pytest.raises(Busy), pl.predict("h200-8"):
            pass
        pl.copy(a[:8], a[8:16])
    assert len(prediction.operations) == 1


def test_predict_unknown_profile_raises_unsupported() -> None:
    with pytest.raises(Unsupported) as caught:
        pl.predict("hgx")
    assert caught.value.detail == BadArgument("profile", "hgx", choices=tuple(MACHINES))
    assert not event_log.active


def test_predict_negative_compute_raises_invalid_value() -> None:
    with pytest.raises(InvalidValue) as caught:
        pl.predict("h100-8", compute=-1.0)
    assert caught.value.detail == BadArgument("compute", -1.0, least=0.0)
    assert not event_log.active
