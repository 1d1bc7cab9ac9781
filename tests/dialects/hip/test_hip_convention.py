"""Conventions of all HIP calls: shapes, types, keywords, last errors (facts/hip 0, 1.3)."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import peerlane
from helpers.each import for_each
from peerlane.dialects.hip import explain, hiprtc, hiprtc_pyext
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.policy import Policy
from peerlane.dialects.hip.state import calls

pytestmark = pytest.mark.any_schedule

Enter = Callable[..., ModuleType]
FUNCTIONS = sorted(set(facts()["functions"]) - set(facts()["hiprtc"]) - {"has_symbol"})


class OnlyIndex:
    def __index__(self) -> int:
        return 0


class OnlyInt:
    def __int__(self) -> int:
        return 1


@pytest.fixture
def declared(hip: ModuleType) -> set[str]:
    from peerlane.dialects.hip.state import calls

    return set(calls.table)


def test_hip_module_has_every_name_of_the_wheel(hip: ModuleType) -> None:
    for name in dir(hip):
        assert getattr(hip, name) is not None
    assert set(FUNCTIONS) <= set(dir(hip))
    with pytest.raises(AttributeError, match="no attribute 'hipNoSuchThing'"):
        _ = hip.hipNoSuchThing
    assert not {"hipSuccess", "hipMemcpyDefault", "hipStreamPerThread", "hipStreamLegacy"} & set(dir(hip))


def test_hip_calls_wrong_number_of_arguments_raise_type_error(hip: ModuleType) -> None:
    for name in FUNCTIONS:
        call, count = getattr(hip, name), len(facts()["functions"][name]["parameters"])
        with pytest.raises(TypeError, match=rf"{name}\(\) takes"):
            call(*range(count + 17))
        has_word = count or name == "hipThreadExchangeStreamCaptureMode"  # which takes that of C
        wrong = "unexpected keyword argument 'no_such_word'" if has_word else "takes no keyword arguments"
        with pytest.raises(TypeError, match=wrong):
            call(no_such_word=1)
        if count:
            with pytest.raises(TypeError, match=rf"{name}\(\) takes exactly {count} positional argument"):
                call()


def test_hip_calls_signature_shows_parameter_names_of_the_wheel(hip: ModuleType) -> None:
    for name in FUNCTIONS:
        parameters = inspect.signature(getattr(hip, name)).parameters.values()
        assert [each.name for each in parameters] == [
            each[0] for each in facts()["functions"][name]["parameters"]
        ]
        assert {each.kind.name for each in parameters} <= {"POSITIONAL_OR_KEYWORD"}
        assert not [each.name for each in parameters if each.default is not each.empty]
    assert str(inspect.signature(hip.hipMemcpy)) == "(dst, src, sizeBytes, kind)"


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("hipMemcpy", ""),
        ("hipGetDeviceProperties", ", or (prop, deviceId)"),
        (
            "hipMemcpyBatchAsync",
            ", or (dsts, srcs, count, attrs, numAttrs, stream)"
            ", or (dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, stream)",
        ),
    ],
)
def test_hip_calls_wrong_number_error_lists_accepted_shapes(hip: ModuleType, name: str, others: str) -> None:
    with pytest.raises(TypeError) as refused:
        getattr(hip, name)(*range(30))
    assert str(refused.value).partition("(30 given)")[2] == others


def test_hip_calls_not_served_return_not_supported_and_print_once(
    hip: ModuleType, declared: set[str], capfd: pytest.CaptureFixture[str]
) -> None:
    for name in FUNCTIONS:
        if name in declared or calls.has_refusals(name):
            continue
        shape = facts()["functions"][name]
        for _ in range(2):
            result = getattr(hip, name)(*[None] * len(shape["parameters"]))
            assert type(result) is tuple
            assert result[0] is hip.hipError_t.hipErrorNotSupported, name
            assert len(result) == 1 + len(shape["outputs"]), name
        printed = capfd.readouterr().err
        assert printed.count("\n") == 1
        assert name in printed
        assert name in explain()
    assert hip.has_symbol("hipMalloc")
    assert not hip.has_symbol("hipGraphAddKernelNode")


def test_hip_hiprtc_takes_programs_and_refuses_to_compile_them(hip: ModuleType) -> None:
    results = hiprtc.hiprtcResult
    hip.hipFree(1)
    created, program = hiprtc.hiprtcCreateProgram(b"source", b"name", 1, [b"header"], [b"header.h"])
    assert created is results.HIPRTC_SUCCESS
    assert hiprtc.hiprtcAddNameExpression(program, b"kernel") == (results.HIPRTC_SUCCESS,)
    assert hiprtc.hiprtcCompileProgram(program, 0, None) == (results.HIPRTC_ERROR_INTERNAL_ERROR,)
    assert "hiprtcCompileProgram returned HIPRTC_ERROR_INTERNAL_ERROR (11)" in explain()
    assert hiprtc.hiprtcDestroyProgram(program.createRef()) == (results.HIPRTC_SUCCESS,)
    for late in (
        hiprtc.hiprtcDestroyProgram(program.createRef()),
        hiprtc.hiprtcAddNameExpression(program, b"kernel"),
    ):
        assert late == (results.HIPRTC_ERROR_INVALID_PROGRAM,)
    assert hip.hipGetLastError()[0].name == "hipErrorInvalidValue"  # of hipFree


def test_hip_hiprtc_programs_bad_arguments_return_invalid_input(hip: ModuleType) -> None:
    invalid, (_, program) = (
        hiprtc.hiprtcResult.HIPRTC_ERROR_INVALID_INPUT,
        hiprtc.hiprtcCreateProgram(b"", None, 0, None, None),
    )
    for arguments in (
        (None, b"name", 0, None, None),
        (b"", None, -1, None, None),
        (b"", None, 1, None, [b"a"]),
    ):
        assert hiprtc.hiprtcCreateProgram(*arguments) == (invalid, None)
    assert hiprtc.hiprtcAddNameExpression(program, None) == (invalid,)
    assert hiprtc.hiprtcDestroyProgram(None) == (invalid,)


@pytest.mark.parametrize("name", sorted(set(facts()["functions"]) & set(facts()["hiprtc only"])))
def test_hip_hiprtc_calls_return_results_in_shape_of_the_wheel(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "-1")  # it needs no device
    hip_on()
    shape = facts()["functions"][name]
    is_served = hiprtc.has_symbol(name)
    kinds = {"hiprtcResult": hiprtc.hiprtcResult(6), **({"int": 0} if is_served else {})}
    args = [kinds.get(kind) for _, kind in shape["parameters"]]
    result = getattr(hiprtc, name)(*args)
    assert type(result[0]) is hiprtc.hiprtcResult
    assert (result[0] is hiprtc.hiprtcResult.HIPRTC_ERROR_INTERNAL_ERROR) != is_served
    assert len(result) == 1 + len(shape["outputs"])
    with pytest.raises(TypeError):
        getattr(hiprtc, name)(*args, 1)


def test_hip_hiprtc_version_and_error_string_return_documented_values(hip: ModuleType) -> None:
    results = hiprtc.hiprtcResult
    assert hiprtc.hiprtcVersion() == (results.HIPRTC_SUCCESS, 9, 0)
    for each in results:
        code, text = hiprtc.hiprtcGetErrorString(each)
        assert (code, text.decode()) == (results.HIPRTC_SUCCESS, each.name)
    for wrong in (0, None, hip.hipError_t.hipSuccess):
        with pytest.raises(TypeError, match="must be of type '_hiprtcResult__Base'"):
            hiprtc.hiprtcGetErrorString(wrong)
    assert hiprtc.has_symbol("hiprtcVersion")
    assert not hip.has_symbol("hiprtcVersion")
    assert not hiprtc.has_symbol("hipMalloc")


def test_hip_hiprtc_link_create_opts_keywords_become_options() -> None:
    options = hiprtc.hipJitOption
    created = hiprtc_pyext.HiprtcLinkCreateOpts(
        hipJitOptionLto=1, HIPRTC_JIT_TARGET_FROM_HIPCONTEXT=-1, HIPRTC_JIT_IR_TO_ISA_OPT_EXT=[b"-O3"]
    )
    number, keys, values = created
    assert number == len(keys) == len(values) == 3 == len(created)
    assert keys == [
        options.hipJitOptionLto,
        options.hipJitOptionTargetFromContext,
        options.hipJitOptionIRtoISAOptExt,
    ]
    assert values[:2] == [1, (1 << 32) - 1]
    assert tuple(hiprtc_pyext.HiprtcLinkCreateOpts()) == (0, None, None)
    for each in options:
        name = each.name
        value: Any = (
            [b"a"] if "Names" in name or name.endswith("OptExt") else [1] if "Addresses" in name else 1
        )
        if name == "hipJitOptionNumOptions":
            with pytest.raises(NotImplementedError, match=name):
                hiprtc_pyext.HiprtcLinkCreateOpts(**{name: value})
        else:
            assert hiprtc_pyext.HiprtcLinkCreateOpts(**{name: value}).keys == [each]
    for wrong, kind in (("hipJitOptionNone", AttributeError), ("HIPRTC_JIT_NONE", KeyError)):
        with pytest.raises(kind):
            hiprtc_pyext.HiprtcLinkCreateOpts(**{wrong: 1})
    with pytest.warns(DeprecationWarning):
        result = hiprtc_pyext.hiprtcLinkCreate2(HIPRTC_JIT_LTO=1)
    assert type(result[0]) is hiprtc.hiprtcResult
    assert hiprtc.ext is hiprtc_pyext


OLDER = facts()["older"]


@for_each("name", sorted(OLDER["parameters"]))
def test_hip_calls_in_shape_of_7_2_return_outputs_of_7_2(
    hip: ModuleType, declared: set[str], name: str
) -> None:
    names = [each for each, _ in OLDER["parameters"][name]]
    newer = [each for each, _ in facts()["functions"][name]["parameters"]]
    answers = 1 + len(OLDER["outputs"][name])
    is_distinguished = len(names) != len(newer)
    if name in declared:
        kinds = [kind for _, kind in OLDER["parameters"][name]]
        words = [enumeration(kind)(0) if kind in facts()["enums"] else 0 for kind in kinds]
        assert len(getattr(hip, name)(*words)) == answers
        return
    if is_distinguished:
        assert len(getattr(hip, name)(*[None] * len(names))) == answers
    if names:
        assert len(getattr(hip, name)(**dict.fromkeys(names))) == answers
    result = getattr(hip, name)(*[None] * len(newer))
    assert len(result) == 1 + len(facts()["functions"][name]["outputs"])


@pytest.mark.parametrize("value", [0, True, 0.5, OnlyInt()])
def test_hip_set_device_value_convertible_to_int_succeeds(hip: ModuleType, value: Any) -> None:
    assert hip.hipSetDevice(value)[0].name == "hipSuccess"


@pytest.mark.parametrize("value", ["0", b"0", None, OnlyIndex(), []])
def test_hip_set_device_value_not_an_int_raises_type_error(hip: ModuleType, value: Any) -> None:
    with pytest.raises(TypeError, match="an integer is required"):
        hip.hipSetDevice(value)


@pytest.mark.parametrize(
    ("call", "value"),
    [
        *(("hipSetDevice", value) for value in (1 << 31, -(1 << 31) - 1)),
        *(("hipMalloc", value) for value in (-1, 1 << 64)),
        *(("hipInit", value) for value in (-1, 1 << 32)),
    ],
)
def test_hip_calls_int_out_of_range_raises_overflow_error(hip: ModuleType, call: str, value: int) -> None:
    with pytest.raises(OverflowError):
        getattr(hip, call)(value)


@pytest.mark.parametrize("value", ["text", 1.5, [1], {}])
def test_hip_calls_wrong_pointer_type_raises_type_error(hip: ModuleType, value: Any) -> None:
    with pytest.raises(TypeError, match="unsupported input type"):
        hip.hipFree(value)
    with pytest.raises(TypeError, match="unsupported input type"):
        hip.hipStreamSynchronize(value)


def test_hip_calls_int_for_enumeration_raises_type_error(hip: ModuleType) -> None:
    for kind in (4, hip.hipDeviceP2PAttr.hipDevP2PAttrPerformanceRank, None):
        with pytest.raises(TypeError, match="argument 'kind' must be of type '_hipMemcpyKind__Base'"):
            hip.hipMemcpy(1, 2, 3, kind)
    with pytest.raises(TypeError, match="_hipError_t__Base"):
        hip.hipGetErrorName(1)


def test_hip_memcpy_keyword_arguments_are_accepted_once(hip: ModuleType) -> None:
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    assert hip.hipMemcpy(dst=None, src=None, sizeBytes=0, kind=kind) == (hip.hipError_t.hipSuccess,)
    assert hip.hipMemcpy(None, None, kind=kind, sizeBytes=0) == (hip.hipError_t.hipSuccess,)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'dst'"):
        hip.hipMemcpy(1, 2, 3, dst=1)


def test_hip_results_pass_check_function_of_a_client(hip: ModuleType) -> None:
    def hip_check(call_result: tuple[Any, ...]) -> Any:
        error, *result = call_result
        if isinstance(error, hip.hipError_t) and error != hip.hipError_t.hipSuccess:
            raise RuntimeError(str(error))
        return result[0] if len(result) == 1 else result

    assert hip_check(hip.hipGetDeviceCount()) == 2
    assert hip_check(hip.hipFree(None)) == []
    # Before Python 3.11 the text is the name.
    with pytest.raises(RuntimeError, match=r"^(1|hipError_t\.hipErrorInvalidValue)$"):
        hip_check(hip.hipFree(4096))


def test_hip_get_error_name_and_string_know_every_error(hip: ModuleType) -> None:
    for member in hip.hipError_t:
        for call in (hip.hipGetErrorName, hip.hipDrvGetErrorName):
            error, name = call(member)
            assert error is hip.hipError_t.hipSuccess
            assert name.decode() == member.name
            assert name != member.name.encode()
        for call in (hip.hipGetErrorString, hip.hipDrvGetErrorString):
            assert call(member)[1].decode()
    for name, words in (
        ("hipErrorInvalidValue", "invalid argument"),
        ("hipErrorInvalidPitchValue", "invalid pitch argument"),
        ("hipErrorStreamCaptureMerge", "operation would result in a merge of separate capture sequences"),
        ("hipErrorUnknown", "unknown error"),
        ("hipErrorTbd", "unknown error"),
    ):
        assert hip.hipGetErrorString(hip.hipError_t[name])[1].decode() == words


def test_hip_api_name_knows_the_vendors_numbers(hip: ModuleType) -> None:
    api_names = [hip.hipApiName(number)[1].decode() for number in (0, 3, 125, 2**32 - 1)]
    assert api_names == ["unknown", "hipArray3DCreate", "hipMemcpy", "unknown"]


def test_hip_get_last_error_is_per_thread(hip: ModuleType) -> None:
    assert hip.hipSetDevice(7)[0].name == "hipErrorInvalidDevice"
    seen: list[Any] = []
    other = threading.Thread(target=lambda: seen.append(hip.hipGetLastError()[0].name))
    other.start()
    other.join(20)
    assert seen == ["hipSuccess"]
    assert hip.hipPeekAtLastError()[0].name == "hipErrorInvalidDevice"
    assert hip.hipGetLastError()[0].name == "hipErrorInvalidDevice"
    assert hip.hipGetLastError()[0].name == "hipSuccess"


def test_hip_get_last_error_successful_calls_keep_earlier_failure(hip: ModuleType) -> None:
    hip.hipSetDevice(7)
    hip.hipGetDeviceCount()
    assert hip.hipExtGetLastError()[0].name == "hipSuccess"
    assert hip.hipGetLastError()[0].name == "hipErrorInvalidDevice"


def test_hip_get_last_error_before_7_successful_calls_overwrite_failure(hip_on: Enter) -> None:
    hip = hip_on(VERSION="6.4")
    hip.hipSetDevice(7)
    hip.hipGetDeviceCount()
    assert hip.hipGetLastError()[0].name == "hipSuccess"
    hip.hipSetDevice(7)
    hip.hipGetErrorName(hip.hipError_t.hipSuccess)
    assert hip.hipGetLastError()[0].name == "hipErrorInvalidDevice"


def test_hip_explain_failed_call_names_arguments_and_valid_devices(
    hip: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    hip.hipSetDevice(7)
    text = explain()
    assert "hipSetDevice returned hipErrorInvalidDevice (101)" in text
    assert "deviceId=7" in text
    assert "2 are visible, numbered 0 to 1" in text
    assert explain() == ""
    assert capfd.readouterr().err == ""


def test_hip_amd_log_level_1_prints_failed_calls(
    hip: ModuleType, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMD_LOG_LEVEL", "1")
    hip.hipSetDevice(7)
    assert "hipSetDevice returned hipErrorInvalidDevice" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("level", "mask", "printed"),
    [
        (0, 0x7FFFFFFF, []),
        (1, 0x7FFFFFFF, ["hipSetDevice returned hipErrorInvalidDevice"]),
        (3, 0, ["hipSetDevice returned hipErrorInvalidDevice"]),
        (
            3,
            1,
            [
                "hipSetDevice(deviceId=0) returned hipSuccess (0)",
                "hipSetDevice returned hipErrorInvalidDevice",
                "hipSetDevice(deviceId=7) returned hipErrorInvalidDevice (101)",
            ],
        ),
    ],
)
def test_hip_logging_prints_from_enable_to_disable_what_the_level_has(
    hip: ModuleType, capfd: pytest.CaptureFixture[str], level: int, mask: int, printed: list[str]
) -> None:
    hip.hipExtSetLoggingParams(level, 0, mask)
    hip.hipSetDevice(0)
    assert capfd.readouterr().err == ""
    hip.hipExtEnableLogging()
    capfd.readouterr()
    hip.hipSetDevice(0)
    hip.hipSetDevice(7)
    lines = [
        line for line in capfd.readouterr().err.splitlines() if line.startswith("peerlane: hipSetDevice")
    ]
    assert len(lines) == len(printed)
    assert all(words in line for words, line in zip(printed, lines, strict=True))
    hip.hipExtDisableLogging()
    capfd.readouterr()
    hip.hipSetDevice(7)
    assert capfd.readouterr().err == ""


def test_hip_logging_disabled_overrules_amd_log_level(
    hip: ModuleType, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMD_LOG_LEVEL", "1")
    hip.hipExtDisableLogging()
    hip.hipSetDevice(7)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"VERSION": "9.9"}, "PEERLANE_HIP_VERSION is '9.9'; valid are 10.0, 7.2, 6.4"),
        ({"POLICY": "peer_copies=maybe"}, "peer_copies=strict"),
        ({"POLICY": "no_such=1"}, "PEERLANE_HIP_POLICY has 'no_such=1'"),
    ],
)
def test_hip_unknown_version_or_policy_raises_and_lists_valid_ones(
    hip_on: Enter, rules: dict[str, str], message: str
) -> None:
    with pytest.raises(peerlane.InvalidValue, match=message):
        hip_on(**rules)


def test_hip_policy_docstring_lists_every_choice() -> None:
    text = str(Policy.__doc__)
    for name in Policy.SETTABLE:
        values = Policy.CHOICES[name]
        assert f"{name} : {{{', '.join(repr(value).replace(chr(39), chr(34)) for value in values)}}}" in text
