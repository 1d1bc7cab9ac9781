"""Each method of the dialect nixl with wrong arguments: the vendor's exception, and a sentence that helps."""

from __future__ import annotations

import gc
import itertools
import pickle
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.nixl_calls import address_of
from helpers.promises import Node
from peerlane.dialects.nixl import _bindings as b
from peerlane.dialects.nixl._api import nixl_agent, nixl_agent_config, nixl_xfer_handle
from peerlane.dialects.nixl._status import Failure

pytestmark = pytest.mark.any_schedule

Call = Callable[[Any], object]
_BARE = nixl_agent_config(backends=[])


@pytest.fixture
def at(node: Node) -> Iterator[SimpleNamespace]:
    """Agents "a" and "b", of which "a" knows "b"; registered memory of both kinds, and prepared lists."""
    node("devices=2,memory=64MiB")
    array, device = np.zeros(256, np.uint8), pl.devices()[1].allocate(256)
    agents = SimpleNamespace(a=nixl_agent("a"), b=nixl_agent("b"), p=address_of(array), v=device.address)
    agents.keep = array, device
    agents.registered = agents.b.register_memory([(agents.p, 256, 0, "")], "DRAM")
    agents.a.register_memory([(agents.p, 256, 0, "")], "DRAM")
    agents.b.register_memory([(agents.v, 256, 1, "")], "VRAM")
    agents.a.add_remote_agent(agents.b.get_agent_metadata())
    agents.near = agents.a.prep_xfer_dlist("", [(agents.p, 8, 0), (agents.p + 8, 8, 0)], "DRAM")
    agents.far = agents.a.prep_xfer_dlist("b", [(agents.p, 8, 0), (agents.p + 8, 8, 0)], "DRAM")
    agents.x = lambda *rows, mem="DRAM": agents.a.get_xfer_descs(list(rows), mem)
    agents.handle = agents.a.initialize_xfer(
        "WRITE", agents.x((agents.p, 8, 0)), agents.x((agents.p + 8, 8, 0)), "b"
    )
    yield agents
    vars(agents).clear()  # `x` refers to `agents`, which would keep the agents into the next test
    gc.collect()


