"""Right programs do under ``peerlane check`` what they do without it: the same output and the same exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

SHARED = """\
import multiprocessing as mp
from multiprocessing import shared_memory
import peerlane

def work(queue, value, array, barrier, lock, condition, name):
    memory = shared_memory.SharedMemory(name)
    memory.buf[0] = 7
    memory.close()
    with lock, value.get_lock():
        value.value += 1
        array[1] = 5
    barrier.wait(60)
    queue.put("done")

def square(number):
    return number * number

class Own:
    def __init__(self, number):
        self.number = number

if __name__ == "__main__":
    context = mp.get_context(METHOD)
    with context.Manager() as manager:
        shared, names, lock, gate = manager.dict(a=1), manager.list([1]), manager.RLock(), manager.Event()
        with lock:
            shared["b"] = 2
        gate.set()
        kept = manager.Queue()
        kept.put(3)
        print(dict(shared), list(names), gate.wait(60), kept.get(timeout=60), manager.Namespace())
        barrier, condition = manager.Barrier(1), manager.Condition()
        print(barrier.wait(60), condition.acquire(), condition.release())
    memory = shared_memory.SharedMemory(create=True, size=8)
    queue, value, array = context.Queue(), context.Value("i", 0), context.Array("i", 3)
    arguments = queue, value, array, context.Barrier(2), context.RLock(), context.Condition(), memory.name
    children = [context.Process(target=work, args=arguments) for _ in range(2)]
    for child in children:
        child.start()
    print([queue.get(timeout=60) for _ in children])
    for child in children:
        child.join(60)
    print([child.exitcode for child in children], value.value, list(array), memory.buf[0])
    memory.close()
    memory.unlink()
    with context.Pool(2) as pool:
        print(pool.map(square, range(4)), pool.apply_async(square, (9,)).get(60))
        print([(each.number, isinstance(each, Own)) for each in pool.map(Own, range(2))])
"""

LOCKS = """\
import copy, inspect, pickle, threading, weakref
import _thread
import peerlane

def refused(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)
    return "nothing"

for make in (threading.Lock, threading.RLock):
    lock = make()
    print(refused(pickle.dumps, lock), refused(copy.copy, lock), refused(copy.deepcopy, lock))
    print(refused(lock.release), refused(setattr, lock, "name", 1)[0], weakref.ref(lock)() is lock)
    print(type(lock).__module__ in ("_thread", "threading"), repr(lock).partition(" at ")[0].partition(" object")[0])
    print(refused(type(lock)), type(lock).__name__ in ("lock", "RLock"))
    print(pickle.loads(pickle.dumps(make)) is make, lock.acquire(timeout=1), lock.release())
    print(copy.deepcopy(make) is make, hash(lock) == hash(lock), lock == lock, lock == make(), bool(lock))
print(isinstance(threading.Lock(), _thread.LockType), isinstance(threading.RLock(), _thread.RLock))
print(inspect.isfunction(threading.RLock), threading.RLock.__module__, threading.RLock.__qualname__)
holder = type("Holder", (), {"lock": threading.Lock})
print(holder().lock().acquire())
condition = threading.Condition(threading.RLock())
with condition:
    print(condition.wait(0.01))
"""

QUEUES = """\
import gc, pickle, queue, signal, threading, weakref
import peerlane

items = queue.SimpleQueue()
print(pickle.loads(pickle.dumps(queue.SimpleQueue)) is queue.SimpleQueue, isinstance(items, queue.SimpleQueue))

class Ends:
    def __del__(self):
        items.put("ended")

def put(*_):
    items.put("signal")

gc.set_threshold(1)  # destructors run at any allocation, also of a put that goes on
for _ in range(200):
    cycle = Ends()
    cycle.self = cycle
    del cycle
    items.put("own")
gc.set_threshold(700)
gc.collect()
signal.signal(signal.SIGALRM, put)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
for _ in range(20000):
    items.put("own")
    items.get()
signal.setitimer(signal.ITIMER_REAL, 0)
counts = {"own": 0, "ended": 0, "signal": 0}
while not items.empty():
    counts[items.get_nowait()] += 1
print(counts["ended"] <= 200, items.qsize())
try:
    items.get(timeout=0.01)
except queue.Empty as error:
    print("empty", repr(error))
print(weakref.ref(items)() is items)
"""

ERRORS = """\
import asyncio, inspect, logging, multiprocessing, os, pickle, queue, subprocess, sys, threading, traceback
from multiprocessing import connection, synchronize
import peerlane

