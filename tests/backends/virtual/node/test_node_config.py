"""A node's configuration from text, file and mapping; wrong configurations raise InvalidValue and nothing else."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerlane.backends.virtual.node import PROFILES, LinkKind, NodeConfig
from peerlane.backends.virtual.node.config import KEYS
from peerlane.errors import Fault, InvalidValue
from peerlane.support.sizes import format_size, parse_size

pytestmark = pytest.mark.any_schedule

GiB = 1 << 30

FULL = {
    "name": "ci",
    "devices": 3,
    "switch": 2,
    "memory": ["2MiB", 4 << 20, "1.5GiB"],
    "profile": "mi300x",
    "host_access": "guard",
    "poison": True,
    "cache_bytes": "0B",
    "window_bytes": "512GiB",
    "p2p": [[1, 0, 1], [1, 1, 1], [0, 1, 0]],
    "link": [{"a": 2, "b": 0, "kind": "PXB"}, {"a": 0, "b": 1, "kind": "NV"}],
}


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "node.toml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(make: Callable[[], object], *parts: str) -> str:
    """Check that ``make`` raises BAD_CONFIG, and that the text has ``parts`` in this order."""
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.fault is Fault.BAD_CONFIG
    text = rest = str(caught.value)
    for part in parts:
        assert part in rest, f"{part!r} is not (or not in order) in {text!r}"
        rest = rest[rest.index(part) + len(part) :]
    return text


def test_node_config_default_is_two_devices_on_one_switch() -> None:
    node = NodeConfig.from_environment({})
    assert (node.devices, node.switch, node.memory) == (2, 2, (16 * GiB, 16 * GiB))
    assert (node.profile.name, node.host_access, node.poison) == ("default", "guard", False)
    assert (node.cache_bytes, node.window_bytes) == (GiB, 64 << 40)
    assert node == NodeConfig() == NodeConfig.parse("") == NodeConfig.from_environment({"PEERLANE_NODE": ""})


def test_parse_inline_text_sets_each_value() -> None:
    node = NodeConfig.parse("name=ci, devices=8,switch=4,memory=16GiB,profile=ascend-a2,poison=true")
    assert (node.name, node.devices, node.switch, node.memory) == ("ci", 8, 4, (16 * GiB,) * 8)
    assert (node.profile, node.poison) == (PROFILES["ascend-a2"], True)


def test_parse_inline_arrays_sets_memory_p2p_and_links() -> None:
    node = NodeConfig.parse("devices=2,memory=2MiB/4MiB,p2p=01/00,link=1-0:NODE")
    assert node.memory == (2 << 20, 4 << 20)
    assert node.p2p == (b"\0\1", b"\0\0")
    assert node.links == ((0, 1, LinkKind.NODE),)


def test_load_toml_equals_settings_it_holds(toml: Callable[[str], Path]) -> None:
    node = NodeConfig.load(
        toml(
            """
            [node]
            name = "ci"
            devices = 3
            switch = 2
            memory = ["2MiB", 4194304, "1.5GiB"]
            profile = "mi300x"
            host_access = "guard"
            poison = true
            cache_bytes = "0B"
            window_bytes = "512GiB"
            p2p = [[1, 0, 1], [1, 1, 1], [0, 1, 0]]
            [[node.link]]
            a = 2
            b = 0
            kind = "PXB"
            [[node.link]]
            a = 0
            b = 1
            kind = "NV"
            """
        )
    )
    assert node == NodeConfig(FULL)
    assert node.memory == (2 << 20, 4 << 20, 3 << 29)
    assert node.p2p == (b"\0\0\1", b"\1\0\1", b"\0\1\0"), "the diagonal means nothing"
    assert node.links == ((0, 1, LinkKind.NV), (0, 2, LinkKind.PXB))


@pytest.mark.parametrize("name", PROFILES)
def test_profile_gives_its_defaults(name: str) -> None:
    node, profile = NodeConfig({"profile": name}), PROFILES[name]
    assert node.devices == profile.devices
    assert node.switch == profile.switch
    assert node.memory == (profile.memory,) * profile.devices
    assert node.host_access == profile.host_access


def test_profiles_hold_limits_of_fact_sheets() -> None:
    assert [name for name, p in PROFILES.items() if p.p2p_policy_required] == ["ascend-310p"]
    assert [name for name, p in PROFILES.items() if p.host_access == "map"] == ["mi300x"]
    assert {p.granularity for p in PROFILES.values()} == {2 << 20}
    a2, p310 = PROFILES["ascend-a2"], PROFILES["ascend-310p"]
    assert (a2.max_peers, a2.max_streams, a2.max_notifies) == (8, 1984, 8192)
    assert (p310.max_peers, p310.max_streams, p310.max_notifies) == (8, 1024, 1024)


@pytest.mark.parametrize(("devices", "switch"), [(8, 4), (2, 1), (5, 3), (1, 1)])
def test_two_islands_with_any_device_count_stay_two(devices: int, switch: int) -> None:
    assert NodeConfig({"profile": "two-islands", "devices": devices}).switch == switch


def test_from_environment_reads_file_name_or_inline_text(toml: Callable[[str], Path], tmp_path: Path) -> None:
    path = toml("[node]\ndevices = 5\n")
    bare = path.rename(tmp_path / "bare")
    assert NodeConfig.from_environment({"PEERLANE_NODE": str(bare)}).devices == 5
    assert NodeConfig.from_environment({"PEERLANE_NODE": "devices=6"}).devices == 6
    refused(
        lambda: NodeConfig.from_environment({"PEERLANE_NODE": str(path)}), "node.toml: No such file", "TOML"
    )


def test_from_environment_reads_variable_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=7")
    assert NodeConfig.from_environment().devices == 7


@pytest.mark.parametrize("node", [NodeConfig(), NodeConfig(FULL), NodeConfig({"link": []})])
def test_node_config_spec_dict_and_pickle_round_trip(node: NodeConfig) -> None:
    assert NodeConfig.parse(node.spec) == node
    assert NodeConfig(node.as_dict()) == node
    assert node.replace() == node
    again = pickle.loads(pickle.dumps(node))
    assert again == node
    assert hash(again) == hash(node)
    assert again.topology == node.topology


def test_replace_recomputes_settings_without_explicit_value() -> None:
    assert NodeConfig().replace(devices=8).switch == 8
    assert NodeConfig({"memory": "4GiB"}).replace(devices=4).memory == (4 * GiB,) * 4
    islands = NodeConfig().replace(profile="two-islands")
    assert (islands.devices, islands.switch) == (8, 4)
    assert NodeConfig({"devices": 4}).replace(profile="hgx", switch=None).devices == 4


def test_replace_with_invalid_setting_raises() -> None:
    text = refused(lambda: NodeConfig({"switch": 2}).replace(source="command line", devices=1), "node.switch")
    assert text.startswith("command line: ")
    refused(lambda: NodeConfig(FULL).replace(devices=4), "node.memory is an array of 3", "node.devices is 4")
    refused(lambda: NodeConfig().replace(device=4), "node.device is not", "did you mean 'devices'")


def test_replace_on_parsed_spec_recomputes_settings_without_explicit_value() -> None:
    child = NodeConfig.parse(NodeConfig({"devices": 8, "memory": "4GiB"}).spec)
    assert child.replace(devices=2).switch == 2


def test_digest_changes_with_shape_only() -> None:
    plain = NodeConfig()
    assert plain.digest == "aa9ff6903d980aa39724bf40fc7d1abd", (
        "processes of different versions must still meet"
    )
    assert plain.name == f"node-{plain.digest[:12]}"
    for same in ({"name": "ci"}, {"poison": True}, {"cache_bytes": 0}, {"window_bytes": "1GiB"}):
        assert NodeConfig(same).digest == plain.digest
    shapes = [
        {"devices": 3},
        {"switch": 1},
        {"memory": "1GiB"},
        {"memory": ["1GiB", "16GiB"]},
        {"host_access": "map"},
        {"profile": "hgx", "devices": 2, "memory": "16GiB"},
        {"p2p": [[0, 0], [0, 0]]},
        {"link": [{"a": 0, "b": 1, "kind": "SYS"}]},
    ]
    assert len({plain.digest, *(NodeConfig(shape).digest for shape in shapes)}) == len(shapes) + 1


def test_describe_and_as_dict_show_every_setting() -> None:
    assert NodeConfig({"name": "ci", "devices": 8, "switch": 4}).describe() == (
        "ci: 8 devices on 2 switches, 16 GiB each, profile default, host access guard"
    )
    line = NodeConfig(FULL).describe()
    assert "2 MiB to 1536 MiB" in line
    assert line.endswith("own p2p matrix")
    assert tuple(NodeConfig().as_dict()) == KEYS


CONTENT = [
    ({"devices": 0}, ("node.devices is 0", "from 1 to 4096")),
    ({"devices": 4097}, ("node.devices is 4097", "4096")),
    ({"devices": True}, ("node.devices is True", "whole number")),
    ({"devices": 2.0}, ("node.devices is 2.0", "whole number")),
    ({"devices": float("nan")}, ("node.devices is nan",)),
    ({"devices": -1}, ("node.devices is -1",)),
    ({"devices": 1 << 70_000}, ("node.devices is an integer of 70001 bits",)),
    ({"switch": 3}, ("node.switch is 3", "from 1 to 2")),
    ({"switch": 0}, ("node.switch is 0",)),
    ({"memory": "3MiB"}, ("node.memory is '3MiB'", "a multiple of 2 MiB", "2 MiB or 4 MiB")),
    ({"memory": 1}, ("node.memory is 1", "nearest: 2 MiB")),
    ({"memory": "2PiB"}, ("to 1 PiB", "nearest: 1 PiB")),
    ({"memory": -5}, ("node.memory is -5", "nearest: 2 MiB")),
    ({"memory": "16GB"}, ("node.memory is '16GB'", "did you mean '16GiB'")),
    ({"memory": "lots"}, ("node.memory is 'lots'", "GiB")),
    ({"memory": True}, ("node.memory is True",)),
    ({"memory": ["2MiB"]}, ("node.memory is an array of 1", "node.devices is 2")),
    ({"memory": ["2MiB", "1MiB"]}, ("node.memory[1] is '1MiB'", "2 MiB")),
    ({"memory": {}}, ("node.memory is a table",)),
    ({"name": ""}, ("node.name is ''", "1 to 64")),
    ({"name": "a/b"}, ("node.name is 'a/b'",)),
    ({"name": ".."}, ("node.name is '..'", "not dots alone")),
    ({"name": "a\n"}, ("node.name is 'a\\n'",)),
    ({"name": "é"}, ("node.name is 'é'",)),
    ({"name": "x" * 65}, ("node.name is 'xxx", "...'", "1 to 64")),
    ({"name": 1}, ("node.name is 1",)),
    ({"profile": "ascend-a3"}, ("node.profile is 'ascend-a3'", "mi300x", "did you mean 'ascend-a2'")),
    ({"profile": 7}, ("node.profile is 7", "ascend-a2")),
    ({"profile": ["hgx"]}, ("node.profile is an array of 1",)),
    ({"host_access": "mapp"}, ("node.host_access is 'mapp'", "guard, map", "'map'")),
    ({"poison": 1}, ("node.poison is 1", "true or false")),
    ({"cache_bytes": -1}, ("node.cache_bytes is -1", "nearest: 0 B")),
    ({"window_bytes": "65TiB"}, ("node.window_bytes is '65TiB'", "nearest: 64 TiB")),
    ({"window_bytes": "1MiB"}, ("node.window_bytes is '1MiB'", "4 MiB", "nearest: 1 GiB")),
    ({"p2p": 1}, ("node.p2p is 1", "one row per device", "node.devices is 2")),
    ({"p2p": [[0, 1]]}, ("node.p2p is an array of 1",)),
    ({"p2p": [[0, 1], [1]]}, ("node.p2p[1] is an array of 1",)),
    ({"p2p": [[0, 2], [1, 0]]}, ("node.p2p[0][1] is 2", "0 or 1")),
    ({"p2p": [[0, True], [1, 0]]}, ("node.p2p[0][1] is True",)),
    ({"p2p": [[0, []], [1, 0]]}, ("node.p2p[0][1] is an array",)),
    ({"link": "PIX"}, ("node.link is 'PIX'", "[[node.link]]")),
    ({"link": [3]}, ("node.link[0] is 3", "a, b and kind")),
    ({"link": [{"a": 0, "b": 2, "kind": "PIX"}]}, ("node.link[0].b is 2", "from 0 to 1")),
    ({"link": [{"a": 0, "b": 0, "kind": "PIX"}]}, ("node.link[0].b is 0", "another device")),
    ({"link": [{"a": 0, "b": 1, "kind": "X"}]}, ("node.link[0].kind is 'X'", "PIX")),
    ({"link": [{"a": 0, "b": 1, "kind": "PIXX"}]}, ("did you mean 'PIX'",)),
    ({"link": [{"a": 0, "b": 1}]}, ("node.link[0].kind is 'missing'",)),
    ({"link": [{"a": 0, "b": 1, "kinds": "PIX"}]}, ("node.link[0].kinds is not", "did you mean 'kind'")),
    (
        {"link": [{"a": 0, "b": 1, "kind": "PIX"}, {"a": 1, "b": 0, "kind": "PIX"}]},
        ("node.link[1] joins 0 and 1 a second time",),
    ),
    ({"memmory": 1}, ("node.memmory is not a setting", "did you mean 'memory'", "devices")),
    ({"\ud800": 1}, ("is not a setting",)),
]


@pytest.mark.parametrize(("bad", "parts"), CONTENT)
def test_node_config_invalid_content_names_key_value_and_valid_values(
    bad: dict[str, object], parts: tuple[str, ...]
) -> None:
    refused(lambda: NodeConfig(bad, source="here"), "here: ", *parts)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("devices", ("item 1, 'devices', is not key=value", "a TOML file")),
        ("devices=2,", ("item 2, '', is not key=value",)),
        ("devices=2,switch=", ("item 2, 'switch='",)),
        ("devices=2,devices=2", ("item 2: 'devices' is given a second time",)),
        ("devices=two", ("node.devices is 'two'", "whole number")),
        ("devices=" + "9" * 5000, ("node.devices is '999", "...'")),
        ("poison=yes", ("node.poison is 'yes'", "true or false")),
        ("p2p=0x/00", ("node.p2p[0][1] is 'x'", "0 or 1")),
        ("link=0:1:PIX", ("node.link[0] is '0:1:PIX'", "0-1:PIX")),
        ("memory=2MiB/x", ("node.memory[1] is 'x'",)),
        ("devics=2", ("node.devics", "did you mean 'devices'")),
    ],
)
def test_parse_invalid_text_names_item_and_valid_form(text: str, parts: tuple[str, ...]) -> None:
    refused(lambda: NodeConfig.parse(text, source="PEERLANE_NODE"), "PEERLANE_NODE: ", *parts)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("[node]\ndevices = 2\nname =\n", ("line 3: ", "not TOML")),
        ("[node]\n\nname = '''", ("line 3: ", "not TOML")),
        ("", ("no [node] table",)),
        ("node = 3", ("node is 3", "[node]")),
        ("[[node]]", ("node is an array", "[node]")),
        ("[nodes]", ("nodes is not a setting", "did you mean 'node'")),
        ("[node]\ndevices = true", ("node.devices is True",)),
        ("[node]\ndevices = nan", ("node.devices is nan",)),
        ("[node]\ndevices = 1979-05-27", ("node.devices is datetime.date(1979, 5, 27)",)),
        ("[node]\ndevices = " + "9" * 5000, ()),
        ("[node]\ndevices = 0x" + "f" * 5000, ("integer of 20000 bits",)),
        ("[node]\nself = 1\nsource = 2", ("node.self is not",)),
        ("x = " + "[" * 100_000, ()),
        (b"\xff\xfe\x00", ("byte 0 is not UTF-8",)),
        (b"\x7fELF\x02\x01\x01\x00", ("not TOML",)),
    ],
)
def test_load_invalid_content_names_file_and_cause(
    toml: Callable[[str | bytes], Path], content: str | bytes, parts: tuple[str, ...]
) -> None:
    path = toml(content)
    refused(lambda: NodeConfig.load(path), "node.toml", *parts)


def test_load_unusable_path_raises_with_reason(tmp_path: Path) -> None:
    refused(lambda: NodeConfig.load(tmp_path / "none.toml"), "No such file")
    refused(lambda: NodeConfig.load(tmp_path), "not a regular file")
    refused(lambda: NodeConfig.load("/dev/zero"), "not a regular file")
    refused(lambda: NodeConfig.load("nul\0.toml"), "no file can have this name")
    refused(lambda: NodeConfig.load("lone\ud800.toml"), "'lone\\ud800.toml'", "no file can have this name")
    refused(lambda: NodeConfig.resolve("x" * 5000), "is not key=value")
    os.mkfifo(tmp_path / "pipe")
    refused(lambda: NodeConfig.load(tmp_path / "pipe"), "not a regular file")
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(1 << 40)
    refused(lambda: NodeConfig.load(tmp_path / "huge.toml"), "too large")


def test_load_without_read_permission_raises_with_reason(
    toml: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    path = toml("[node]")
    monkeypatch.setattr(Path, "read_bytes", denied)  # a file's mode does not stop root
    refused(lambda: NodeConfig.load(path), "Permission denied", "you may read")


@given(st.integers(0, 1 << 60))
def test_format_size_round_trips_through_parse_size(nbytes: int) -> None:
    assert parse_size(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "1..5GiB", "-1", "1e3", "0.3B", "٣GiB", "1 GB", "1GiB\n", "9" * 21]
)
def test_parse_size_of_invalid_text_is_none(text: str) -> None:
    assert parse_size(text) is None


def test_reference_page_tables_match_profiles_and_link_kinds() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/node.md").read_text()
    rows = [
        [cell.strip(" `*") for cell in line.split("|")[1:-1]] for line in page.splitlines() if "|" in line
    ]
    table = {row[0]: row[1:] for row in rows}
    assert [row[0] for row in rows if row[0] in KEYS] == list(KEYS)
    assert {kind.value: [kind.legend] for kind in LinkKind}.items() <= table.items()
    profiles = PROFILES.values()
    assert [name.strip("`") for name in next(row for row in rows if "hgx" in row)[1:]] == list(PROFILES)
    for name, values in {
        "number of devices": [str(p.devices) for p in profiles],
        "devices per switch": ["all" if p.islands == 1 else "half" for p in profiles],
        "memory of a device": [format_size(p.memory) for p in profiles],
        "host access": [p.host_access for p in profiles],
        "link on a switch": [p.link.value for p in profiles],
        "P2P policy required": ["yes" if p.p2p_policy_required else "no" for p in profiles],
        "peers at a time": [str(p.max_peers) for p in profiles],
        "streams of a device": [str(p.max_streams) for p in profiles],
        "notifies of a device": [str(p.max_notifies) for p in profiles],
        "device name": [p.device_name for p in profiles],
    }.items():
        assert [row for row in rows if row[0] == name][-1][1:] == values, name