CASES: list[tuple[str, Call, type[BaseException], str]] = [
    ("empty name", lambda at: nixl_agent(""), ValueError, "non-empty name; pass one"),
    ("name of another type", lambda at: nixl_agent(3), TypeError, "the name is str or bytes"),
    (
        "sync mode",
        lambda at: nixl_agent_config(sync_mode=1),
        TypeError,
        "sync_mode must be a nixl_thread_sync_t",
    ),
    (
        "plugin",
        lambda at: at.a.create_backend("UVX"),
        b.nixlNotFoundError,
        "no plugin 'UVX'; pass one of POSIX, UCX",
    ),
    ("back-end twice", lambda at: at.a.create_backend("UCX"), b.nixlInvalidParamError, "was created already"),
    ("parameter", lambda at: at.a.create_backend("POSIX", {"a": 1}), TypeError, "the parameter 'a' is str"),
    ("no list", lambda at: at.a.register_memory("abc", "DRAM"), TypeError, "descs is nixlRegDList"),
    ("no kind", lambda at: at.a.register_memory([(at.p, 8, 0, "")]), TypeError, "descs is nixlRegDList"),
    ("kind", lambda at: at.a.register_memory([(at.p, 8, 0, "")], "V-RAM"), KeyError, "V-RAM"),
    ("empty", lambda at: at.a.register_memory([], "DRAM"), IndexError, "at least one"),
    (
        "no descriptor",
        lambda at: at.a.register_memory(b.nixlRegDList(b.DRAM_SEG)),
        b.nixlBackendError,
        "has no descriptor",
    ),
    (
        "host memory as VRAM",
        lambda at: at.a.register_memory([(at.p, 8, 0, "")], "VRAM"),
        b.nixlBackendError,
        "are not memory of a device; allocate them on one, or register them as DRAM",
    ),
    (
        "other device",
        lambda at: at.a.register_memory([(at.v, 8, 0, "")], "VRAM"),
        b.nixlBackendError,
        "lie on device 1, not 0; there are 2 devices; pass 1 as the device",
    ),
    (
        "beyond the allocation",
        lambda at: at.a.register_memory([(at.v, 512, 1, "")], "VRAM"),
        b.nixlBackendError,
        "cannot be registered: .*512",
    ),
    (
        "null",
        lambda at: at.a.register_memory([(0, 8, 0, "")], "DRAM"),
        b.nixlBackendError,
        "the address is NULL.*PEERLANE_NIXL_POLICY=vendor",
    ),
    (
        "no memory",
        lambda at: at.a.register_memory([(4096, 8, 0, "")], "DRAM"),
        b.nixlBackendError,
        "cannot be registered: .*0x1000",
    ),
    ("back-end's name", lambda at: at.a.register_memory([(at.p, 8, 0, "")], "DRAM", ["X"]), KeyError, "X"),
    (
        "not registered so",
        lambda at: at.b.deregister_memory(at.b.get_reg_descs([(at.p, 8, 0, "")], "DRAM")),
        b.nixlNotFoundError,
        "not registered as one piece by agent 'b' with UCX; pass the list that register_memory returned",
    ),
    (
        "deregister a list",
        lambda at: at.b.deregister_memory([(at.p, 8, 0, "")]),
        TypeError,
        "descs is nixlRegDList",
    ),
    ("query by UCX", lambda at: at.a.query_memory(at.registered, "UCX"), b.nixlNotSupportedError, "'POSIX'"),
    ("query by none", lambda at: at.a.query_memory(at.registered, "X"), ValueError, "Backend 'X' not found"),
    (
        "connect to none",
        lambda at: at.a.make_connection("z"),
        b.nixlNotFoundError,
        "known are 'b'; call add_remote",
    ),
    (
        "prepare for none",
        lambda at: at.a.prep_xfer_dlist("z", [(at.p, 8, 0)], "DRAM"),
        b.nixlNotFoundError,
        "'z'",
    ),
    (
        "prepare beyond",
        lambda at: at.a.prep_xfer_dlist("b", [(at.p + 250, 8, 0)], "DRAM"),
        b.nixlNotFoundError,
        "descriptor 0 .8 bytes at .* lies in no registered memory of agent 'b', which has 256 bytes",
    ),
    (
        "strided without a kind",
        lambda at: at.a.prep_xfer_dlist("b", np.zeros((1, 5), np.uint64)),
        ValueError,
        "specify a mem type",
    ),
    (
        "strided floats",
        lambda at: at.a.prep_xfer_dlist("b", np.zeros((1, 5)), "DRAM"),
        ValueError,
        "uint64 or int64, not of float64",
    ),
    ("operation", lambda at: at.a.make_prepped_xfer("RD", at.near, [0], at.far, [0]), KeyError, "RD"),
    (
        "sides",
        lambda at: at.a.make_prepped_xfer("READ", at.far, [0], at.near, [0]),
        b.nixlInvalidParamError,
        "swap the two handles",
    ),
    (
        "index",
        lambda at: at.a.make_prepped_xfer("READ", at.near, [2], at.far, [0]),
        b.nixlInvalidParamError,
        "the local index 2 is out of range; pass indices from 0 to 1",
    ),
    (
        "indices",
        lambda at: at.a.make_prepped_xfer("READ", at.near, [0], at.far, [0, 1]),
        b.nixlInvalidParamError,
        "1 descriptors of this agent and 2 of the other",
    ),
    (
        "floats",
        lambda at: at.a.make_prepped_xfer("READ", at.near, [0.5], at.far, [0]),
        RuntimeError,
        "list or an array",
    ),
    (
        "released list",
        lambda at: (at.near.release(), at.a.make_prepped_xfer("READ", at.near, [0], at.far, [0])),
        b.nixlInvalidParamError,
        "if they were released",
    ),
    (
        "sizes",
        lambda at: at.a.initialize_xfer("READ", at.x((at.p, 8, 0)), at.x((at.p, 4, 0)), "b"),
        b.nixlInvalidParamError,
        "descriptor 0 has 8 bytes here and 4 there",
    ),
    (
        "wraps",
        lambda at: at.a.initialize_xfer("READ", at.x((at.p, 8, 0)), at.x(((1 << 64) - 4, 8, 0)), "b"),
        b.nixlNotFoundError,
        "descriptor 0",
    ),
    (
        "no lists",
        lambda at: at.a.initialize_xfer("READ", None, None, "b"),
        TypeError,
        "local_descs is nixlXferDList",
    ),
    (
        "notification",
        lambda at: at.a.initialize_xfer("READ", at.x((at.p, 8, 0)), at.x((at.p, 8, 0)), "b", 3),
        TypeError,
        "the notification is str or bytes",
    ),
    ("handle", lambda at: at.a.transfer(5), AttributeError, "what an agent returned, not int"),
    (
        "handle of another agent",
        lambda at: at.b.transfer(at.handle),
        b.nixlInvalidParamError,
        "is not a transfer of agent 'b'",
    ),
    (
        "state before a post",
        lambda at: at.a.check_xfer_state(at.handle),
        b.nixlNotPostedError,
        "call transfer",
    ),
    (
        "telemetry",
        lambda at: at.a.get_xfer_telemetry(at.handle),
        b.nixlNoTelemetryError,
        "capture_telemetry=True",
    ),
    (
        "forged handle",
        lambda at: at.a.query_xfer_backend(nixl_xfer_handle(SimpleNamespace(releaseXferReq=int), 77)),
        b.nixlInvalidParamError,
        "77 is not a transfer of agent 'a'",
    ),
    (
        "memory view",
        lambda at: at.a.prep_mem_view(at.x((at.p, 8, 0))),
        b.nixlBackendError,
        "virtual devices do not run",
    ),
    ("notify none", lambda at: at.a.send_notif("z", b"x"), b.nixlNotFoundError, "does not know agent 'z'"),
    ("notify an int", lambda at: at.a.send_notif("b", 3), TypeError, "the message is str or bytes"),
    (
        "notify by a back-end",
        lambda at: at.a.send_notif("b", b"x", "UCX"),
        TypeError,
        "call it without backend",
    ),
    ("notifications of a back-end", lambda at: at.a.get_new_notifs(["X"]), KeyError, "X"),
    (
        "tag",
        lambda at: (at.a.send_notif("b", b"x"), at.b.check_remote_xfer_done("a", "x")),
        TypeError,
        "bytes",
    ),
    (
        "metadata of none",
        lambda at: nixl_agent("c", _BARE).get_agent_metadata(),
        b.nixlInvalidParamError,
        "create_backend",
    ),
    (
        "own metadata",
        lambda at: at.a.add_remote_agent(at.a.get_agent_metadata()),
        b.nixlInvalidParamError,
        "an agent knows itself",
    ),
    (
        "metadata of another type",
        lambda at: at.a.add_remote_agent(3),
        TypeError,
        "the metadata is str or bytes",
    ),
    ("partial metadata", lambda at: at.b.get_partial_agent_metadata([1]), TypeError, "descs is nixlRegDList"),
    (
        "no server",
        lambda at: at.a.send_local_metadata(),
        b.nixlInvalidParamError,
        "no central metadata server",
    ),
    (
        "no server to ask",
        lambda at: at.a.fetch_remote_metadata("b"),
        b.nixlInvalidParamError,
        "pass the address",
    ),
    (
        "no server to tell",
        lambda at: at.a.invalidate_local_metadata(),
        b.nixlInvalidParamError,
        "pass the address",
    ),
    ("agent of another type", lambda at: at.a.remove_remote_agent(3), TypeError, "the agent is str or bytes"),
    (
        "check of another type",
        lambda at: at.a.check_remote_metadata(3),
        TypeError,
        "the agent is str or bytes",
    ),
    ("bytes that are no list", lambda at: at.a.deserialize_descs(b"x"), Exception, "invalid load key"),
]


