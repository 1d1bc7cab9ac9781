"""NIXL, the transfer library of serving systems, on virtual devices: ``from nixl._api import nixl_agent``.

``docs/reference/nixl.md`` lists each method.  ``nixl_cu12``, ``nixl_cu13`` and ``rixl`` are the same modules.
"""

from peerlane.dialects.nixl import _api as _api
from peerlane.dialects.nixl import _bindings as _bindings
from peerlane.dialects.nixl import _utils as _utils
from peerlane.dialects.nixl import logging as logging

for _module in (_bindings, _utils, logging, _api):
    globals().update({_name: _each for _name, _each in vars(_module).items() if not _name.startswith("_")})
