"""Every call of the table: its arguments, the shape of its result, and that each code is documented."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, get_args, get_origin

import numpy as np
import pytest

from helpers.acl_calls import MIB, in_thread, ok
from helpers.each import for_each
from helpers.returns import fits
from peerlane.dialects._shared.call import Declared
from peerlane.dialects.acl import rt, util
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl as convention

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

GRANULE = 2 * MIB
TABLE = convention.table
ROUNDS = 60
# These calls warn, read wild addresses as Python's own functions do, or wait for the program's threads.
NOT_DRAWN = {
    f"acl.util.{name}"
    for name in ("numpy_to_ptr", "ptr_to_bytes", "ptr_to_numpy", "start_thread", "stop_thread")
}
# C's library reads arrays and structs for these, and an address that some write to.
NOT_DRAWN |= {name for name in TABLE if name.startswith("aclrtMemcpyBatch")} | {"aclrtMemSetAccess"}


def call_of(name: str) -> Callable[..., Any]:
    assert rt and util
    module, _, short = name.rpartition(".")
    return convention.functions(module)[short]


def documented(name: str, seen: frozenset[str] = frozenset()) -> set[int]:
    """Return the codes that a call's page names, with those of the calls that it refers to."""
    text = TABLE[name].facts.get("Refuses", "")
    codes = {int(code) for code in re.findall(r"\b\d{6}\b", text)}
    module = name.rpartition(".")[0]
    for other in re.findall(r"as `(\w+)`", text):
        full = next(
            each for each in (f"{module}.{other}", f"acl.rt.{other}", f"acl.{other}", other) if each in TABLE
        )
        if full not in seen:
            codes |= documented(full, seen | {name})
    if "as for handles" in text:
        codes |= documented("acl.rt.mem_import_from_shareable_handle")
    return codes


def with_code(call: Declared) -> bool:
    return not call.facts.get("Gives", "").startswith("bare")


OWN_TEXTS = {"acl.util.start_thread"}  # the binding raises with CPython's own text


@for_each("name", [n for n, call in TABLE.items() if call.parameters and n not in OWN_TEXTS])
def test_acl_table_calls_wrong_arguments_raise_type_error(acl: ModuleType, name: str) -> None:
    call, declared = call_of(name), TABLE[name]
    most = len(declared.parameters)
    for args in ((1,) * (most + 1), *(() for needed in [declared.parameters[0][2]] if needed)):
        with pytest.raises(TypeError, match=f"^{re.escape(name)} args parse failed$"):
            call(*args)
    with pytest.raises(TypeError):
        call(**{declared.parameters[0][0]: 1})
    fitting = {"int": 1, "str": "x", "dict": {}, "list": [], "bytes": b""}
    for at, (_, kind, _) in enumerate(declared.parameters):
        plain = kind.partition("[")[0]
        if plain != "int":
            continue
        for wrong in (None, "1", 1.0, b"1", [1]):
            args = [fitting.get(k.partition("[")[0], print) for _, k, _ in declared.parameters]
            args[at] = wrong
            with pytest.raises(TypeError):
                call(*args)


def test_acl_table_calls_without_parameters_accept_any_arguments(acl: ModuleType) -> None:
    for name, declared in TABLE.items():
        if not declared.parameters and name not in ("acl.finalize", "acl.finalize_reference"):
            assert fits(call_of(name)(1, None, "x"), declared.returns), name