@pytest.mark.parametrize(
    ("call", "kind", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_nixl_wrong_argument_raises_the_vendors_exception_with_a_sentence(
    at: SimpleNamespace, call: Call, kind: type[BaseException], text: str
) -> None:
    before = at.a.get_agent_metadata()
    with pytest.raises(kind, match=text):
        call(at)
    assert at.a.get_agent_metadata() == before


@pytest.mark.parametrize(
    "descs",
    [[(1, 2, 3, 4)], np.zeros((1, 4), np.uint64), np.zeros(3, np.uint64), [[1, 2, 3]], "abc", [object()]],
)
def test_nixl_arguments_that_are_no_descriptors_are_none_with_a_reason_in_the_log(
    at: SimpleNamespace, descs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert at.a.get_xfer_descs(descs, "DRAM") is None
    assert " NIXL ERROR " in capsys.readouterr().out


def test_nixl_list_of_the_other_class_is_none(at: SimpleNamespace) -> None:
    assert at.a.get_xfer_descs(at.registered) is None
    assert at.a.get_reg_descs(at.registered.trim()) is None


@pytest.mark.parametrize(
    ("row", "kind"),
    [((1, 2), ValueError), ([1, 2, 3], TypeError), ((-1, 2, 3), RuntimeError), ((1.5, 2, 3), RuntimeError)],
)
def test_nixl_descriptor_of_another_shape_is_refused(row: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="descriptor"):
        b.nixlXferDList(b.DRAM_SEG, [row])


def test_nixl_index_beyond_a_list_is_an_index_error() -> None:
    descs = b.nixlXferDList(b.DRAM_SEG, [(1, 2, 3)])
    assert list(descs) == [(1, 2, 3)]
    for call in (lambda: descs[1], lambda: descs.remDesc(1), lambda: descs.__setitem__(4, (1, 2, 3))):
        with pytest.raises(IndexError, match="there are 1 descriptors"):
            call()
    with pytest.raises(b.nixlNotFoundError, match="is not among the 1 descriptors"):
        descs.index((9, 9, 9))


class _Odd:
    """An argument that no method takes."""

    def __repr__(self) -> str:
        return "<odd>"


def _good(at: SimpleNamespace) -> dict[str, list[Any]]:
    """Return arguments that each method takes, for every method with arguments."""
    x, row = at.x((at.p, 8, 0)), [(at.p, 8, 0, "")]
    ucx = ["UCX"]
    return {
        "create_backend": ["POSIX", {}],
        "register_memory": [row, "DRAM", ucx],
        "deregister_memory": [at.registered, ucx],
        "query_memory": [at.registered, "UCX", "DRAM"],
        "make_connection": ["b", ucx],
        "prep_xfer_dlist": ["b", [(at.p, 8, 0)], "DRAM", ucx],
        "estimate_xfer_cost": [at.handle],
        "make_prepped_xfer": ["WRITE", at.near, [0], at.far, [0], b"", ucx, False],
        "initialize_xfer": ["WRITE", x, x, "b", b"", ucx],
        "transfer": [at.handle, b""],
        "check_xfer_state": [at.handle],
        "query_xfer_backend": [at.handle],
        "release_xfer_handle": [at.handle],
        "release_dlist_handle": [at.near],
        "prep_mem_view": [x],
        "release_mem_view": [1],
        "get_new_notifs": [ucx],
        "update_notifs": [ucx],
        "send_notif": ["b", b"x"],
        "get_partial_agent_metadata": [at.registered, True, ucx],
        "add_remote_agent": [b""],
        "remove_remote_agent": ["b"],
        "send_local_metadata": ["127.0.0.1", 1],
        "send_partial_agent_metadata": [at.registered, True, ucx, "127.0.0.1", 1, ""],
        "fetch_remote_metadata": ["b", "127.0.0.1", 1, ""],
        "invalidate_local_metadata": ["127.0.0.1", 1],
        "check_remote_metadata": ["b", x],
        "get_xfer_descs": [[(at.p, 8, 0)], "DRAM"],
        "get_remote_descs": [[(at.p, 8, 0, "b")], "DRAM"],
        "get_reg_descs": [row, "DRAM"],
        "deserialize_descs": [at.a.get_serialized_descs(x)],
    }


#: As on the wheel: telemetry that is off is told first, look-ups of names only warn, anything is pickled, and a tag
#: is looked at when there is a message.
_OTHERWISE = {
    "get_xfer_telemetry",
    "get_plugin_mem_types",
    "get_plugin_params",
    "get_backend_mem_types",
    "get_backend_params",
    "get_serialized_descs",
    "check_remote_xfer_done",
}


def test_nixl_every_method_with_arguments_is_in_the_table_of_wrong_ones(at: SimpleNamespace) -> None:
    takes = {
        name
        for name, each in vars(nixl_agent).items()
        if not name.startswith("_") and callable(each) and each.__code__.co_argcount > 1
    }
    assert takes == {*_good(at), *_OTHERWISE}


@pytest.mark.parametrize("wrong", [_Odd(), 1.5, {"a": 1}, (b"1", 2), np.zeros((2, 2))], ids=repr)
def test_nixl_each_argument_of_each_method_of_another_type_is_refused_with_a_sentence(
    at: SimpleNamespace, wrong: Any
) -> None:
    for method, arguments in _good(at).items():
        for index in range(len(arguments)):
            if isinstance(wrong, float) and (method, index) in (
                ("make_prepped_xfer", 7),
                ("get_partial_agent_metadata", 1),
                ("send_partial_agent_metadata", 1),
            ):
                continue  # a flag
            called = f"{method}, argument {index}: {wrong!r}"
            values = [*arguments[:index], wrong, *arguments[index + 1 :]]
            try:
                returned = getattr(at.a, method)(*values)
            except (TypeError, ValueError, LookupError, AttributeError, RuntimeError, Failure) as error:
                assert len(str(error).split()) >= 3, f"{called}: {error!r}"
            except pickle.UnpicklingError:
                assert method == "deserialize_descs", called
            else:  # the reason is in the log
                assert method.endswith("_descs"), called
                assert returned is None, called


@pytest.mark.parametrize(
    "name, value, kept",
    [
        ("captureTelemetry", None, False),
        ("captureTelemetry", 1, True),
        ("useProgThread", np.int64(0), False),
        ("useListenThread", np.True_, True),
        ("listenPort", np.int64(3), 3),
        ("pthrDelay", True, 1),
        ("etcdWatchTimeout", 2.5, timedelta(seconds=2, milliseconds=500)),
    ],
)
def test_nixl_agent_config_keeps_a_value_of_its_own_type(name: str, value: object, kept: object) -> None:
    config = b.nixlAgentConfig()
    setattr(config, name, value)
    assert (getattr(config, name), type(getattr(config, name))) == (kept, type(kept))


@pytest.mark.parametrize(
    "name, value",
    [
        *itertools.product(
            ("captureTelemetry", "useProgThread", "useListenThread"), ([], "yes", {}, object())
        ),
        *itertools.product(("listenPort", "pthrDelay"), (2.5, None, "5", -1, 1 << 70)),
        *itertools.product(("etcdWatchTimeout",), (5, None, "x")),
    ],
)
def test_nixl_agent_config_refuses_a_value_of_another_type(name: str, value: object) -> None:
    config = b.nixlAgentConfig()
    before = getattr(config, name)
    with pytest.raises(TypeError, match=name):
        setattr(config, name, value)
    assert getattr(config, name) == before


def test_nixl_agent_refuses_a_list_of_backends_as_capture_telemetry() -> None:
    with pytest.raises(TypeError, match="captureTelemetry is bool, not list"):
        nixl_agent("a", nixl_agent_config(False, False, 0, []))  # type: ignore[arg-type]
