"""The configuration of a virtual node: its settings, their sources, and the digest that processes must agree on."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from peerlane.backend import registry
from peerlane.backend.facts import MAX_DEVICES
from peerlane.backend.settings import bad_config, integer, is_file, keys_known, read_inline, read_toml, sizes
from peerlane.support.sizes import UNITS, format_size

from .checks import NodeChecks
from .profiles import HOST_ACCESS, Profile
from .topology import LinkKind, Topology

KEYS = (
    "name",
    "devices",
    "switch",
    "memory",
    "profile",
    "host_access",
    "poison",
    "cache_bytes",
    "window_bytes",
    "schedule",
    "p2p",
    "link",
)

_VARIABLE = "PEERLANE_NODE"
_SHAPE = ("devices", "switch", "memory", "profile", "host_access", "p2p", "link")
_DEFAULT_CACHE = UNITS["GiB"]
_MAX_WINDOW = 64 * UNITS["TiB"]
_MIN_WINDOW = UNITS["GiB"]


@dataclass(frozen=True, slots=True, init=False)
class NodeConfig:
    """A valid configuration, which need not be checked again.

    ``settings``: the keys of ``docs/reference/node.md`` that differ from the defaults; None means "not given".
    ``source``: where the settings are written (a path, a variable, a flag), for the messages.
    Raises InvalidValue: ``BAD_CONFIG``, from the constructor and from all class methods.
    """

    name: str  #: the name by which processes enter the same node; by default made from ``digest``
    devices: int  #: ``devices``, ``switch``: the number of devices, and how many of them share a switch
    switch: int
    memory: tuple[int, ...]  #: bytes of each device
    profile: Profile  #: the kind of machine
    host_access: str  #: ``"guard"`` or ``"map"``
    poison: bool  #: whether fresh and freed memory is filled with a pattern
    cache_bytes: int  #: the most bytes of freed blocks that a process keeps for reuse
    window_bytes: int  #: bytes of addresses that a process reserves, for guard and shadow together
    #: When queued operations run: ``"eager"``, ``"lazy"``, ``"seeded"`` or ``"seeded:SEED"``; with ``""``,
    #: ``PEERLANE_SCHEDULE`` decides, and without that it is eager.
    schedule: str
    #: ``p2p[a][b]`` is 1 if ``a`` may reach ``b``; with None, switches and profile decide.
    p2p: tuple[bytes, ...] | None
    #: Links that differ from those of the switches and the profile.
    links: tuple[tuple[int, int, LinkKind], ...]
    #: 32 hexadecimal digits, made from the settings that all processes of a node must agree on: devices, switch,
    #: memory, profile, host access, p2p and links.
    digest: str
    #: The switches, the links, and which device reaches which.
    topology: Topology = field(repr=False, compare=False)
    _explicit: tuple[str, ...] = field(repr=False, compare=False)

    def __init__(
        self, settings: Mapping[str, object] | None = None, /, *, source: str = "NodeConfig"
    ) -> None:
        chosen = {key: value for key, value in (settings or {}).items() if value is not None}
        for name, value in _resolved(chosen, source).items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "topology", self._topology())
        digest = hashlib.sha256(json.dumps(self._values(_SHAPE)).encode()).hexdigest()[:32]
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "name", self.name or f"node-{digest[:12]}")

    @classmethod
    def parse(cls, text: str, *, source: str = "node") -> NodeConfig:
        """Read the inline form, ``name=ci,devices=8,switch=4``; empty text gives the default node."""
        return cls(read_inline(text, source, _INLINE_VALUES), source=source)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> NodeConfig:
        """Read the ``[node]`` table of a TOML file."""
        settings = read_toml(path)
        _check_backend(settings.pop("backend", registry.DEFAULT), os.fspath(path))
        return cls(settings, source=os.fspath(path))

    @classmethod
    def resolve(cls, text: str, *, source: str = "node") -> NodeConfig:
        """Read a file if ``text`` ends in ``.toml`` or names one that exists, else read the inline form."""
        if is_file(text):
            return cls.load(text)
        name, settings = registry.split(text, source)
        _check_backend(name, source)
        return cls.parse(settings, source=source)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> NodeConfig:
        """Read ``PEERLANE_NODE``; unset or empty gives the default node, two devices on one switch."""
        return cls.resolve(environ.get(_VARIABLE, ""), source=_VARIABLE)

    def replace(self, *, source: str = "NodeConfig.replace", **overrides: object) -> NodeConfig:
        """Return the configuration with some settings replaced.

        Defaults are computed from the new settings: ``devices=8`` also puts all eight on one switch, if no ``switch``
        was given.  None leaves a setting as it is.
        """
        settings = self._values(self._explicit)
        settings.update({key: value for key, value in overrides.items() if value is not None})
        return NodeConfig(settings, source=source)

    @property
    def spec(self) -> str:
        """The inline form; ``NodeConfig.parse(config.spec) == config``.

        A parent puts it into ``PEERLANE_NODE`` for its children.
        """
        values = self._values(self._explicit)
        values["profile"] = self.profile.name
        return ",".join(f"{key}={_inline(key, value)}" for key, value in values.items() if value != [])

    def as_dict(self) -> dict[str, object]:
        """Return every setting as plain JSON values; ``NodeConfig(config.as_dict()) == config``."""
        return {**self._values(KEYS), "memory": list(self.memory)}

    def describe(self) -> str:
        """Return the node in one line."""
        switches = -(-self.devices // self.switch)
        each = format_size(self.memory[0]) + " each"
        if len(set(self.memory)) > 1:
            each = f"{format_size(min(self.memory))} to {format_size(max(self.memory))}"
        matrix = ", own p2p matrix" if self.p2p is not None else ""
        return (
            f"{self.name}: {_count(self.devices, 'device')} on {_count(switches, 'switch', 'es')}, {each}, "
            f"profile {self.profile.name}, host access {self.host_access}{matrix}"
        )

    def _values(self, keys: tuple[str, ...]) -> dict[str, object]:
        plain = {
            "memory": self.memory[0] if len(set(self.memory)) == 1 else list(self.memory),
            "profile": self.profile.name,
            "schedule": self.schedule or None,
            "p2p": None if self.p2p is None else [list(row) for row in self.p2p],
            "link": [{"a": a, "b": b, "kind": kind.value} for a, b, kind in self.links],
        }
        return {key: plain[key] if key in plain else getattr(self, key) for key in keys}

    def _topology(self) -> Topology:
        return Topology(
            devices=self.devices,
            switch_of=tuple(device // self.switch for device in range(self.devices)),
            inside=self.profile.link,
            peer_access=self.profile.peer_access,
            links={(a, b): kind for a, b, kind in self.links},
            p2p=self.p2p,
        )


def _resolved(settings: Mapping[str, object], source: str) -> dict[str, object]:
    keys_known(source, settings, KEYS, "node.")
    check = NodeChecks(source)
    profile = check.profile(settings.get("profile", "default"))
    devices = check.integer("devices", settings.get("devices", profile.devices), 1, MAX_DEVICES)
    links = check.links(settings.get("link", ()), devices)
    return {
        "name": check.name(settings["name"]) if "name" in settings else "",
        "devices": devices,
        "switch": check.integer("switch", settings.get("switch", profile.switch_for(devices)), 1, devices),
        "memory": check.memory(settings.get("memory", profile.memory), devices, profile.granularity),
        "profile": profile,
        "host_access": check.choice(
            "host_access", settings.get("host_access", profile.host_access), HOST_ACCESS
        ),
        "poison": check.flag("poison", settings.get("poison", False)),
        "cache_bytes": check.size(
            "cache_bytes", settings.get("cache_bytes", _DEFAULT_CACHE), 0, UNITS["PiB"], 1
        ),
        "window_bytes": check.size(
            "window_bytes",
            settings.get("window_bytes", _MAX_WINDOW),
            _MIN_WINDOW,
            _MAX_WINDOW,
            2 * profile.granularity,
        ),
        "schedule": check.schedule(settings["schedule"]) if "schedule" in settings else "",
        "p2p": check.p2p(settings["p2p"], devices) if "p2p" in settings else None,
        "links": tuple((a, b, kind) for (a, b), kind in sorted(links.items(), key=lambda link: link[0])),
        "_explicit": tuple(key for key in KEYS if key in settings),
    }


def _inline(key: str, value: object) -> str:
    match key, value:
        case "memory" | "cache_bytes" | "window_bytes", int(nbytes):
            return format_size(nbytes).replace(" ", "")
        case "memory", list(sizes):
            return "/".join(_inline(key, size) for size in sizes)
        case "p2p", list(rows):
            return "/".join("".join(map(str, row)) for row in rows)
        case "link", list(links):
            return "/".join(f"{link['a']}-{link['b']}:{link['kind']}" for link in links)
        case "poison", bool(flag):
            return "true" if flag else "false"
    return str(value)


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural if number != 1 else ''}"


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _matrix(text: str) -> object:
    return [[integer(digit) for digit in row] for row in text.split("/")]


def _links(text: str) -> object:
    links: list[object] = []
    for link in text.split("/"):
        match = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20}):(.*)", link)
        links.append({"a": int(match[1]), "b": int(match[2]), "kind": match[3]} if match else link)
    return links


_INLINE_VALUES: dict[str, Callable[[str], object]] = {
    "devices": integer,
    "switch": integer,
    "memory": sizes,
    "poison": _flag,
    "p2p": _matrix,
    "link": _links,
}


def _check_backend(name: object, source: str) -> None:
    if name != registry.DEFAULT:
        raise bad_config(
            source,
            f"backend is {name!r}, and only a node of virtual devices will do here; valid: "
            f"backend={registry.DEFAULT}, or no backend",
        )
