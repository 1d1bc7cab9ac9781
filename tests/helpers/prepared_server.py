"""The process that ``helpers.prepared`` forks; its argument is the descriptor of the line to it.

A forked process leaves ``serve`` and goes on as the program that was asked for, as ``__main__``.
"""

import array
import builtins
import gc
import importlib
import importlib.machinery
import json
import os
import socket
import sys
import types
from pathlib import Path

from peerlane.dialects import begin_anew

MODULES = (
    *("argparse", "concurrent.futures", "numpy", "pytest", "runpy", "threading"),
    *("peerlane.cli.check", "peerlane.cli.launch", "peerlane.cli.run", "peerlane.rendezvous"),
    *("peerlane.dialects.acl", "peerlane.dialects.hcomm", "peerlane.dialects.hip.hip"),
)


def receive(line):
    first, (ancillary, *_), *_ = line.recvmsg(8, socket.CMSG_SPACE(3 * 4)) or (b"", ())
    fds = array.array("i", ancillary[2])
    size, parts = int.from_bytes(first, "little"), []
    while size:
        parts.append(line.recv(size))
        size -= len(parts[-1])
    return json.loads(b"".join(parts)), list(fds)


def prepare(request, fds, begun):
    os.setsid()
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[1:1] = [each for each in request["env"].get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.orig_argv[1:] = request["args"]
    importlib.invalidate_caches()
    for name in ("acl", "hip", "hcomm"):
        begin_anew(name)
    os.write(begun, os.getpid().to_bytes(8, "little"))
    os.close(begun)


def serve():
    for module in MODULES:
        importlib.import_module(module)
    line = socket.socket(fileno=int(sys.argv[1]))
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:] = [each for each in sys.path[1:] if each not in inherited]
    gc.collect()
    gc.freeze()  # else each forked process would look at every object of these modules when it ends
    while True:
        try:
            request, fds = receive(line)
        except ValueError:
            os._exit(0)  # who asked has ended
        ends = os.pipe()
        between = os.fork()
        if between == 0:
            if os.fork():
                os._exit(0)  # whose child is then that of the process that asked
            line.close()
            os.close(ends[0])
            prepare(request, fds, ends[1])
            return request["args"]
        for each in (ends[1], *fds):
            os.close(each)
        os.waitpid(between, 0)
        line.sendall(os.read(ends[0], 8).rjust(8, bytes(1)))
        os.close(ends[0])


def load(words):
    main = types.ModuleType("__main__")
    vars(main).update(
        __builtins__=builtins, __annotations__={}, __loader__=importlib.machinery.BuiltinImporter
    )
    sys.modules["__main__"] = main
    return compiled(words), vars(main)


def compiled(words):
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path[0] = ""
        return compile(words[1], "<string>", "exec")
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0] = str(Path.cwd())
        return compile(f"__import__('runpy')._run_module_as_main({words[1]!r})", "<string>", "exec")
    sys.argv[:] = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    sys.modules["__main__"].__file__ = str(Path(words[0]).absolute())
    return compile(Path(words[0]).read_bytes(), words[0], "exec")


exec(*load(serve()))
