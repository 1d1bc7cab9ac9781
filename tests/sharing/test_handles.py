"""Handles as texts and ints: they round-trip, and anything else raises an error that says why."""

from __future__ import annotations

import base64
import contextlib
import string
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peerlane import _core
from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.handles import (
    HandleFields,
    Home,
    decode,
    encode_int,
    home_of,
    node_tag,
)
from peerlane.errors import BadHandle, Fault

pytestmark = pytest.mark.any_schedule

ALPHABET = f"{string.ascii_letters}{string.digits}-_"
NONCES = st.integers(1, 2**64 - 1).filter(lambda nonce: nonce & 0xFFFFFFF)
WHOLE = st.builds(
    lambda node, **rest: HandleFields(tag=node_tag(node), node=node, **rest),
    node=st.integers(0, 2**64 - 1),
    slot=st.integers(0, 1023),
    entry=st.integers(0, 2**17 - 1),
    nonce=NONCES,
    kind=st.integers(0, 255),
    size=st.integers(0, 2**64 - 1),
    pid=st.integers(0, 2**32 - 1),
    start=st.integers(0, 2**32 - 1),
)
SAMPLE = HandleFields(
    tag=0xA1,
    slot=1023,
    entry=99_999,
    nonce=2**64 - 3,
    node=0xA1 << 56 | 7,
    kind=2,
    size=4096,
    pid=4711,
    start=5,
)


def refusal(handle: int | bytes | str, home: Home | None = None) -> BadHandle:
    with pytest.raises(BadHandle) as caught:
        decode(handle, home)
    return caught.value


def encode_text(fields: HandleFields) -> bytes:
    numbers = (
        fields.kind,
        fields.node,
        fields.slot,
        fields.index,
        fields.nonce,
        fields.size,
        fields.pid,
        fields.start,
    )
    return _core.handle_text(*(number or 0 for number in numbers))


def sealed(head: bytes) -> bytes:
    """Return 44 bytes as a handle's text with the right checksum."""
    return base64.urlsafe_b64encode(head + zlib.crc32(head).to_bytes(4, "little"))


@given(WHOLE)
@example(SAMPLE)
def test_handle_text_and_int_round_trip(fields: HandleFields) -> None:
    text = encode_text(fields)
    assert len(text) == 64 and set(text.decode()) <= set(ALPHABET)
    assert decode(text) == decode(text.decode()) == decode(bytearray(text)) == fields
    number = encode_int(fields)
    assert 0 < number < 2**63
    brief = decode(number)
    assert brief == HandleFields(
        fields.tag, fields.slot, fields.entry, fields.nonce & 0xFFFFFFF, nonce_bits=28
    )
    assert encode_int(brief) == number


@given(
    st.one_of(
        st.binary(),
        st.binary(min_size=64, max_size=64),
        st.text(),
        st.text(ALPHABET, min_size=64, max_size=64),
    )
)
def test_decode_of_any_text_reads_or_raises_bad_handle(handle: bytes | str) -> None:
    try:
        fields = decode(handle)
    except BadHandle as error:
        assert error.fault in (Fault.BAD_HANDLE, Fault.HANDLE_VERSION) and 0 < len(str(error)) < 300
    else:
        assert encode_text(fields) == (handle.encode() if isinstance(handle, str) else handle)


@given(st.binary(min_size=41, max_size=41))
def test_decode_of_any_sealed_fields_reads_or_raises_bad_handle(rest: bytes) -> None:
    text = sealed(b"PL\x01" + rest)
    with contextlib.suppress(BadHandle):
        assert encode_text(decode(text)) == text


@given(st.one_of(st.integers(), st.integers(0, 2**63)))
@example(0)
@example(-1)
@example(2**63)
@example(1 << 100_000)
@example(1 << 28)
def test_decode_of_any_int_reads_or_raises_bad_handle(handle: int) -> None:
    try:
        assert encode_int(decode(handle)) == handle
    except BadHandle as error:
        assert error.fault in (Fault.BAD_HANDLE, Fault.HANDLE_VERSION) and len(str(error)) < 300


@given(WHOLE, st.integers(0, 63), st.sampled_from(ALPHABET))
def test_decode_of_any_handle_with_one_changed_character_raises(
    fields: HandleFields, at: int, other: str
) -> None:
    text = encode_text(fields).decode()
    if text[at] != other:
        refusal(text[:at] + other + text[at + 1 :])


def test_decode_of_sample_handle_with_each_character_changed_raises() -> None:
    text = encode_text(SAMPLE).decode()
    for at in range(64):
        for other in set(ALPHABET + " =+/\n\0é") - {text[at]}:
            refusal(text[:at] + other + text[at + 1 :])


def test_decode_error_names_what_is_wrong() -> None:
    text = encode_text(SAMPLE)
    raw = base64.urlsafe_b64decode(text)
    assert "63 characters" in str(refusal(text[:-1])) and "0 characters" in str(refusal(b""))
    assert "character 3 is b'='" in str(refusal(text[:2] + b"=" + text[3:]))
    assert "character 2 is 'é'" in str(refusal("aé"))
    assert "begins with 'AAAA'" in str(refusal(b"AAAA" + text[4:]))
    assert "version 2, written by a newer" in str(refusal(sealed(raw[:2] + b"\x02" + raw[3:44])))
    assert "version 0, written by an older" in str(refusal(sealed(raw[:2] + b"\x00" + raw[3:44])))
    assert "changed on its way" in str(refusal(text[:-1] + (b"A" if text[-1:] != b"A" else b"B")))
    assert "fields are impossible" in str(refusal(sealed(raw[:20] + bytes(8) + raw[28:44])))
    assert "fields are impossible" in str(refusal(sealed(raw[:19] + b"\x01" + raw[20:44])))
    assert "lowest 28 bits are 0" in str(refusal(1 << 28))
    assert "0x8000000000000000 is not a handle" in str(refusal(2**63))


def test_decode_of_handle_of_other_node_raises_node_mismatch() -> None:
    settings = {"name": "here"}, {"name": "there"}, {"name": "here", "devices": 4}
    near, there, bigger = (home_of(NodeConfig(each)) for each in settings)
    node = near.number
    assert len({node, there.number, bigger.number}) == 3 and 0 <= node < 2**64
    fields = HandleFields(node_tag(node), 1, 2, 3, node=node, kind=1, size=4, pid=5, start=6)
    for handle in (encode_text(fields), encode_int(fields)):
        assert decode(handle, near).entry == 2
        for other in (there, bigger):
            error = refusal(handle, other)
            assert error.fault is Fault.NODE_MISMATCH and repr(other.name) in str(error)
    assert f"{node:#018x}" in str(refusal(encode_text(fields), there))
    assert f"{there.number:#018x}" in str(refusal(encode_text(fields), there))


def test_small_number_is_not_a_handle_of_any_node() -> None:
    for node in (7, 7 | 1 << 56, 7 | 255 << 56):
        for number in (1, 12345, (1 << 28) - 1):
            assert refusal(number, Home("mine", node)).fault is Fault.NODE_MISMATCH


@pytest.mark.parametrize("other", [None, 1.0, True, [1], object()])
def test_decode_of_other_type_raises_type_error(other: object) -> None:
    with pytest.raises(TypeError, match="a handle is an int, 64 bytes or a str"):
        decode(other)  # type: ignore[arg-type]
