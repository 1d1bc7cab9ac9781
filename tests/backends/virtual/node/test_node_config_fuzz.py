"""Any configuration, however wrong, gives a node or raises InvalidValue."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.config import KEYS
from peerlane.errors import Fault, InvalidValue

pytestmark = pytest.mark.any_schedule

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-3, 9),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["2MiB", "16GiB", "hgx", "guard", "PIX", "ci", b"x"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab") | st.text(), inner),
    max_leaves=12,
)


def only_refuses(make: Callable[[], NodeConfig]) -> None:
    """Check that ``make`` gives a node that round-trips, or raises InvalidValue with a short text."""
    try:
        node = make()
    except InvalidValue as error:
        assert error.fault is Fault.BAD_CONFIG
        assert len(str(error)) < 1500
    else:
        assert NodeConfig.parse(node.spec) == node


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=6), VALUES, max_size=5))
def test_node_config_of_any_settings_is_valid_or_raises_invalid_value(values: dict[str, object]) -> None:
    only_refuses(lambda: NodeConfig(values))


ITEMS = st.builds(
    "{}{}{}".format,
    st.sampled_from([*KEYS, "devics", ""]),
    st.sampled_from(["=", "==", ""]),
    st.text(max_size=6) | st.sampled_from(["2", "2MiB", "hgx", "true", "01/10", "0-1:PIX", "1GiB"]),
)


@settings(deadline=None)
@given(st.text() | st.lists(ITEMS, max_size=4).map(",".join))
@example("\0")
@example("\udcff.toml")
@example("=")
def test_parse_of_any_text_is_valid_or_raises_invalid_value(text: str) -> None:
    only_refuses(lambda: NodeConfig.parse(text))
    only_refuses(lambda: NodeConfig.from_environment({"PEERLANE_NODE": text}))


TOML_WORDS = r"""1 2 -1 0x10 1.5 nan inf true "2MiB" 'hgx' "\ud800" [ ] [[0,1],[1,0]] {a=0,b=1,kind='NV'}
[{a=0,b=1,kind='NV'}] 1979-05-27 07:32:00 # '\'' ["2MiB",4194304]"""
TOML_VALUES = st.sampled_from([*TOML_WORDS.split(), "9" * 4999, "", '"""']) | st.text(
    string.printable, max_size=8
)
TOML_LINES = st.builds(
    "{} = {}".format, st.sampled_from([*KEYS, "a", "node.x"]), TOML_VALUES
) | st.sampled_from(
    ["[node]", "[[node.link]]", "[node.link]", "[[node]]", "[other]", "a=0", "b=1", "kind='PIX'"]
)


@settings(deadline=None)
@given(body=st.lists(TOML_LINES, max_size=5).map("\n".join).map(str.encode) | st.binary(max_size=40))
def test_load_of_any_file_is_valid_or_raises_invalid_value(
    tmp_path_factory: pytest.TempPathFactory, body: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    for content in (body, b"[node]\n" + body):
        path.write_bytes(content)
        only_refuses(lambda: NodeConfig.load(path))
