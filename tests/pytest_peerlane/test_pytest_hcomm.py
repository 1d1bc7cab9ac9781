"""The pytest plugin's fixture ``hcomm``."""

from __future__ import annotations

import pytest

from helpers.inner_pytest import run

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


def test_hcomm_fixture_gives_dialect_on_a_fresh_node(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        import pytest

        @pytest.mark.peerlane(devices=3)
        def test_count(acl, hcomm):
            import hcomm as imported
            assert hcomm is imported
            comms, ret = hcomm.HcclCommInitAll(3, [0, 1, 2])
            assert ret == 0 and [hcomm.HcclGetRankId(comm) for comm in comms] == [(0, 0), (1, 0), (2, 0)]
            assert [hcomm.HcclCommDestroy(comm) for comm in comms] == [0, 0, 0]

        def test_anew(hcomm):
            assert hcomm.HcclGetRootInfo() == (b"", 15)

        def test_without_the_fixture():
            with pytest.raises(ModuleNotFoundError):
                import hcomm
        """,
    )
    done.assert_outcomes(passed=3)


def test_hcomm_fixture_communicator_left_fails_its_test(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        def test_leaks(acl, hcomm):
            acl.rt.set_device(0)
            assert hcomm.HcclCommInitRootInfo(1, hcomm.HcclGetRootInfo()[0], 0)[1] == 0
        """,
    )
    done.assert_outcomes(passed=1, errors=1)
    text = done.stdout.str()
    assert "communicator 0x" in text and "made at test_it.py:3" in text
    assert "Communicators end with HcclCommDestroy" in text


def test_hcomm_fixture_of_failing_test_shows_failed_calls(pytester: pytest.Pytester) -> None:
    done = run(
        pytester,
        """
        def test_fails(hcomm):
            assert hcomm.HcommBatchModeEnd("b") == 0
        """,
    )
    done.assert_outcomes(failed=1)
    text = done.stdout.str()
    assert "calls of hcomm that failed, newest first" in text and "calls of acl" not in text
    assert "hcomm.HcommBatchModeEnd returned 1 (HCCL_E_PARA)" in text


def test_failed_calls_of_hcomm_and_acl_are_shown_once_each_under_their_own_heading(
    pytester: pytest.Pytester,
) -> None:
    done = run(
        pytester,
        """
        def test_fails(acl, hcomm):
            assert hcomm.HcommBatchModeEnd("b") == 1
            assert acl.rt.set_device(7) == 107001
            assert hcomm.HcommBatchModeEnd("c") == 0
        """,
    )
    done.assert_outcomes(failed=1)
    text = done.stdout.str()
    of_acl, of_hcomm = text.partition("calls of acl that failed")[2].split("calls of hcomm that failed")
    assert "device_id=7" in of_acl and "batchTag" not in of_acl
    assert of_hcomm.count("batchTag=") == 2 and "device_id=7" not in of_hcomm
