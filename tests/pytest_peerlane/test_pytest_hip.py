"""The pytest plugin's fixture ``hip``."""

from __future__ import annotations

import re

import pytest

from helpers.inner_pytest import run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def test_hip_fixture_gives_dialect_on_a_fresh_node(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest

        @pytest.mark.peerlane(devices=3)
        def test_count(hip):
            from hip import hip as imported
            from rocm.bindings import hip as other
            assert hip is imported is other
            assert hip.hipGetDeviceCount()[1] == 3
            assert hip.hipSetDevice(2)[0] == 0
            assert hip.hipFree(4096)[0] != 0

        def test_anew(hip):
            assert hip.hipGetDevice()[1] == 0
            assert hip.hipGetLastError()[0] == 0

        @pytest.mark.peerlane(devices=2)
        def test_without_the_fixture():
            with pytest.raises(ModuleNotFoundError):
                import hip
        """,
    )
    done.assert_outcomes(passed=3)


def test_hip_and_acl_fixtures_in_one_test_both_work(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        def test_both(acl, hip):
            assert acl.rt.get_device_count() == (2, 0)
            assert hip.hipGetDeviceCount()[1] == 2
        """,
    )
    done.assert_outcomes(passed=1)


def test_hip_fixture_leaks_fail_their_test_with_lines(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        kept = []

        def test_leaks(hip):
            kept.append(hip.hipMalloc(4096)[1])
            kept.append(hip.hipStreamCreate()[1])
            hip.hipMemcpyAsync(kept[0], bytes(8), 8, hip.hipMemcpyKind.hipMemcpyDefault, kept[1])

        def test_reset(hip):
            hip.hipMalloc(4096), hip.hipStreamCreate()
            hip.hipDeviceReset()

        def test_null_stream_is_the_vendor_s(hip):
            array = hip.hipMalloc(4096)[1]
            hip.hipMemcpy(array, bytes(8), 8, hip.hipMemcpyKind.hipMemcpyDefault)
            hip.hipStreamSynchronize(2)
            hip.hipFree(array)
        """,
    )
    done.assert_outcomes(passed=3, errors=1)
    text = done.stdout.str()
    assert "memory: 4,096 bytes on virtual:0, made at test_it.py:4" in text
    assert re.search(r"stream 0x\w+ of device 0, made at test_it.py:5", text)
    assert "Memory of hipMalloc ends with hipFree" in text


def test_hip_fixture_of_failing_test_shows_failed_calls(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        def test_fails(hip):
            error, = hip.hipSetDevice(7)
            assert error == hip.hipError_t.hipSuccess
        """,
    )
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "*peerlane: calls of hip that failed, newest first*",
            "hipSetDevice returned hipErrorInvalidDevice (101).*",
        ]
    )


def test_failed_call_of_a_vendor_whose_fixture_is_not_taken_is_explained(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\npeerlane_dialects = acl")
    done = run(
        pytester,
        """
        import threading

        def test_passes(peerlane_node):
            import acl
            assert acl.rt.set_device(9) == 107001

        def test_fails(peerlane_node):
            import acl
            thread = threading.Thread(target=acl.rt.set_device, args=(7,))
            thread.start(), thread.join()
            assert False

        def test_fails_with_an_explanation_of_its_own(peerlane_node):
            assert False
        """,
    )
    done.assert_outcomes(passed=1, failed=2)
    text = done.stdout.str()
    assert text.count("peerlane: calls of acl that failed, newest first") == 1
    assert "acl.rt.set_device returned 107001" in text
    assert "device_id=7" in text and "device_id=9" not in text


def test_hip_fixture_freed_memory_kept_by_pool_is_not_a_leak(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import ctypes
        import pytest

        MIB = 1 << 20

        def test_freed_on_the_null_stream(hip):
            hip.hipFreeAsync(hip.hipMallocAsync(MIB, None)[1], None)

        def test_freed_on_a_stream_that_ended(hip):
            stream = hip.hipStreamCreate()[1]
            hip.hipFreeAsync(hip.hipMallocAsync(MIB, stream)[1], stream)
            hip.hipStreamDestroy(stream)

        def test_the_release_threshold_holds_it(hip):
            pool = hip.hipDeviceGetDefaultMemPool(1)[1]
            name = hip.hipMemPoolAttr.hipMemPoolAttrReleaseThreshold
            hip.hipMemPoolSetAttribute(pool, name, ctypes.c_uint64(2**64 - 1))
            hip.hipSetDevice(1)
            hip.hipFreeAsync(hip.hipMallocAsync(MIB, None)[1], None)
            hip.hipDeviceSynchronize()
            free, total = hip.hipMemGetInfo()[1:]
            assert free < total

        def test_the_next_node_has_all_its_memory(hip):
            free, total = hip.hipMemGetInfo()[1:]
            assert free == total

        def test_given_again_and_not_freed(hip):
            hip.hipFreeAsync(hip.hipMallocAsync(MIB, None)[1], None)
            hip.hipMallocAsync(MIB, None)
        """,
    )
    done.assert_outcomes(passed=5, errors=1)
    done.stdout.fnmatch_lines(["the test left behind 1 thing*", "  memory: 1,048,576 bytes on virtual:0, *"])
