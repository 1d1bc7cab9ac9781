"""A process that can never go on gets a Deadlock within 2 s; a process that may go on waits."""

from __future__ import annotations

import os
import textwrap
import time

import pytest

from helpers.prepared import run_python

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]

SECONDS = 2.0  # the promise
LOADED = 5 * SECONDS
HEAD = """
import os, pickle, signal, sys, threading, time
import peerlane as pl
from peerlane import dialects

d = pl.devices()[0]
began = time.monotonic()

def told(error):
    assert isinstance(error, pl.Deadlock) and isinstance(error, pl.Busy) and error.fault is pl.Fault.DEADLOCK
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.detail) == (pl.Deadlock, str(error), error.detail)
    return error
"""
#: Programs that cannot go on; each checks the detail and the text of its Deadlock.
HANGS = {
    "a word that nobody writes": """
s, b = d.create_stream(), d.allocate(8)
b.fill(0)
pl.raw.wait_value(b.address, 1, stream=s)  # here
try:
    s.sync()
except pl.Error as error:
    (wait,) = told(error).detail.streams
    assert (wait.stream, wait.what, wait.submitted_at) == (s.id, "value", HERE)
    assert "writes the word of memory" in str(error) and HERE in str(error), error
b.fill(1)
s.sync(timeout=20)
""",
    "two streams that wait for one another's words": """
s, t, b = d.create_stream(), d.create_stream(), d.allocate(16)
b.fill(0)
for stream, own, other in ((s, 0, 8), (t, 8, 0)):
    pl.raw.wait_value(b.address + own, 1, stream=stream)
    pl.raw.write_value(b.address + other, 1, stream=stream)
try:
    t.sync()
except pl.Error as error:
    assert {each.what for each in told(error).detail.streams} == {"value"}
b.fill(1)
s.sync(timeout=20), t.sync(timeout=20)
""",
    "a notify that nobody records": """
s, n = d.create_stream(), d.create_notify()
s.wait(n)  # here
try:
    s.sync()
except pl.Error as error:
    state = told(error).detail
    (wait,) = state.streams
    assert (state.stream, wait.stream, wait.notify, wait.what) == (s.id, s.id, n.id, "notify")
    assert wait.submitted_at == HERE and state.threads[0].thread == "MainThread"
    assert f"records notify {n.id}" in str(error) and HERE in str(error), error
n.record()
s.sync(timeout=20)
""",
    "an event behind it": """
s, t, n = d.create_stream(), d.create_stream(), d.create_notify()
s.wait(n)
t.wait(s)
e = t.record()
try:
    e.sync()
except pl.Error as error:
    state = told(error).detail
    assert state.threads[0].stream == t.id
    assert state.notify_in_the_way() == n.id and [each.stream for each in state.streams] == [t.id, s.id]
s.abort()
""",
    "two streams that wait for one another": """
s, t, m, n = d.create_stream(), d.create_stream(), d.create_notify(), d.create_notify()
s.wait(m)
s.notify(n)
t.wait(n)
t.notify(m)
try:
    s.sync()
except pl.Error as error:
    state = told(error).detail
    assert state.why == "circle" and {each.notify for each in state.streams} == {m.id, n.id}
s.abort()
t.abort()
""",
    "two streams whose records come later": """
s, t, m, n = d.create_stream(), d.create_stream(), d.create_notify(), d.create_notify()
s.wait(m)
t.wait(n)
try:
    s.sync()
    t.notify(m)
    t.sync()
except pl.Error as error:
    state = told(error).detail
    assert state.why == "never" and state.stream == s.id and len(state.streams) == 2
s.abort()
t.abort()
""",
    "threads that all wait": """
streams, notifies, found = [d.create_stream() for _ in range(3)], [d.create_notify() for _ in range(3)], []
def waits(s, n):
    s.wait(n)
    try:
        s.sync()
    except pl.Error as error:
        found.append(told(error))
threads = [threading.Thread(target=waits, args=each, name=f"T{each[0].id}") for each in zip(streams, notifies)]
for each in threads: each.start()
for each in threads: each.join()
assert len(found) == 3
assert {each.thread for each in found[0].detail.threads} == {each.name for each in threads}
for each in streams: each.abort()
""",
    "a stream that failed before": """
s, t, m, n = d.create_stream(), d.create_stream(), d.create_notify("strict"), d.create_notify()
s.notify(m)
s.notify(m)  # here
s.notify(n)
t.wait(n)
try:
    t.sync()
except pl.Error as error:
    (failed,) = told(error).detail.failed
    assert (failed.stream, failed.operation, failed.submitted_at) == (s.id, 2, HERE)
    assert f"stream {s.id} failed before, and nobody synchronized it" in str(error), error
t.abort()
try:
    s.sync()
except pl.Busy as error:
    assert error.fault is pl.Fault.NOTIFY_DOUBLED
""",
    "a stream whose failure was reported": """
s, t, m, n = d.create_stream(), d.create_stream(), d.create_notify("strict"), d.create_notify()
s.notify(m)
s.notify(m)  # here
s.notify(n)
try:
    s.sync()
except pl.Busy as error:
    assert error.fault is pl.Fault.NOTIFY_DOUBLED
t.wait(n)
try:
    t.sync()
except pl.Error as error:
    (failed,) = told(error).detail.failed
    assert (failed.stream, failed.operation, failed.submitted_at, failed.was_reported) == (s.id, 2, HERE, True)
    assert f"stream {s.id} failed before, and a synchronization reported it" in str(error), error
t.abort()
""",
    "a callback that waits": """
s, t, n, found = d.create_stream(), d.create_stream(), d.create_notify(), []
def waits():
    try:
        s.sync()  # here
    except pl.Error as error:
        found.append(told(error))
s.wait(n)
t.launch_callback(waits)
try:
    t.sync()
except pl.Error as error:
    state = told(error).detail
    assert {each.stream for each in state.threads} == {s.id, t.id}
    assert f"peerlane callbacks at {HERE} waits for stream {s.id}" in str(error), error
t.sync(timeout=20)
assert len(found) == 1
s.abort()
""",
    "NumPy has made its threads": """
import numpy
numpy.ones((1000, 1000)) @ numpy.ones((1000, 1000))
s, n = d.create_stream(), d.create_notify()
s.wait(n)
assert len(os.listdir("/proc/self/task")) > threading.active_count(), "NumPy made no thread"
try:
    s.sync()
except pl.Error as error:
    told(error)
s.abort()
""",
    "faulthandler watches": """
import faulthandler
faulthandler.dump_traceback_later(300)
s, n = d.create_stream(), d.create_notify()
s.wait(n)
try:
    s.sync()
except pl.Error as error:
    told(error)
s.abort()
""",
    "acl": """
dialects.install("acl")
import acl
assert acl.init() == 0 and acl.rt.set_device(0) == 0
n, code = acl.rt.create_notify(0)
s, code = acl.rt.create_stream()
assert acl.rt.wait_and_reset_notify(n, s, 0) == 0  # here
assert acl.rt.synchronize_stream(s) == 507046
text = acl.get_recent_err_msg()
assert "a deadlock" in text and f"notify {n:#x}" in text and f"stream {s:#x}" in text and HERE in text, text
assert acl.rt.destroy_stream_force(s) == 0
""",
    "hip": """
dialects.install("hip")
from hip import hip
e, h, n = pl.devices()[0], None, d.create_notify()
err, s = hip.hipStreamCreate()
from peerlane.dialects.hip.state import machine
machine.resources[int(s)].neutral.wait(n)
(err,) = hip.hipStreamSynchronize(s)
assert err == hip.hipError_t.hipErrorLaunchTimeOut, err
n.record()
assert hip.hipStreamSynchronize(s)[0] == hip.hipError_t.hipSuccess
""",
}
#: Makes a native thread, which Python does not know, and which calls a function of Python in 3 s.
NATIVE = """
import ctypes
Called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("kind", ctypes.c_int), ("function", Called),
                ("rest", ctypes.c_byte * 40)]
libc, timer, function = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p(), Called(lambda _: n.record())
event = Event(kind=2, function=function)  # SIGEV_THREAD
assert libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer)) == 0
assert libc.timer_settime(timer, 0, ctypes.byref((ctypes.c_long * 4)(0, 0, 3, 0)), None) == 0
"""
#: Makes a native thread that sleeps; the main thread waits for it in a thread that ends after it.
SLEEPS = """
import ctypes
libc, made = ctypes.CDLL(None), ctypes.c_ulong()
assert libc.pthread_create(ctypes.byref(made), None, libc.sleep, ctypes.c_void_p(3)) == 0
class Joins(threading.Thread):
    def run(self):
        libc.pthread_join(made, None)
        n.record()
Joins().start()
"""
#: Programs that may still go on: each line records the notify later.
GOES_ON = {
    "a thread that sleeps": "threading.Thread(target=lambda: (time.sleep(3), n.record())).start()",
    "a daemon": "threading.Thread(target=lambda: (time.sleep(3), n.record()), daemon=True).start()",
    "a timer": "threading.Timer(3, n.record).start()",
    "a thread that reads": "r, w = os.pipe(); threading.Thread(target=lambda: (os.read(r, 1), n.record())).start();"
    "threading.Timer(3, os.write, (w, b'x')).start()",
    "a native thread that calls Python": NATIVE,
    "a thread that waits for a native thread": SLEEPS,
    "a callback": "t.launch_callback(lambda: (time.sleep(3), n.record()))",
    "a handler of a signal": "signal.signal(signal.SIGALRM, lambda *_: n.record()); signal.alarm(3)",
    "queued work": "t.launch_callback(time.sleep, 3); t.notify(n)",
    "an exported notify": "h = n.export(allow='user'); import subprocess;"
    "c = subprocess.Popen([sys.executable, '-c', 'import peerlane as pl, sys, time; time.sleep(3);'"
    "'pl.Notify.open(sys.argv[1]).record()', bytes(h).decode()])",
    "a join with a timeout": "w = threading.Thread(target=s.sync); w.start(); w.join(3); n.record()",
    "a word that another process may write": "b = d.allocate(8); b.fill(0); h = b.export(allow='user');"
    "pl.raw.wait_value(b.address, 1, stream=t); e = t.record(); u = d.create_stream(); u.wait(e); u.notify(n);"
    "import subprocess; c = subprocess.Popen([sys.executable, '-c', 'import peerlane as pl, sys, time;'"
    "'time.sleep(3); pl.Buffer.open(sys.argv[1]).fill(1)', bytes(h).decode()])",
    "a word of memory": "b = d.allocate(8); b.fill(0); pl.raw.wait_value(b.address, 1, stream=t);"
    "e = t.record(); u = d.create_stream(); u.wait(e); u.notify(n);"
    "threading.Timer(3, lambda: b.fill(1)).start()",
}


