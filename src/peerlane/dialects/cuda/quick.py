"""What native code may know of a thread, so that it answers the next call of a kind without Python."""

from __future__ import annotations

from peerlane.backend import host
from peerlane.dialects._shared.c_library import Words
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.streams import callbacks


def learn_thread(then: int, _: Words = ()) -> bool:
    """Tell native code of this thread's device and null stream, as of a state; return whether it may know them."""
    context = machine.context()
    if not machine.is_native(context) or gpu.streams.captures.begun:
        return False
    device = machine.id_of(context.device.ordinal)
    host.know_c_thread("cuda", then, device, bool(machine.registrations), machine.has_pools)
    if context.default_stream is not None:
        host.know_c_stream("cuda", then, 0, context.default_stream.neutral)
    return True


def learn_stream(then: int, words: Words) -> bool:
    """Tell native code of the stream whose handle is the last word, too."""
    handle = words[-1]
    if not learn_thread(then) or handle not in machine.resources:
        return False
    host.know_c_stream("cuda", then, handle, gpu.streams.of(handle).neutral)
    return True


def learn_calls(then: int, words: Words) -> None:
    """Tell native code where host functions of a stream, the first word, wait."""
    if learn_stream(then, words[:1]) if words[0] else learn_thread(then):
        host.know_c_callbacks("cuda", then, callbacks.runner.queue())
