"""``acl.rt``: kernels of AI CPUs: C functions, in libraries that were compiled for the processor (facts/acl 2.11).

A launch calls the function in stream order, in the thread of host functions.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from peerlane.backend import host
from peerlane.dialects._shared.call import Address, Object, Text, UInt32, Word, type_name
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.acl._checks import null, reserved, zero
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine, messages
from peerlane.dialects.acl._stream import KernelFailed, stream_of

_LOAD, _GET = "acl.rt.binary_load_from_file", "acl.rt.binary_get_function"
_INIT, _APPEND = "acl.rt.kernel_args_init", "acl.rt.kernel_args_append"
_LAZY, _CPU_KERNEL = 1, 3  # types of options
_BY_DESCRIPTION, _WITH_LIBRARY = 0, 1  # modes of _CPU_KERNEL
_MOST_BYTES = 64 << 10

#: Other dialects' functions, called after each kernel in its thread: each returns what it left undone, or "".
after_kernel: list[Callable[[], str]] = []


class AclBinary(Resource):
    """The kernels that a description names."""

    __slots__ = ("kernels", "path")

    name = "binary"
    needs_device = False
    is_owned = False

    def __init__(self, path: Path, kernels: Mapping[str, int]) -> None:
        super().__init__(machine.process())
        self.path, self.kernels = path, kernels  #: ``kernels``: the addresses of their functions


class AclKernel(Resource):
    """A kernel of a binary."""

    __slots__ = ("address", "kernel")

    name = "kernel"
    needs_device = False
    is_owned = False

    def __init__(self, kernel: str, address: int) -> None:
        super().__init__(machine.process())
        self.kernel, self.address = kernel, address


class AclKernelArgs(Resource):
    """The arguments of one launch, one behind the other.

    ``offsets``: by the number of an argument that the program got: the argument's bytes in the content.
    """

    __slots__ = ("content", "is_final", "kernel", "offsets")

    name = "list of kernel arguments"
    needs_device = False
    is_owned = False

    def __init__(self) -> None:
        super().__init__(machine.process())
        self.begin(None)

    def begin(self, kernel: AclKernel | None) -> None:
        """Drop all arguments, and begin those of a kernel."""
        self.content, self.offsets = bytearray(), dict[int, range]()
        self.kernel, self.is_final = kernel, False


class _Launch:
    """A call of a kernel on a device, with the address of a copy of its arguments."""

    def __init__(self, kernel: AclKernel, context: Context, content: bytes) -> None:
        self.__qualname__ = f"kernel {kernel.kernel}"  # the name in messages of failures
        self._address, self._context = kernel.address, context
        self._content = ctypes.create_string_buffer(content, len(content))

    def __call__(self) -> None:
        if not messages.shared:
            messages.take()
        before, machine.thread.context = machine.thread.context, self._context
        try:
            code = host.call_kernel(self._address, ctypes.addressof(self._content))
        finally:
            machine.thread.context = before
        left = next(filter(None, [each() for each in after_kernel]), "")
        if code or left:
            texts = "" if messages.shared else messages.take()
            raise KernelFailed(f"it returned {code:,}, and 0 is success" if code else left, texts)


class _OfThread(threading.local):
    args: AclKernelArgs | None = None


_of_thread = _OfThread()


@acl.call(_LOAD, out=1)
def binary_load_from_file(bin_path: Text, options: Object) -> int:
    """Load the AI CPU kernels that a description (``.json``) names (facts/acl 2.11).

    The option CPU_KERNEL_MODE is 0 or 1.  With 1 the library lies beside the description and has its name; with 0 the
    description names it, and it lies there too, or where the loader looks.  It is compiled for the processor.

    Gives: binary
    Refuses: 107000 the file, the library, an option; 200001 without CPU_KERNEL_MODE; `ValueError` no list
    Basis: S; C for a library that cannot be loaded, which the vendor notices at the launch, and for 200001
    """
    machine.devices()
    mode = _mode_of(options)
    path = Path(bin_path).absolute()
    entries = _described(path)
    kernels = {}
    for kernel, (library, function) in entries.items():
        file = path.with_suffix(".so") if mode == _WITH_LIBRARY else path.parent / library
        name = str(file) if file.exists() or mode == _WITH_LIBRARY else library
        try:
            code = getattr(ctypes.CDLL(name), function)
            kernels[kernel] = ctypes.cast(code, ctypes.c_void_p).value or 0
        except (OSError, AttributeError) as error:
            raise Code.RT_PARAM_INVALID.refusal(
                f"kernel {kernel!r} of {path} is function {function} of {library}: {error}",
                f"compile it for this processor (g++ -shared -fPIC), put {library} beside {path.name} or in a folder "
                "of LD_LIBRARY_PATH, and link it to libhcomm if it calls that",
            ) from None
    return machine.issue(AclBinary(path, kernels))


@acl.call("acl.rt.binary_unload")
def binary_unload(bin_handle: Address) -> None:
    """Unload a binary; kernels that the program got from it can still be launched.

    Refuses: 100000 no binary
    Basis: S; C for its kernels
    """
    machine.end_deviceless(bin_handle, AclBinary, _LOAD, "acl.rt.binary_unload")


@acl.call(_GET, out=1)
def binary_get_function(bin_handle: Address, kernel_name: Text) -> int:
    """Return the number of a kernel (facts/acl 2.11).

    Gives: kernel
    Refuses: 100000 no binary; 107000 it has no such kernel
    Basis: S
    """
    binary = machine.deviceless(bin_handle, AclBinary, _LOAD)
    address = binary.kernels.get(kernel_name)
    if address is None:
        known = ", ".join(sorted(binary.kernels))
        raise Code.RT_PARAM_INVALID.refusal(
            f"{binary.path} names no kernel {kernel_name!r}", f"pass one of: {known}"
        )
    return machine.issue(AclKernel(kernel_name, address))


@acl.call(_INIT, out=1)
def kernel_args_init(func_handle: Address) -> int:
    """Empty this thread's list of arguments, and return its handle (facts/acl 2.11).

    Gives: list of arguments
    Refuses: 100000 no kernel
    Basis: S
    """
    kernel = machine.deviceless(func_handle, AclKernel, _GET)
    args = _of_thread.args
    if args is None or args.handle not in machine.resources:
        args = AclKernelArgs()
        machine.issue(args)
        _of_thread.args = args
    args.begin(kernel)
    return args.handle


@acl.call(_APPEND, out=1, checks=[null("param"), zero("param_size")])
def kernel_args_append(args_handle: Address, param: Address, param_size: Word) -> int:
    """Copy an argument behind those before it, without a gap (facts/acl 2.11).

    Gives: argument
    Refuses: 100000; 107000 above 64 KiB in all; 207000 after kernel_args_finalize
    Basis: S
    """
    args = machine.deviceless(args_handle, AclKernelArgs, _INIT)
    if args.is_final:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            "acl.rt.kernel_args_finalize was called for these arguments",
            "append all arguments before it, or begin again with acl.rt.kernel_args_init",
        )
    begin, end = len(args.content), len(args.content) + param_size
    if end > _MOST_BYTES:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the arguments would have {end:,} bytes, and the most is {_MOST_BYTES:,}",
            "put large data into memory of the device, and pass its address",
        )
    args.content += ctypes.string_at(param, param_size)
    number = args.handle + 1 + len(args.offsets)
    args.offsets[number] = range(begin, end)
    return number


@acl.call("acl.rt.kernel_args_para_update", checks=[null("param"), zero("param_size")])
def kernel_args_para_update(
    args_handle: Address, param_handle: Address, param: Address, param_size: Word
) -> None:
    """Copy another value over an argument; kernel_args_finalize must follow (facts/acl 2.11).

    Refuses: 100000; 107000 no argument of this list, another size
    Basis: S; C for the size
    """
    args = machine.deviceless(args_handle, AclKernelArgs, _INIT)
    span = args.offsets.get(param_handle)
    if span is None or len(span) != param_size:
        has = f"{len(span):,} bytes" if span is not None else "no argument of this number"
        raise Code.RT_PARAM_INVALID.refusal(
            f"argument {param_handle:#x} gets {param_size:,} bytes, and the list has {has}",
            f"pass what {_APPEND} returned, and as many bytes as were appended",
        )
    args.content[span.start : span.stop] = ctypes.string_at(param, param_size)
    args.is_final = False


@acl.call("acl.rt.kernel_args_finalize")
def kernel_args_finalize(args_handle: Address) -> None:
    """Complete the list of arguments.

    Refuses: 100000
    Basis: S
    """
    machine.deviceless(args_handle, AclKernelArgs, _INIT).is_final = True


@acl.call(
    "acl.rt.launch_kernel_with_config", checks=[zero("num_blocks", remedy="pass 1"), reserved("reserve")]
)
def launch_kernel_with_config(
    func_handle: Address,
    num_blocks: UInt32,
    stream: Address,
    cfg: Object,
    args_handle: Address,
    reserve: Address,
) -> None:
    """Call a kernel with its arguments when all work submitted to the stream so far is over (facts/acl 2.11).

    The kernel gets the address of a copy of the arguments.  If it does not return 0, the next synchronization returns
    507018.  It runs on the host's processor: attributes in ``cfg``, as a timeout, have no effect.

    Refuses: 100000 no kernel, no list of arguments, `reserve`, `num_blocks` 0; 107000 the stream, arguments of
        another kernel or not finalized; 107002; 107003; 207000 more than 1 block; `ValueError` `cfg` is no list
    Basis: S; C for arguments that do not fit, attributes, and more than 1 block
    """
    if not isinstance(cfg, list):
        raise ValueError(f"acl.rt.launch_kernel_with_config: cfg must be a list, not {type_name(cfg)}")
    machine.context()
    kernel = machine.deviceless(func_handle, AclKernel, _GET)
    args = machine.deviceless(args_handle, AclKernelArgs, _INIT)
    if num_blocks > 1:
        raise Code.RT_FEATURE_NOT_SUPPORT.refusal(
            f"num_blocks is {num_blocks:,}, and a virtual device has one AI CPU", "pass 1"
        )
    if args.kernel is not kernel or not args.is_final:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the arguments are those of kernel {args.kernel.kernel if args.kernel else None!r}, and this is "
            f"{kernel.kernel!r}"
            if args.kernel is not kernel
            else "acl.rt.kernel_args_finalize was not called for the arguments",
            "append the arguments of this launch, call acl.rt.kernel_args_finalize, then launch",
        )
    acl_stream = stream_of(stream)
    acl_stream.neutral.launch_callback(_Launch(kernel, acl_stream.context, bytes(args.content)))


def _mode_of(options: object) -> int:
    """Return the mode of the option CPU_KERNEL_MODE."""
    if not isinstance(options, list) or not all(isinstance(each, dict) for each in options):
        raise ValueError(f"{_LOAD}: options must be a list of dicts, not {type_name(options)}")
    mode = None
    for each in options:
        kind, value = each.get("type"), each.get("value")
        if kind not in (_LAZY, _CPU_KERNEL) or value not in (0, 1):
            raise Code.RT_PARAM_INVALID.refusal(
                f"option {kind} is {value}",
                f"valid are {_LAZY} (LAZY_LOAD) and {_CPU_KERNEL} (CPU_KERNEL_MODE), each 0 or 1",
            )
        mode = value if kind == _CPU_KERNEL else mode
    if mode is None:
        raise Code.API_NOT_SUPPORT.refusal(
            "without the option CPU_KERNEL_MODE the file has kernels of AI cores, and a virtual device has none",
            "run this part on hardware, or replace it in the test; docs/reference/acl.md lists what works",
        )
    return int(mode)


def _described(path: Path) -> dict[str, tuple[str, str]]:
    """Return the kernels that a description names, each with its library and its function."""
    try:
        described = json.loads(path.with_suffix(".json").read_text())
        return {
            str(kernel): (str(about["opInfo"]["kernelSo"]), str(about["opInfo"]["functionName"]))
            for kernel, about in described.items()
        }
    except (OSError, ValueError) as error:
        cause = f"{path} cannot be read: {error}"
    except (AttributeError, KeyError, TypeError):
        cause = f"{path} is not a description of AI CPU kernels"
    remedy = (
        'pass a file with {"<kernel>": {"opInfo": {"kernelSo": "<library>", "functionName": "<function>"}}}'
    )
    raise Code.RT_PARAM_INVALID.refusal(cause, remedy)
