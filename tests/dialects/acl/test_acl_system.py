"""``acl.init`` to ``acl.get_recent_err_msg``: references, configuration files, messages per thread."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from peerlane.dialects.acl import _system


def in_thread(call: Any, *args: object) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result(timeout=20)


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(content: object) -> str:
        path = tmp_path / "acl.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return write


def test_acl_init_twice_returns_100002_and_counts_references(acl: ModuleType) -> None:
    assert [acl.init(), acl.init(""), acl.init()] == [0, 100002, 100002]
    assert acl.finalize_reference() == (2, 0)
    assert acl.finalize_reference() == (1, 0)
    assert acl.finalize_reference() == (0, 0)
    assert acl.finalize_reference() == (0, 100037)
    assert acl.finalize() == 100037
    assert acl.init() == 0


def test_acl_finalize_after_two_inits_ends_all_references(acl: ModuleType) -> None:
    assert [acl.init(), acl.init()] == [0, 100002]
    assert [acl.finalize(), acl.finalize()] == [0, 100037]
    assert [acl.init(), acl.finalize()] == [0, 0]


def test_acl_finalize_without_init_returns_0_the_first_time(acl: ModuleType) -> None:
    assert [acl.finalize(), acl.finalize()] == [0, 100037]


def test_acl_finalize_keeps_devices_and_memory(acl: ModuleType) -> None:
    acl.init()
    pointer, _ = acl.rt.malloc(8, 2)
    assert acl.finalize() == 0
    assert acl.rt.get_device() == (0, 0)
    assert acl.rt.memset(pointer, 8, 1, 8) == 0
    assert acl.rt.free(pointer) == 0


def test_acl_malloc_without_init_returns_0(acl: ModuleType) -> None:
    assert acl.rt.malloc(8, 2)[1] == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", 100006),
        ("{", 100006),
        ("[]", 100006),
        ("1", 100006),
        ("[" * 100_000, 100006),
        ("\xff\xfe", 100006),
        ({"defaultDevice": {"default_device": "2"}}, 100008),
        ({"defaultDevice": {"default_device": "-1"}}, 100008),
        ({"defaultDevice": {"default_device": "one"}}, 100008),
        ({"defaultDevice": {"default_device": "9" * 5000}}, 100008),
        ({"defaultDevice": []}, 100008),
        ({}, 0),
        ({"dump": {"dump_path": "x"}}, 0),
    ],
)
def test_acl_init_checks_content_of_configuration_file(
    content: object, code: int, acl: ModuleType, config: Any
) -> None:
    path = config(content)
    assert acl.init(path) == code
    text = acl.get_recent_err_msg()
    assert (text is None) if code == 0 else (repr(path) in text)
    assert acl.finalize_reference() == ((0, 0) if code == 0 else (0, 100037))


def test_acl_init_unreadable_file_returns_100003_and_large_file_100005(
    acl: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert acl.init(str(tmp_path)) == 100003
    assert acl.init(str(tmp_path / "absent.json")) == 100003
    assert acl.init("x" * 5000) == 100003
    large = tmp_path / "large.json"
    large.write_bytes(b" " * 100)
    monkeypatch.setattr(_system, "_LARGEST_FILE", 99)
    assert acl.init(str(large)) == 100005


def test_acl_init_again_with_other_configuration_returns_100000(acl: ModuleType, config: Any) -> None:
    path = config({"a": 1})
    assert [acl.init(path), acl.init(path)] == [0, 100002]
    Path(path).write_text('{"a": 2}')
    assert acl.init(path) == 100000
    assert acl.finalize_reference() == (1, 0)


def test_acl_init_again_without_file_returns_100002(acl: ModuleType, config: Any) -> None:
    assert [acl.init(config({"a": 1})), acl.init(), acl.init("")] == [0, 100002, 100002]
    assert acl.finalize_reference() == (2, 0)


def test_acl_init_default_device_serves_threads_that_set_none(enter: Any, config: Any) -> None:
    acl = enter("devices=2")
    assert acl.init(config({"defaultDevice": {"default_device": "1"}})) == 0
    assert in_thread(acl.rt.get_device) == (1, 0)
    pointer, ret = acl.rt.malloc(8, 2)
    assert ret == 0
    data = b"12345678"
    assert in_thread(acl.rt.memcpy, pointer, 8, acl.util.bytes_to_ptr(data), 8, 1) == 0
    assert acl.rt.reset_device(1) == 0
    assert acl.finalize() == 0
    assert acl.rt.get_device() == (0, 107002)


def test_acl_get_recent_err_msg_is_per_thread(acl: ModuleType) -> None:
    acl.rt.free(0)
    assert in_thread(acl.get_recent_err_msg) is None
    in_thread(acl.rt.set_device, 9)
    text = acl.get_recent_err_msg()
    assert "acl.rt.free" in text and "set_device" not in text


def test_acl_get_recent_err_msg_with_err_msg_mode_1_is_per_process(acl: ModuleType, config: Any) -> None:
    assert acl.init(config({"err_msg_mode": "1"})) == 0
    in_thread(acl.rt.set_device, 9)
    assert "acl.rt.set_device" in acl.get_recent_err_msg()
    assert in_thread(acl.get_recent_err_msg) is None


def test_acl_get_soc_name_is_that_of_profile(enter: Any) -> None:
    assert enter("profile=ascend-a2").get_soc_name() == "Ascend910B1"
    assert enter("profile=ascend-310p").get_soc_name() == "Ascend310P3"


def test_acl_calls_with_broken_node_configuration_return_507033(
    enter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import peerlane

    acl = enter("devices=2")
    peerlane.leave_node()
    monkeypatch.setenv("PEERLANE_NODE", "devices=none")
    assert acl.rt.set_device(0) == 507033
    assert "PEERLANE_NODE" in acl.get_recent_err_msg()
    assert acl.rt.get_device_count() == (0, 507033)
    assert acl.get_soc_name() is None
