"""Which rules hold: those of which version, and which where the vendor's sources disagree (facts/hip 3.8).

Read from the environment when the dialect is first imported, and again for each test of the pytest plugin.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects._shared.environment import chosen, no_choice
from peerlane.dialects.gpu import vendor as gpu

VERSION_VARIABLE = "PEERLANE_HIP_VERSION"
VARIABLE = "PEERLANE_HIP_POLICY"
VERSIONS: Mapping[str, tuple[int, int]] = MappingProxyType({"10.0": (10, 0), "7.2": (7, 2), "6.4": (6, 4)})


class Policy(gpu.Policy):
    """The rules that hold; of each the first value is the default.

    Attributes
    ----------
    version : tuple of int
        Of hip-python, (10, 0) by default.  Before 10.0 names are bytes and IPC handles end at their first NUL; before
        7.0 each call overwrites the last error.
    peer_copies : {"pass", "strict"}
        The copy between two devices does not ask for peer access; or it fails without it, with
        hipErrorPeerAccessNotEnabled.  Access of one of the two to the other's memory is enough, given by
        hipDeviceEnablePeerAccess, hipMemSetAccess, hipMemPoolSetAccess or hipIpcOpenMemHandle.
    memcpy_peer : {"both", "current"}
        hipMemcpyPeer follows earlier work of both devices; or of the current device only.
    is_plain : bool
        A copy that works has nothing to note, and nothing to ask or wait for besides its stream.
    """

    #: The rules that ``PEERLANE_HIP_POLICY`` may set, for which AMD's sources disagree.
    SETTABLE = ("peer_copies", "memcpy_peer")

    version: tuple[int, int]
    is_plain: bool

    def __init__(self) -> None:
        super().__init__()
        self.reload()

    def reload(self) -> None:
        """Read ``PEERLANE_HIP_VERSION`` and ``PEERLANE_HIP_POLICY`` (``name=value,...``).

        Raises
        ------
        InvalidValue
            A version, name or value that there is not; the text has the valid ones.  Nothing was changed.
        """
        named = chosen(VERSION_VARIABLE, tuple(VERSIONS))
        settable = {name: self.CHOICES[name] for name in self.SETTABLE}
        values = {name: choices[0] for name, choices in settable.items()}
        for each in filter(None, (part.strip() for part in os.environ.get(VARIABLE, "").split(","))):
            name, _, value = each.partition("=")
            if value not in settable.get(name, ()):
                valid = [f"{name}={one}" for name, choices in settable.items() for one in choices]
                raise no_choice(VARIABLE, each, valid, "has")
            values[name] = value
        vars(self).update(values, version=VERSIONS[named])
        self.is_plain = VERSIONS[named] >= (7, 0) and values["peer_copies"] == "pass"


policy = Policy()
