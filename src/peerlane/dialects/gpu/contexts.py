"""Contexts: the primary one of each device, created ones, and the stack of them that each thread has."""

from __future__ import annotations

from peerlane import Device
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason


class _References(dict[int, int]):
    """By device number: the references to primary contexts that were reset, and not used since."""


class _OwnFlags(dict[int, int]):
    """By handle: the flags of the contexts that the program made."""


class Contexts:
    """The contexts of a vendor's program.

    A created context is one of its own, or the primary one of its device: the policy decides.
    """

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine

    def of(self, handle: int, reason: Reason = Reason.INVALID_CONTEXT) -> Context:
        """Return the context of a number; refuse other numbers for a reason."""
        machine = self._machine
        ordinal = machine.primary_ordinal(handle)
        if ordinal is not None:
            if machine.has_primary(ordinal) or not machine.vendor.policy.needs_context:
                return machine.context_of(ordinal)
            with machine.lock:
                if machine.table(_References).get(ordinal):
                    return self._anew(ordinal, 0)
            raise machine.vendor.refusal(
                reason,
                f"the primary context of device {machine.id_of(ordinal)} has ended",
                "retain it as long as it is used",
            )
        context = machine.context_with(handle)
        if context is not None:
            return context
        cause = f"{handle:#x} is not a context" if handle else "the context is NULL"
        raise machine.vendor.refusal(reason, cause, "pass what {create_context} returned")

    def retain(self, device: Device) -> Context:
        """Return the primary context of a device, with one more reference; no thread gets it."""
        machine = self._machine
        with machine.lock:
            if not machine.has_primary(device.ordinal):
                return self._anew(device.ordinal, 1)
            context = machine.context_of(device.ordinal)
            context.native.retain()
        return context

    def _anew(self, ordinal: int, more: int) -> Context:
        """Return a new primary context with the references of one that was reset, and more; the lock is held."""
        machine = self._machine
        references = machine.table(_References).pop(ordinal, 0) + more
        context = machine.context_of(ordinal)  # it has its first reference
        for _ in range(1, references):
            context.native.retain()
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
                machine.table(_References)[device.ordinal] = context.native.references
        machine.release(device.ordinal, all_references=True)

    def create(self, device: Device, flags: int) -> Context:
        """Create a context, make it current and push it."""
        machine = self._machine
        if machine.vendor.policy.own_contexts:
            context = machine.create_context(device.ordinal)
        else:
            context = machine.context_of(device.ordinal)
        self.set_flags(context, flags)
        self.push(context)
        return context

    def destroy(self, context: Context, call: str) -> None:
        """Pop a context if it is the newest; end it with its streams and events if it is one of its own.

        ``call`` is the vendor's name of the call.
        """
        newest = self._machine.pushed.newest()
        if newest is not None and newest[0] == context.handle:
            self._machine.pushed.pop()
        if not context.is_primary:
            self._machine.table(_OwnFlags).pop(context.handle, None)
            self._machine.end_context(context, call)

    def flags(self, context: Context) -> int:
        """Return the flags of a context."""
        if context.is_primary:
            return self._machine.flags.get(context.device.ordinal, 0)
        return self._machine.table(_OwnFlags).get(context.handle, 0)

    def set_flags(self, context: Context, flags: int) -> None:
        """Set the flags of a context."""
        if context.is_primary:
            self._machine.flags[context.device.ordinal] = flags
        else:
            self._machine.table(_OwnFlags)[context.handle] = flags

    def push(self, context: Context) -> None:
        """Make a context current and push it."""
        self._machine.pushed.push(context.native)
        self._machine.enter_context(context)

    def pop(self) -> int:
        """Pop the newest context and return its handle; the one below becomes current.

        ``INVALID_CONTEXT`` if there is none.  Without one below the thread keeps its device, if the vendor needs no
        context.
        """
        machine = self._machine
        handle: int = machine.pushed.pop()
        if not handle:
            raise machine.vendor.refusal(
                Reason.INVALID_CONTEXT, "this thread pushed no context", "push one before"
            )
        below = None if machine.vendor.policy.needs_context else machine.pushed.newest()
        if below is not None:
            machine.enter_context(self.of(below[0]))
        return handle

    def replace(self, context: Context | None) -> None:
        """Replace the newest context and make the new one current; None drops the newest."""
        self._machine.pushed.pop()
        if context is not None:
            self.push(context)

    def newest(self) -> int:
        """Return the handle of the newest context of this thread, or of that of its device; refused as
        ``GpuMachine.context``.
        """
        newest = self._machine.pushed.newest()
        return int(newest[0]) if newest is not None else self._machine.context().handle