logging.basicConfig(stream=sys.stdout, format="%(message)s")

def show(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except Exception:
        logging.exception("error")

show(threading.Lock().release)
show(threading.RLock().release)
show(threading.Thread().join)
show(queue.SimpleQueue().get_nowait)
show(queue.SimpleQueue().get, timeout=0.01)
show(queue.Queue().get, timeout=0.01)
show(subprocess.run, ["/no/such/program"])
show(os.stat, "/no/such/file")
show(os.open, "no/such/file", os.O_RDONLY, dir_fd=os.open("/", os.O_RDONLY))
show(os.waitpid, 0, 0)
show(multiprocessing.Lock().release)
show(multiprocessing.Lock().acquire, "yes", "no")

def released_twice(lock):
    with lock:
        lock.release()

for lock in (threading.Lock(), threading.RLock(), multiprocessing.Lock(), multiprocessing.RLock()):
    show(released_twice, lock)
one, other = multiprocessing.Pipe()
other.close()
show(one.recv)
show(one.send, 1)

def stack():
    traceback.print_stack(file=sys.stdout, limit=3)
    raise ValueError("in a thread")

threading.excepthook = lambda about: traceback.print_exception(about.exc_value, file=sys.stdout)
thread = threading.Thread(target=stack)
thread.start()
thread.join()
show(thread.start)

async def work():
    pass

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: traceback.print_exception(about["exception"], file=sys.stdout))
    loop.set_debug(True)
    loop.slow_callback_duration = 60  # else a busy machine prints how long a callback took
    show(loop.call_soon_threadsafe, work)
    show(loop.call_soon_threadsafe, None)
    loop.call_soon_threadsafe(stack)
    await asyncio.sleep(0.01)

asyncio.run(main())
kinds = threading.Thread, subprocess.Popen, connection.Connection, synchronize.SemLock
for name in "start join is_alive __init__ wait poll _send_bytes _recv_bytes __enter__ __exit__".split():
    for kind in kinds:
        if (call := vars(kind).get(name)) is not None:
            print(call.__module__, call.__name__, call.__qualname__, inspect.signature(call), call.__doc__)
for call in (os.stat, os.open, os.pipe, os.waitpid, connection.Pipe):
    print(call.__name__, inspect.signature(call), pickle.loads(pickle.dumps(call)) is call)
"""


REFERENCES = """\
import sys
import numpy as np
import peerlane

block = np.arange(4096, dtype=np.uint8)
before = sys.getrefcount(block)
with peerlane.device(0).allocate(4096) as memory, peerlane.device(0).create_stream() as stream:
    for _ in range(20):
        memory.copy_from(block, stream=stream)
        stream.sync()
print(sys.getrefcount(block) - before)
"""


@pytest.mark.parametrize(
    "program",
    [
        *(
            pytest.param(SHARED.replace("METHOD", repr(each)), id=each)
            for each in ("spawn", "fork", "forkserver")
        ),
        pytest.param(LOCKS, id="locks"),
        pytest.param(QUEUES, id="queues"),
        pytest.param(REFERENCES, id="references"),
        pytest.param(
            ERRORS,
            id="errors",
            marks=pytest.mark.skipif(
                sys.version_info < (3, 11), reason="an error that is raised again keeps all its frames"
            ),
        ),
    ],
)
def test_program_runs_as_without_the_checker(tmp_path: Path, program: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    plain = run_python([str(path)], timeout=60)
    checked = run_python(["-m", "peerlane", "check", str(path)], timeout=100)
    assert plain.returncode == 0, plain.stderr
    assert (checked.returncode, checked.stdout) == (plain.returncode, plain.stdout), checked.stderr


ORDERED = """\
import queue, threading
import peerlane as pl
device = pl.devices()[0]
items = queue.SimpleQueue()
with device.allocate(64) as memory:
    def write():
        memory.view()[:] = 1
        items.put("written")
        {behind}
    thread = threading.Thread(target=write)
    thread.start()
    items.get(timeout=30)
    print(int(memory.view()[5]))
    thread.join()
"""


@pytest.mark.parametrize(("behind", "code"), [("pass", 0), ("memory.view()[:] = 1", 3)])
def test_item_of_a_simple_queue_brings_what_came_before_its_put(
    tmp_path: Path, behind: str, code: int
) -> None:
    path = tmp_path / "program.py"
    path.write_text(ORDERED.format(behind=behind))
    done = run_python(["-m", "peerlane", "check", "--strict", str(path)], timeout=100)
    assert done.returncode == code, done.stderr
