"""The public surface: names, docstrings and stubs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import peerlane
from helpers.promises import Node

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "peerlane"
MODULES = sorted(PACKAGE.rglob("*.py"))


def test_public_names_are_sorted_and_documented() -> None:
    assert peerlane.__all__ == sorted(peerlane.__all__)
    for name in peerlane.__all__:
        public = getattr(peerlane, name)
        assert inspect.getdoc(public), f"{name} has no docstring"
        if inspect.isclass(public):
            for attribute, member in vars(public).items():
                if not attribute.startswith("_") and (callable(member) or isinstance(member, property)):
                    assert inspect.getdoc(getattr(public, attribute)), f"{name}.{attribute} has no docstring"


# All public attributes, so that no inherited native helper becomes a name that programs use.
ATTRIBUTES = {
    peerlane.Buffer: "address close copy_from copy_to device export fill id is_closed is_imported last_address "
    "nbytes open reading route_to size tensor view writable_address writing",
    peerlane.Device: "allocate backend can_access caps create_event create_notify create_stream free_bytes "
    "granularity info is_closed link name ordinal peers sync total_bytes uuid why_not",
    peerlane.Stream: "abort close completed device id is_closed is_done launch_callback notify on_error record "
    "submitted sync wait",
    peerlane.Event: "close device export fileno id is_closed is_done is_recorded open sync time_ns",
    peerlane.Notify: "close consumed device export id is_closed kind open promise record recorded reset",
    peerlane.StreamGroup: "close create_stream default device is_closed is_idle",
    peerlane.Physical: "close device export export_fd id is_closed is_imported is_read_only open open_fd size",
    peerlane.AddressRange: "access address close device grow is_closed map mappings set_access size unmap",
    peerlane.Handle: "allow close importers is_closed",
    peerlane.Group: "all_gather all_gather_v all_reduce all_to_all all_to_all_v barrier broadcast channel channels "
    "close deregister is_closed recv reduce reduce_scatter reduce_scatter_v register scatter send",
    peerlane.Channel: "close drain fence is_closed notified notifies notify peer_notifies read read_blocks "
    "read_reduce route wait write write_blocks write_reduce",
}


@pytest.mark.parametrize("kind", ATTRIBUTES, ids=lambda kind: str(kind.__name__))
def test_public_attributes_of_class_match_the_list(kind: type) -> None:
    assert [name for name in dir(kind) if not name.startswith("_")] == ATTRIBUTES[kind].split()


def test_import_peerlane_and_copy_bytes_leave_numpy_unimported() -> None:
    # It is two thirds of the time that a process would take to start.
    program = """
import sys, peerlane as pl
one, other = pl.enter_node("devices=2")
a, b, stream = one.allocate(64), other.allocate(64), one.create_stream()
one.peers.add(other)
pl.copy(a, bytes(range(64)))
pl.copy(b, a, stream=stream)
stream.sync()
assert bytes(b) == bytes(range(64))
print("numpy" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=60, check=True, capture_output=True)
    assert done.stdout == b"False\n"


@pytest.mark.parametrize("module", ["_core", "_check"])
def test_stub_matches_runtime_module(module: str, tmp_path: Path) -> None:
    fresh = tmp_path / f"{module}.pyi"
    patterns = ROOT / "native" / "python" / "stub.pat"
    words = ["nanobind.stubgen", "-q", "-P", "-m", f"peerlane.{module}", "-p", str(patterns)]
    subprocess.run([sys.executable, "-m", *words, "-o", str(fresh)], timeout=60, check=True)
    assert _members(fresh) == _members(PACKAGE / f"{module}.pyi"), "run `make stubs`"


def _is_buffer(member: ast.stmt) -> bool:
    # The type slots of the buffer protocol are visible as methods from Python 3.12 on.
    return isinstance(member, ast.FunctionDef) and member.name in ("__buffer__", "__release_buffer__")


def _members(stub: Path) -> list[str]:
    """Return the stub's statements, those of classes too, in an order that does not depend on Python's."""
    members = []
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ClassDef):
            members += [
                f"{node.name}: {ast.unparse(member)}" for member in node.body if not _is_buffer(member)
            ]
        elif not isinstance(node, (ast.Import, ast.ImportFrom)):
            members.append(ast.unparse(node))
    return sorted(members)


def test_import_enters_no_node_and_starts_no_thread() -> None:
    code = (
        "import threading, os, peerlane, peerlane.backend.registry as r;"
        "print(r.is_entered(), threading.active_count(), len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split()[0] == "False"
    assert done.stdout.split()[1] == "1"


def test_attributes_of_memory_and_streams_cannot_be_set(node: Node) -> None:
    device, *_ = node("devices=2")
    with device.allocate(64) as buffer, peerlane.StreamGroup(device) as streams:
        stream = streams.create_stream()
        physical = peerlane.Physical(device, device.granularity)
        reserved = peerlane.AddressRange(device, device.granularity)
        several = [buffer, stream, stream.record(), device.create_notify(), streams, physical, reserved]
        for owner in several:
            for name in {name for name in dir(owner) if not name.startswith("_")} - {"on_error"}:
                if not callable(getattr(owner, name)):
                    with pytest.raises(AttributeError):
                        setattr(owner, name, None)
        reserved.close()
        physical.close()
