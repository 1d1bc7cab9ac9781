"""Enumerations of the hip dialect against measurements on the public wheels."""

from __future__ import annotations

import enum
import pickle
import subprocess
import sys
import threading
from types import ModuleType

import pytest

from helpers.each import for_each
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.enums import SERVED_IN, base_of, enumeration, is_enumeration

pytestmark = pytest.mark.any_schedule

NAMES = sorted(facts()["enums"])


@for_each("name", NAMES)
def test_hip_enumeration_members_equal_those_of_the_wheel(name: str) -> None:
    kind = enumeration(name)
    assert {each: int(member) for each, member in kind.__members__.items()} == facts()["enums"][name][
        "members"
    ]
    assert kind.__name__ == kind.__qualname__ == name
    assert kind.__module__ == base_of(kind).__module__ == SERVED_IN
    assert base_of(kind).__name__ == f"_{name}__Base"
    assert base_of(kind).__mro__[1] is enum.IntEnum


def test_hip_enumeration_alias_names_give_one_class() -> None:
    assert enumeration("hipResourcetype") is enumeration("HIPresourcetype_enum")
    assert is_enumeration("hipResourcetype") and not is_enumeration("hipExtent")


def test_hip_enumeration_from_eight_threads_gives_one_class() -> None:
    enums: list[type] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait(10)
        enums.append(enumeration("hipJitOption"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(enums) == 8 and len(set(enums)) == 1


def test_hip_enumeration_equal_values_give_first_member() -> None:
    error = enumeration("hipError_t")
    assert repr(error["hipErrorMemoryAllocation"]) == "<hipError_t.hipErrorOutOfMemory: 2>"
    assert error(400).name == "hipErrorInvalidHandle"
    assert [member.value for member in error][:3] == [0, 1, 2]
    assert enumeration("hipDeviceAttribute_t")(0).name == "hipDeviceAttributeCudaCompatibleBegin"


def test_hip_enumeration_unknown_value_raises_value_error() -> None:
    error = enumeration("hipError_t")
    assert error(1) == 1 and isinstance(error(1), base_of(error)) and not isinstance(1, base_of(error))
    with pytest.raises(ValueError, match="7777 is not a valid hipError_t"):
        error(7777)
    with pytest.raises(KeyError):
        enumeration("hipNoSuchThing_t")


def test_hip_enumeration_older_errors_have_members_of_7_2() -> None:
    new, old = enumeration("hipError_t"), enumeration("hipError_t", older=True)
    assert new is not old and (len(new), len(old)) == (80, 76)
    assert new["hipErrorTbd"] == 1055 and old["hipErrorTbd"] == 1054
    assert "hipErrorStreamDetached" not in old.__members__
    assert enumeration("hipMemcpyKind", older=True) is enumeration("hipMemcpyKind")


def test_hip_enumeration_member_pickles_by_served_name(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ModuleType(SERVED_IN)
    served.hipError_t = enumeration("hipError_t")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, SERVED_IN, served)
    member = enumeration("hipError_t")(704)
    assert pickle.loads(pickle.dumps(member)) is member


def test_hip_enumeration_import_makes_at_most_four() -> None:
    program = "import peerlane.dialects.hip.binding.enums as e\nprint(e._class_of.cache_info().currsize)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert int(done.stdout) <= 4  # the codes of hip and of hiprtc, and the kind of the fast copy