class Pool:
    """Arguments for every call: live and ended objects of every kind, and wild numbers."""

    def __init__(self, acl: ModuleType, draw: random.Random) -> None:
        self.draw = draw
        self.size = 4096
        device = [ok(acl.rt.malloc(self.size, policy)) for policy in (0, 3)]
        host = ok(acl.rt.malloc_host(self.size))
        freed = ok(acl.rt.malloc(64, 0))
        ok(acl.rt.free(freed))
        stream, event, notify = (
            ok(getattr(acl.rt, f"create_{kind}")(*a))
            for kind, a in (("stream", ()), ("event", ()), ("notify", (0,)))
        )
        self.handles = [stream, event, notify, ok(acl.rt.get_context())]
        ended = ok(acl.rt.create_stream())
        ok(acl.rt.destroy_stream(ended))
        self.addresses = [*device, host, device[0] + 64, host + 8]
        self.ends = [freed, ended]
        self.flags = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0x40]
        self.keys = ["", "x", "0" * 64, ok(acl.rt.notify_get_export_key(notify, 65, 0))]
        prop = {"memAttr": 4, "location": {"type": 1, "id": 0}}
        self.dicts = [
            prop,
            {},
            {**prop, "memAttr": 99},
            {**prop, "location": {"type": 1, "id": 9}},
            {"location": 1},
        ]

    def value(self, name: str, kind: str) -> Any:
        draw = self.draw
        plain = kind.partition("[")[0]
        if plain == "str":
            return draw.choice(self.keys)
        if plain == "dict":
            return draw.choice(self.dicts)
        if plain == "Callable":
            return str
        if plain == "Any":
            return draw.choice([[], [1], [*self.handles], [0], (1,), None, {}, 7, b"abc", np.zeros(3)])
        if "timeout" in name:
            return draw.choice([-2, 0, 1])
        if "device" in name or name in ("dev", "peer"):
            return draw.choice([0, 1, 0, 1, 2, -1])
        if draw.random() < 0.6:
            if any(word in name for word in ("ptr", "dst", "src", "addr", "desc", "pointer")):
                return draw.choice(self.addresses)
            if any(word in name for word in ("size", "count", "max", "width", "height", "pitch", "len")):
                return draw.choice([1, 8, 64, 65, 128, self.size, GRANULE])
            if any(word in name for word in ("stream", "event", "notify", "context", "handle")):
                return draw.choice([*self.handles, 0])
            return draw.choice(self.flags)
        wild = [0, 1, 64, 4096, GRANULE, -1, 1 << 31, 1 << 46, 1 << 62, (1 << 64) - 1, 0xDEAD0000]
        return draw.choice([*wild, *self.addresses[:3], *self.handles, *self.ends])


# Calls that queue a wait that may never end, and calls that end objects that later calls use.
QUEUES_WAITS = {"acl.rt.wait_and_reset_notify", "acl.rt.stream_wait_event", "acl.rt.value_wait"}
ENDS = re.compile(
    r"acl\.(rt\.(reset_device|destroy_|free|ipc_mem_close|set_device|set_context)|finalize|init|media)"
)


@pytest.mark.parametrize("name", sorted(set(TABLE) - NOT_DRAWN))
def test_acl_table_calls_random_arguments_return_only_documented_codes(acl: ModuleType, name: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    declared, codes = TABLE[name], documented(name) | {0}
    pool, call = Pool(acl, draw), call_of(name)
    for _ in range(ROUNDS if declared.parameters else 3):
        if ENDS.match(name):
            pool = Pool(acl, draw)
        arguments = [pool.value(parameter, kind) for parameter, kind, _ in declared.parameters]
        try:
            result = call(*arguments)
        except (TypeError, ValueError) as error:
            assert name in str(error), (arguments, error)
            continue
        finally:
            if name in QUEUES_WAITS or name == "acl.rt.launch_callback":
                for stream in (pool.handles[0], 0):
                    acl.rt.stream_abort(stream)
            acl.rt.set_device(0)
        assert fits(result, declared.returns), (arguments, result, declared.returns)
        if with_code(declared):
            code = result[-1] if isinstance(result, tuple) else result
            assert type(code) is int and code in codes, (arguments, code, sorted(codes))
            text = acl.get_recent_err_msg() if name != "acl.get_recent_err_msg" else None
            assert (code == 0) or (
                text and f"{name} returned {code} (ACL_ERROR_{Code(code).name})" in text
            ), (arguments, text)


def test_acl_table_calls_in_thread_without_context_keep_declared_shape(acl: ModuleType) -> None:
    missing = []
    for name, declared in TABLE.items():
        if name in NOT_DRAWN or not with_code(declared) or 107002 not in documented(name):
            continue
        pool = Pool(acl, random.Random(1))

        def use(name: str = name, declared: Declared = declared, pool: Pool = pool) -> Any:
            arguments = [pool.value(parameter, kind) for parameter, kind, _ in declared.parameters]
            for _ in range(200):
                try:
                    result = call_of(name)(*arguments)
                except (TypeError, ValueError):
                    result = None
                if (result[-1] if isinstance(result, tuple) else result) == 107002:
                    return result
                arguments = [pool.value(parameter, kind) for parameter, kind, _ in declared.parameters]
            return None

        result = in_thread(use)
        if result is None or not fits(result, declared.returns):
            missing.append(name)
    assert not missing


def test_acl_fits_compares_value_with_declared_type() -> None:
    assert get_origin(tuple[int, str]) is tuple and get_args(tuple[int, str]) == (int, str)
    assert fits((0, "", 0), "tuple[int, str, int]") and not fits((0, 0, 0), "tuple[int, str, int]")
    assert fits(None, "str | None") and fits({}, "dict[str, int]") and not fits(True, "int")
