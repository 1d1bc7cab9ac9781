"""Contexts: the primary one of each device, created ones, and the stack of them that each thread has."""

from __future__ import annotations

import threading

from peerlane import Device
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason

_FIRST, _STEP = 1 << 61, 64  # numbers of primary contexts, which no address and no other handle has


class _Stack(threading.local):
    """The contexts that a thread pushed, the newest last, on one node."""

    def __init__(self) -> None:
        self.node: object = None
        self.contexts: list[Context] = []


class _References(dict[int, int]):
    """By device number: the references to primary contexts that were reset, and not used since."""


class Contexts:
    """The contexts of a vendor's program.

    A created context is one of its own, or the primary one of its device: the policy decides.
    """

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        self._stack = _Stack()

    def of(self, handle: int, reason: Reason = Reason.INVALID_CONTEXT) -> Context:
        """Return the context of a number; refuse other numbers for a reason."""
        ordinal, rest = divmod(handle - _FIRST, _STEP)
        if not rest and 0 <= ordinal < len(self._machine.devices()):
            if self._machine.has_primary(ordinal) or not self._machine.vendor.policy.needs_context:
                return self._machine.context_of(ordinal)
            if self._machine.table(_References).get(ordinal):
                return self._anew(ordinal)
            raise self._machine.vendor.refusal(
                reason,
                f"the primary context of device {self._machine.id_of(ordinal)} has ended",
                "retain it as long as it is used",
            )
        context = self._machine.resources.get(handle)
        if isinstance(context, Context):
            return context
        cause = f"{handle:#x} is not a context" if handle else "the context is NULL"
        raise self._machine.vendor.refusal(reason, cause, "pass what {create_context} returned")

    @staticmethod
    def handle_of(context: Context) -> int:
        """Return the number by which the program knows a context."""
        return _FIRST + _STEP * context.device.ordinal if context.is_primary else context.handle

    def retain(self, device: Device) -> Context:
        """Return the primary context of a device, with one more reference; no thread gets it."""
        machine = self._machine
        with machine.lock:
            is_new = not machine.has_primary(device.ordinal)
            context = self._anew(device.ordinal) if is_new else machine.context_of(device.ordinal)
            context.references += 1
        return context

    def _anew(self, ordinal: int) -> Context:
        """Return a new primary context with the references of one that was reset."""
        machine = self._machine
        with machine.lock:
            context = machine.context_of(ordinal)
            context.references = machine.table(_References).pop(ordinal, 0)
        return context

    def release(self, device: Device) -> bool:
        """Drop a reference to the primary context of a device; the last one ends it.  False: there was none."""
        machine, references = self._machine, self._machine.table(_References)
        with machine.lock:
            if references.get(device.ordinal):
                references[device.ordinal] -= 1
                return True
        return machine.release(device.ordinal)

    def reset(self, device: Device) -> None:
        """End all that the primary context of a device has; the references to it stay (facts/cuda 2.2)."""
        machine = self._machine
        with machine.lock:
            context = machine.context_of(device.ordinal) if machine.has_primary(device.ordinal) else None
            if context is not None:
                machine.table(_References)[device.ordinal] = context.references
        machine.release(device.ordinal, all_references=True)

    def create(self, device: Device, flags: int) -> Context:
        """Create a context, make it current and push it."""
        machine = self._machine
        machine.flags[device.ordinal] = flags
        if machine.vendor.policy.own_contexts:
            context = machine.create_context(device.ordinal)
        else:
            context = machine.context_of(device.ordinal)
        self.push(context)
        return context

    def destroy(self, context: Context, call: str) -> None:
        """Pop a context if it is the newest; end it with its streams and events if it is one of its own.

        ``call`` is the vendor's name of the call.
        """
        pushed = self._pushed()
        if pushed and self.handle_of(pushed[-1]) == self.handle_of(context):
            pushed.pop()
        if not context.is_primary:
            self._machine.end_context(context, call)
            self._machine.enter_context(pushed[-1] if pushed else None)

    def push(self, context: Context) -> None:
        """Make a context current and push it."""
        self._pushed().append(context)
        self._machine.enter_context(context)

    def pop(self) -> Context:
        """Pop the newest context and return it; the one below becomes current.  ``INVALID_CONTEXT`` if there is none.

        Without one below the thread keeps its device, if the vendor needs no context.
        """
        pushed = self._pushed()
        if not pushed:
            raise self._machine.vendor.refusal(
                Reason.INVALID_CONTEXT, "this thread pushed no context", "push one before"
            )
        context = pushed.pop()
        if pushed:
            self._machine.enter_context(pushed[-1])
        elif self._machine.vendor.policy.needs_context:
            self._machine.enter_context(None)
        return context

    def replace(self, context: Context | None) -> None:
        """Replace the newest context and make the new one current; None drops the newest."""
        pushed = self._pushed()
        if context is not None:
            pushed[-1:] = [context]
            self._machine.enter_context(context)
        elif self._machine.vendor.policy.needs_context and pushed:
            self.pop()
        else:
            del pushed[-1:]

    def newest(self) -> Context:
        """Return the newest context of this thread, or that of its device; refused as ``GpuMachine.context``."""
        pushed = self._pushed()
        return pushed[-1] if pushed else self._machine.context()

    def _pushed(self) -> list[Context]:
        node, stack = self._machine.devices(), self._stack
        if stack.node is not node:
            stack.node, stack.contexts = node, []
        return stack.contexts
