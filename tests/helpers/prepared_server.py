"""The process that ``helpers.prepared`` forks; its argument is the descriptor of the line to it.

A forked process goes on as the program that was asked for, as ``__main__``.
"""

import array
import gc
import importlib
import json
import os
import socket
import sys
import typing

from anew import KeptModules, Program, end

MODULES = (
    *("argparse", "concurrent.futures", "numpy", "pkgutil", "pytest", "runpy", "threading"),
    *(
        "peerlane.c_abi",
        "peerlane.cli.check",
        "peerlane.cli.launch",
        "peerlane.cli.run",
        "peerlane.rendezvous",
    ),
    *("peerlane.diagnostics.hooks.threads", "peerlane.ranks.deadlock.at_server"),
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
    os.chdir(request["cwd"])
    os.write(begun, os.getpid().to_bytes(8, "little"))
    os.close(begun)


def serve():
    kept = KeptModules()
    for module in MODULES:
        importlib.import_module(module)
    line = socket.socket(fileno=int(sys.argv[1]))
    kept.add_imported()
    program = Program()
    for clear in typing._cleanups:  # nanobind does this at the end of each process
        clear()
    sys.path_importer_cache.clear()
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
            end(program.run(request["args"], request["env"]))
        for each in (ends[1], *fds):
            os.close(each)
        os.waitpid(between, 0)
        line.sendall(os.read(ends[0], 8).rjust(8, bytes(1)))
        os.close(ends[0])


if __name__ == "__main__":
    __name__ = "peerlane.prepared_server"  # as in anew.py
    serve()
