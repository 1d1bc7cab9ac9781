"""Each example is right, so the checker finds nothing in it."""

from __future__ import annotations

import pytest

from checker.checking import TESTS, checked_program, told

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

EXAMPLES = TESTS.parent / "examples"
RANKS = {"channel_ring": 4, "hcomm_all_reduce": 4, "hcomm_write_on_thread": 3, "kv_transfer": 2}
SMALLER = {"acl_kv_cache": ["--blocks", "1000"], "kv_cache": ["--blocks", "1000"]}
#: What other examples import.
PARTS = ("acl_checked", "hip_checked")


@pytest.mark.parametrize(
    "name", sorted(each.stem for each in EXAMPLES.glob("*.py") if each.stem not in PARTS)
)
def test_check_of_an_example_has_no_findings(name: str) -> None:
    done = checked_program(EXAMPLES / f"{name}.py", *SMALLER.get(name, []), ranks=RANKS.get(name))
    assert (done.code, told(done.findings)) == (0, ""), done.output
    assert "not complete" not in done.output
