"""The reader of safetensors files: what it reads, and how it refuses a wrong or hostile file."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.safetensors_files import entry, model, packed, small_model
from peerlane.cli.weights import DTYPE_BITS, MAX_HEADER, Weights
from peerlane.errors import Fault, InvalidValue

pytestmark = pytest.mark.any_schedule


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "case.safetensors"


def refusal(path: Path, content: bytes) -> str:
    """Return the text with which a file of this content is refused."""
    path.write_bytes(content)
    with pytest.raises(InvalidValue) as caught:
        Weights(path)
    assert caught.value.fault is Fault.INVALID_VALUE
    assert caught.value.call == "weights"
    assert str(caught.value).startswith("weights file ")
    assert path.name in str(caught.value)
    return str(caught.value)


def refusal_of_header(path: Path, header: object, data: bytes = b"abcd") -> str:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return refusal(path, packed(text, data))


def test_weights_of_small_model_have_tensors_metadata_and_bytes(tmp_path: Path) -> None:
    with Weights(small_model(tmp_path)) as weights:
        assert [(t.name, t.dtype, t.shape, t.nbytes) for t in weights.tensors] == [
            ("layer.weight", "BF16", (512, 300), 307_200),
            ("layer.bias", "F8_E4M3", (77,), 77),
            ("none", "F32", (0, 9), 0),
        ]
        assert weights.metadata == {"format": "pt"}
        assert weights.nbytes == 307_277
        part = bytearray(10)
        weights.read_into(memoryview(part), weights.tensors[0], 250)
        assert bytes(part) == bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3])
        bias = bytearray(77)
        weights.read_into(memoryview(bias), weights.tensors[1])
        assert bytes(bias) == b"\x17" * 77


def test_weights_tensors_come_in_order_of_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "swapped.safetensors"
    path.write_bytes(
        packed(json.dumps({"b": entry(begin=4, end=8), "a": entry()}).encode() + b"   \n", b"aaaabbbb")
    )
    with Weights(path) as weights:
        assert [tensor.name for tensor in weights.tensors] == ["a", "b"]


@pytest.mark.parametrize(("dtype", "bits"), DTYPE_BITS.items())
def test_weights_each_known_dtype_has_its_size(tmp_path: Path, dtype: str, bits: int) -> None:
    path = tmp_path / "typed.safetensors"
    path.write_bytes(model({"t": (dtype, [4, 2], bytes(bits))}))
    with Weights(path) as weights:
        assert weights.tensors[0].nbytes == bits
    assert "takes" in refusal(path, model({"t": (dtype, [4, 2], bytes(bits + 1))}))


def test_weights_scalar_and_empty_model_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(model({"scalar": ("F64", [], bytes(8))}))
    with Weights(path) as weights:
        assert weights.tensors[0].shape == ()
    path.write_bytes(packed(b"{}"))
    with Weights(path) as weights:
        assert weights.tensors == ()
        assert weights.nbytes == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has 0 bytes"),
        (b"\x01\x00", "has 2 bytes"),
        (packed(b"{}", claimed=3), "claims a header of 3 bytes, and 2 bytes follow"),
        (
            packed(b"{}", claimed=MAX_HEADER + 1),
            "claims a header of 100,000,001 bytes; valid are 2 to 100,000,000",
        ),
        (packed(b"{}", claimed=2**64 - 1), "claims a header of 18,446,744,073,709,551,615 bytes"),
        (packed(b""), "must be an object|starts with ''"),
        (packed(b'{"a\xff":1}'), "not UTF-8 at byte 3"),
        (packed(b"[]"), "starts with '\\['; valid is an object"),
        (packed(b" {}"), "starts with ' '"),
        (packed(b"{"), "a key must be a string, not the end"),
        (packed(b'{"a"'), "a ':' must follow 'a', not the end"),
        (packed(b"{} x"), "something follows"),
        (packed(b"{}\x00"), "something follows"),
        (packed(b'{"\\ud800":{}}'), "surrogate"),
        (packed(b'{"a\n":{}}'), "bad string"),
        (packed(b'{"a":{},}'), "is missing"),
        (packed(b"{" * 50_000), "a key must be a string"),
        (packed(b'{"a":' + b"[" * 50_000), "must be an object, not '\\['"),
    ],
    ids=itertools.count(),
)
def test_weights_bad_header_is_refused_with_reason(tmp_path: Path, content: bytes, words: str) -> None:
    assert re.search(words, refusal(tmp_path / "bad.safetensors", content))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b'{"a":1}', "tensor 'a' must be an object, not '1'"),
        (b'{"a":{"dtype":"U8","shape":[4]}}', "tensor 'a': data_offsets is missing"),
        (b'{"a":{}}', "tensor 'a': dtype, shape, data_offsets is missing"),
        (b'{"a":{"dtype":8}}', "tensor 'a': dtype must be a string, not '8'"),
        (b'{"a":{"shape":4}}', "tensor 'a': shape must be a list of integers, not '4'"),
        (b'{"a":{"shape":[true]}}', "shape must hold integers of 0 to .*, not 'true'"),
        (b'{"a":{"shape":[-1]}}', "not '-1'"),
        (b'{"a":{"shape":[1.0]}}', "not '1.0'"),
        (b'{"a":{"shape":[1e3]}}', "not '1e3'"),
        (b'{"a":{"shape":[NaN]}}', "not 'NaN'"),
        (b'{"a":{"shape":[04]}}', "not '04'"),
        (b'{"a":{"shape":[9223372036854775808]}}', "not '9223372036854775808'"),
        (b'{"a":{"shape":[' + b"9" * 10_000 + b"]}}", "not '9999"),
        (b'{"a":{"shape":[[4]]}}', "shape must be a list of integers, not '\\['"),
        (b'{"a":{"shape":[4,]}}', "not ''"),
        (b'{"a":{"shape":[4 4]}}', "not '4 4'"),
        (b'{"a":{"shape":[4', "must be a list of integers"),
        (b'{"a":{"shape":[' + b"0," * 64 + b"0]}}", "has more than 64 numbers"),
        (b'{"a":{"data_offsets":[0]}}', "dtype, shape is missing"),
        (entry(end=None), "not 'null'"),
        ({"a": {**entry(), "data_offsets": [0]}}, "tensor 'a': data_offsets has 1 numbers; valid are two"),
        ({"a": {**entry(), "data_offsets": [0, 4, 8]}}, "data_offsets has 3 numbers"),
        ({"a": {**entry(), "extra": 1}}, "tensor 'a': unknown field 'extra'; valid are dtype, shape"),
        ({"a": entry(), "__metadata__": {"n": 1}}, "__metadata__: 'n' must be a string"),
        ({"a": entry(), "__metadata__": []}, "__metadata__ must be an object"),
        (b'{"__metadata__":{"n":"1","n":"2"}}', "__metadata__: 'n' appears twice"),
        (b'{"__metadata__":{},"__metadata__":{}}', "__metadata__ appears twice"),
        (b'{"a":{"dtype":"U8","dtype":"U8"}}', "tensor 'a': dtype appears twice"),
        (b'{"a":{"shape":[4],"shape":[4]}}', "tensor 'a': shape appears twice"),
    ],
    ids=itertools.count(),
)
def test_weights_wrong_field_is_refused_by_name(tmp_path: Path, header: object, words: str) -> None:
    if isinstance(header, dict) and "dtype" in header:
        header = {"a": header}
    assert re.search(words, refusal_of_header(tmp_path / "bad.safetensors", header))


def test_weights_duplicate_tensor_is_refused_by_name(tmp_path: Path) -> None:
    one = json.dumps(entry())
    text = refusal_of_header(tmp_path / "bad.safetensors", f'{{"a":{one},"a":{one}}}'.encode())
    assert "tensor 'a' appears twice" in text


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"a": entry(begin=4, end=0)}, "tensor 'a': data_offsets [4, 0] end before they begin"),
        ({"a": entry(end=5)}, "data_offsets [0, 5] reach 1 bytes beyond the data, of which the file has 4"),
        ({"a": entry(begin=2**62, end=2**63 - 1)}, "beyond the data"),
        ({"a": entry("X7")}, "tensor 'a': dtype 'X7' is unknown; known are F4, "),
        ({"a": entry("F32", (2,))}, "F32 of shape [2] takes 8 bytes, its data_offsets [0, 4] span 4"),
        ({"a": entry("F4", (3,), 0, 1), "b": entry("U8", (3,), 1, 4)}, "takes 1.5 bytes"),
        ({"a": entry("U8", (2**62, 2**62))}, "more elements than 2**63 bytes hold"),
        ({"a": entry("U8", (2**63 - 1,) * 3)}, "more elements than 2**63 bytes hold"),
        ({"a": entry("U8", (2**63 - 1, 0))}, "takes 0 bytes"),
        ({"a": entry("U8", (2,), 0, 2)}, "holds 2 bytes of data that belong to no tensor, after tensor 'a'"),
        ({}, "holds 4 bytes of data that belong to no tensor, after the start of the data"),
        (
            {"a": entry("U8", (2,), 2, 4)},
            "tensor 'a': it starts at byte 2 of the data and leaves a hole of 2",
        ),
        (
            {"a": entry("U8", (3,), 0, 3), "b": entry("U8", (2,), 2, 4)},
            "tensor 'b': it starts at byte 2 of the data and overlaps tensor 'a', which ends at byte 3",
        ),
        ({"a": entry(), "b": entry()}, "overlaps tensor 'a'"),
    ],
    ids=itertools.count(),
)
def test_weights_wrong_byte_range_is_refused_with_reason(tmp_path: Path, tensors: object, words: str) -> None:
    assert words in refusal_of_header(tmp_path / "bad.safetensors", tensors)


def test_weights_truncated_file_is_refused_with_reason(tmp_path: Path) -> None:
    path = small_model(tmp_path)
    whole = path.read_bytes()
    assert "reach 1 bytes beyond the data" in refusal(path, whole[:-1])
    assert "it is truncated" in refusal(path, whole[:40])


def test_weights_file_truncated_while_in_use_names_tensor(tmp_path: Path) -> None:
    path = small_model(tmp_path)
    with Weights(path) as weights:
        os.truncate(path, weights.tensors[0].offset + 100)
        with pytest.raises(InvalidValue, match=r"tensor 'layer\.weight': .* truncated while in use"):
            weights.read_into(memoryview(bytearray(200)), weights.tensors[0])


def test_weights_read_outside_tensor_is_refused(tmp_path: Path) -> None:
    with Weights(small_model(tmp_path)) as weights, pytest.raises(InvalidValue, match="valid are 0 to 77"):
        weights.read_into(memoryview(bytearray(10)), weights.tensors[1], 70)


def test_weights_path_that_cannot_be_opened_is_refused_with_reason(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, words in (
        (tmp_path / "none.safetensors", "cannot be read: No such file"),
        (tmp_path, "is a directory"),
        (pipe, "is not a regular file"),
        (tmp_path / "a\0b", "cannot be read: a path cannot contain a NUL character"),
    ):
        with pytest.raises(InvalidValue, match=words):
            Weights(path)


def test_weights_unreadable_file_is_refused_with_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InvalidValue, match="cannot be read: Permission denied"):
        Weights(tmp_path / "secret.safetensors")


def test_weights_closed_twice_or_refused_keep_no_descriptor(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    weights = Weights(small_model(tmp_path))
    weights.close()
    weights.close()
    assert weights.is_closed
    refusal(tmp_path / "bad.safetensors", b"")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_weights_hostile_tensor_name_is_shown_short_and_printable(tmp_path: Path) -> None:
    name = "\x1b[31m" + "x" * 5000
    text = refusal_of_header(tmp_path / "bad.safetensors", {name: entry("X")})
    assert text.isascii() and text.isprintable()
    assert len(text) < 500


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":{"shape":[' + b"0," * 1_000_000,
        b'{"a":{"shape":[' + b"0," * 1_000_000 + b"0]",
        b"{"
        + b",".join(b'"%d":{"dtype":"U8","shape":[],"data_offsets":[0,0]}' % i for i in range(4_000))
        + b"}",
        b'{"__metadata__":{"k":"' + b"[" * 3_000_000 + b'"}',
        b'{"a":' + b"[" * 3_000_000,
        b"{" + b" " * 3_000_000,
    ],
    ids=["list cut", "long list", "many tensors", "brackets in text", "nested", "blanks"],
)
def test_weights_hostile_header_takes_bounded_time_and_memory(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(packed(header, b"abcd"))
    tracemalloc.start()
    try:
        start = time.monotonic()
        with pytest.raises(InvalidValue):
            Weights(path)
        assert time.monotonic() - start < 20
        assert tracemalloc.get_traced_memory()[1] < 30 * len(header)
    finally:
        tracemalloc.stop()


@given(content=st.binary(max_size=200))
@example(content=packed(b"{}"))
def test_weights_random_bytes_are_read_or_refused(scratch: Path, content: bytes) -> None:
    scratch.write_bytes(content)
    try:
        Weights(scratch).close()
    except InvalidValue as error:
        assert str(error).isascii()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(list(DTYPE_BITS)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "a"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
whole_entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(list(DTYPE_BITS)) | json_values,
        "shape": st.lists(st.integers(0, 4), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(0, 16), min_size=2, max_size=2) | json_values,
    }
)


@given(
    header=st.dictionaries(
        st.text(max_size=3) | st.just("__metadata__"), whole_entries | json_values, max_size=3
    ),
    data=st.binary(max_size=16),
)
def test_weights_random_json_header_is_read_or_refused(
    scratch: Path, header: dict[str, object], data: bytes
) -> None:
    scratch.write_bytes(packed(json.dumps(header).encode(), data))
    try:
        with Weights(scratch) as weights:
            assert sum(tensor.nbytes for tensor in weights.tensors) == len(data)
    except InvalidValue as error:
        assert str(error).isascii()


@given(at=st.integers(0), byte=st.integers(0, 255), cut=st.integers(0, 3))
def test_weights_damaged_file_is_read_or_refused(scratch: Path, at: int, byte: int, cut: int) -> None:
    content = bytearray(model({"a": ("BF16", [2, 3], bytes(12)), "b": ("U8", [5], b"abcde")}, {"k": "v"}))
    content[at % len(content)] = byte
    scratch.write_bytes(content[: len(content) - cut])
    try:
        with Weights(scratch) as weights:
            for tensor in weights.tensors:
                weights.read_into(memoryview(bytearray(tensor.nbytes)), tensor)
    except InvalidValue as error:
        assert str(error).isascii()
