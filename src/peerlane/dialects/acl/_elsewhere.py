"""The modules of pyACL that compute: any call there refuses, and says what peerlane is for."""

import re
from collections.abc import Callable, Mapping

from peerlane.dialects._call import Refusal
from peerlane.dialects.acl._codes import Code
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


def calls_of(module: str) -> Callable[[str], Callable[..., int]]:
    """Return the ``__getattr__`` of a module: a call for any lower-case name, no attribute for another."""
    made: dict[str, Callable[..., int]] = {}

    def __getattr__(name: str) -> Callable[..., int]:
        if not _CALL.fullmatch(name):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        if name not in made:
            made[name] = acl.refusing(
                f"{module}.{name}",
                Refusal(
                    Code.API_NOT_SUPPORT,
                    f"{module} {MODULES[module]}, and a virtual device computes nothing: peerlane is for the memory "
                    "of devices, the copies between them and what orders those",
                    "run this part on hardware, or replace it in the test; docs/reference/acl.md lists what works",
                ),
            )
        return made[name]

    return __getattr__
