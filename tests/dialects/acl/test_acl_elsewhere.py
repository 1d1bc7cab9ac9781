"""The modules of ``acl`` that compute: they can be imported, and every call refuses and names the reason."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.prepared import run_python

pytestmark = pytest.mark.any_schedule

MODULES = ("mdl", "op", "media", "blas", "prof", "himpi", "fv")
PROGRAM = """
import acl.mdl
import acl.media as media
from acl import op, rt
from acl.mdl import load_from_file

assert load_from_file is acl.mdl.load_from_file
print(acl.mdl.load_from_file("model.om"), op.compile(1, 2), media.dvpp_malloc(0), rt is acl.rt)
print(acl.get_recent_err_msg() is None)
"""


@pytest.mark.parametrize("name", MODULES)
def test_acl_compute_modules_any_lower_case_call_returns_200001(
    acl: ModuleType, message: Callable[[], str], name: str
) -> None:
    module = getattr(acl, name)
    for call in ("execute_async", "x", "v2_of_it"):
        assert getattr(module, call)(1, "two", None, [3]) == 200001
        text = message()
        assert f"acl.{name}.{call} returned 200001 (ACL_ERROR_API_NOT_SUPPORT)" in text
        assert "argument 2='two'" in text
        assert "peerlane is for the memory of devices" in text
    assert module.execute_async is module.execute_async
    assert module.execute_async.__name__ == "execute_async"
    with pytest.raises(TypeError, match="keyword"):
        module.execute_async(model=1)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("wrong", ["ACL_FLOAT", "Execute", "_x", "__wrapped__", "__path__", "x.y", ""])
def test_acl_compute_modules_other_names_raise_attribute_error(
    acl: ModuleType, name: str, wrong: str
) -> None:
    with pytest.raises(AttributeError, match=f"^module 'acl.{name}' has no attribute"):
        getattr(getattr(acl, name), wrong)
    assert acl.get_recent_err_msg() is None


@pytest.mark.timeout(60)
def test_acl_compute_modules_every_import_form_works() -> None:
    done = run_python(["-c", f"import peerlane.dialects as d\nd.install('acl')\n{PROGRAM}"], timeout=40)
    assert done.stdout.splitlines() == ["(0, 200001) 200001 (0, 100000) True", "False"], done
