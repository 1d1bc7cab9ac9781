"""The calls of pyACL that compute: each refuses in its own shape, and the message names peerlane's purpose."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._refused import ONLY_THE_CODE, REFUSED, answer
from peerlane.dialects.acl._state import acl

_CALL = re.compile("[a-z][a-z0-9_]*")

MODULES: Mapping[str, str] = {
    "acl.blas": "multiplies matrices",
    "acl.fv": "searches for features",
    "acl.himpi": "processes images and video",
    "acl.mdl": "loads and runs models",
    "acl.media": "processes images and video",
    "acl.op": "compiles and runs operators",
    "acl.prof": "measures what runs on hardware",
}
_OTHERS = {"acl": "is about tensors of operators", "acl.rt": "is about kernels, and the cores that run them"}

acl.refused.update(REFUSED)


def calls_of(module: str) -> Callable[[str], Callable[..., Any]]:
    """Return the ``__getattr__`` of a module, which returns a call that refuses, or raises AttributeError.

    A module that computes has such a call for any lower-case name, the others for the names of the vendor's binding.
    """
    calls: dict[str, Callable[..., Any]] = {}
    shapes, missing = REFUSED[module], acl.missing(module)

    def __getattr__(name: str) -> Callable[..., Any]:
        if name not in shapes and not (module in MODULES and _CALL.fullmatch(name)):
            missing(name)
        if name not in calls:
            calls[name] = acl.refusing(
                f"{module}.{name}",
                Code.API_NOT_SUPPORT.refusal(
                    f"{_subject(module, name)}, and a virtual device computes nothing: peerlane is for the memory of "
                    "devices, the copies between them and what orders those",
                    "run this part on hardware, or replace it in the test; docs/reference/acl.md lists what works",
                ),
                partial(answer, shapes.get(name, ONLY_THE_CODE)),
            )
        return calls[name]

    return __getattr__


def _subject(module: str, name: str) -> str:
    return f"{module} {MODULES[module]}" if module in MODULES else f"{module}.{name} {_OTHERS[module]}"