def _run(code: str, schedule: str) -> float:
    source = HEAD + textwrap.dedent(code)
    line = next((number for number, text in enumerate(source.splitlines(), 1) if "# here" in text), 0)
    source = source.replace("HERE", repr(f"<string>:{line}"))
    env = {**os.environ, "PEERLANE_SCHEDULE": schedule, "OPENBLAS_NUM_THREADS": "2"}
    began = time.monotonic()
    done = run_python(["-c", source], timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
@pytest.mark.parametrize("name", HANGS)
def test_sync_in_process_that_cannot_go_on_raises_deadlock(name: str, schedule: str) -> None:
    tail = f"\nseconds = time.monotonic() - began\nassert seconds < {LOADED}, seconds"
    print(f"the process ended after {_run(HANGS[name] + tail, schedule):.2f} s")


@pytest.mark.parametrize("name", GOES_ON)
def test_sync_in_process_that_may_go_on_waits_and_succeeds(name: str) -> None:
    setup = "c = None\ns, t, n = d.create_stream(), d.create_stream(), d.create_notify()\ns.wait(n)\n"
    _run(f"{setup}{GOES_ON[name]}\ns.sync()\nassert c is None or c.wait(20) == 0\n", "eager")


@pytest.mark.parametrize("wait", ["s.wait(n, timeout=3); s.sync()", "s.wait(n); s.sync(timeout=3)"])
def test_wait_with_timeout_raises_wait_timeout_and_no_deadlock(wait: str) -> None:
    code = f"""
    s, n = d.create_stream(), d.create_notify()
    try:
        {wait}
    except pl.WaitTimeout as error:
        assert 3 <= time.monotonic() - began < 20
        s.abort()
    else:
        raise AssertionError
    """
    _run(textwrap.dedent(code), "eager")


def test_wait_that_looks_for_deadlock_keeps_no_variables_of_program() -> None:
    code = """
    import gc, weakref

    class Variable:
        pass

    def waits():
        variable = Variable()
        try:
            s.sync()
        except pl.Deadlock:
            return weakref.ref(variable)

    s = d.create_stream()
    s.wait(d.create_notify())
    gc.disable()
    assert waits()() is None
    """
    _run(textwrap.dedent(code), "eager")
