"""The suites of tests of vendors' packages: which files run, what of them, and why tests fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Group(NamedTuple):
    """Files of a suite, by patterns, and which part of their tests without kernels has to pass."""

    about: str
    files: tuple[str, ...]
    goal: float = 0.0


class Suite(NamedTuple):
    """A vendor's tests.

    Attributes
    ----------
    title : str
    source : str
        What the folder is that the command gets.
    groups : tuple of Group
    wheels : tuple of str
        The distributions whose versions the page has.
    reasons : mapping of str to str
        Why tests fail: by a pattern of what they fail with, or of their names.
    kernels : mapping of str to str
        The same for tests that need a kernel, besides `KERNELS`.
    about : str
        More for the page.
    devices : int
    options : tuple of str
        Of pytest.
    environment : mapping of str to str
    """

    title: str
    source: str
    groups: tuple[Group, ...]
    wheels: tuple[str, ...]
    reasons: Mapping[str, str] = {}
    kernels: Mapping[str, str] = {}
    about: str = ""
    devices: int = 3
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


#: What a test fails with that needs a kernel, or one of the vendors' compilers.
KERNELS: Mapping[str, str] = {
    r"nvrtc|Failed to find CUDA headers": (
        "It compiles a kernel; neither `libnvrtc` nor CUDA's headers are part of peerlane"
    ),
    r"lib(curand|cublas|cublasLt|cusolver|cusparse|nvJitLink|nvfatbin)|(CURAND|CUBLAS|CUSOLVER|CuSparse)Error": (
        "It needs a library of the vendor that makes or runs kernels, which is not part of peerlane"
    ),
}

_CORE = Suite(
    title="NVIDIA's tests of cuda.core",
    source="`cuda_core/tests` of a checkout of NVIDIA/cuda-python",
    groups=(
        Group(
            "memory, copies, streams, events, devices, contexts, pools, peers and sharing",
            (
                "test_buffer*.py",
                "test_context.py",
                "test_device.py",
                "test_event.py",
                "test_managed_memory_warning.py",
                "test_memory*.py",
                "test_multiprocessing_warning.py",
                "test_stream.py",
                "memory/test_*.py",
                "memory_ipc/test_*.py",
            ),
            goal=0.95,
        ),
        Group("graphs", ("graph/test_*.py",), goal=0.6),
    ),
    wheels=("cuda-core", "cuda-bindings"),
    reasons={
        r"process C did not signal": (
            "It closes a buffer that the thread of a queue still has to pickle, and waits for the other end; NVIDIA "
            "marks it as flaky"
        ),
        r"test_package_contents": "It lists the names of a module of an earlier cuda.core",
        r"(?s)graph/.*(Buffer has been closed|has been destroyed|must belong to the same GraphDefinition)": (
            "It expects another exception of cuda.core than the wheel of this version raises"
        ),
    },
    kernels={
        r"test_instantiate_and_execute_(if|switch|while)": (
            "It runs a conditional node of a graph, whose condition only a kernel sets"
        ),
    },
    about=("`tests/cuda_suite/moved_names.py` adds the private names that a newer cuda.core has elsewhere."),
    options=("-p", "cuda_suite.moved_names", "-p", "cuda_suite.checkout_helpers"),
)
_BINDINGS = Suite(
    title="NVIDIA's tests of cuda.bindings",
    source="`cuda_bindings/tests` of a checkout of NVIDIA/cuda-python",
    groups=(
        Group("the driver, the runtime and what both share", ("test_[!c]*.py", "test_cuda*.py")),
        Group("NVML", ("nvml/test_*.py",)),
    ),
    wheels=("cuda-bindings",),
    reasons={
        r"green_ctx|GreenCtx|DevResource|DevSmResource|ExecutionCtx": (
            "It divides a device's processors (green contexts), which virtual devices do not have"
        ),
        r"[cC]onditional": "It makes a conditional node of a graph, whose condition only a kernel sets",
        r"MallocArray|ArrayCreate|make_api|ChannelDesc|TextureDesc": "It needs arrays or textures, which are refused",
        r"coredump": "It sets what a core dump of a device has",
        r"has no attribute 'reserved'|test_cuda_repr": (
            "It reads a field of a struct that the wheel of this version does not have, or has in another form"
        ),
        r"test_get_error_name": "It compares the vendor's words of an error; peerlane has words of its own",
        r"test_add_module_to_program_fail": "It expects another code of `libnvvm`, which is the vendor's own",
        r"(?s)nvml/.*NotSupportedError": (
            "It asks NVML for modes, features and limits that virtual devices do not have"
        ),
    },
    kernels={
        r"test_examples": "It runs an example that compiles a kernel",
        r"test_cuKernelGetName_failure|test_cuFuncGetName_failure": "It asks for the name of a kernel",
    },
    about=(
        "`test_cufile.py` is left out: `cuFileDriverOpen` of NVIDIA's `libcufile` never returns where the "
        "system lacks its driver."
    ),
    options=("-p", "cuda_suite.checkout_helpers"),
)
_NUMBA = Suite(
    title="numba's tests of its CUDA driver",
    source=(
        "a copy of `numba_cuda/numba/cuda/tests/cudadrv` of the wheel numba-cuda, with `testing/conftest.py` of a "
        "checkout of NVIDIA/numba-cuda"
    ),
    groups=(Group("the driver", ("test_*.py",)),),
    wheels=("numba-cuda", "numba", "cuda-bindings"),
    kernels={
        r"test_cuda_driver.*\n.*NOT_SUPPORTED": "It loads a kernel",
        r"TestMultithreadedCallbacks": "It compiles a kernel in each of many threads",
    },
)
_CUPY = Suite(
    title="CuPy's tests of devices, memory and streams",
    source="`tests` of a checkout of cupy/cupy",
    groups=(
        Group(
            "memory, streams, events, graphs, the runtime, the driver and NCCL",
            (
                *(
                    f"cupy_tests/cuda_tests/test_{name}.py"
                    for name in (
                        *("device", "driver", "graph", "memory", "memory_hook", "nccl", "nvtx"),
                        *("pinned_memory", "profile", "runtime", "stream"),
                    )
                ),
                "cupy_tests/cuda_tests/memory_hooks_tests/test_*.py",
            ),
        ),
    ),
    wheels=("cupy-cuda13x",),
    devices=4,
    reasons={
        r"TestMemoryAsyncPool": (
            "It expects that a pool grows by large blocks, or has freed memory until the program synchronizes; a "
            "pool of peerlane has what is allocated, and returns what is freed"
        ),
    },
    kernels={
        r"NCCL_ERROR_INVALID_ARGUMENT": (
            "An earlier test of the file needs a kernel within `ncclGroupStart`, and leaves its group open"
        ),
        r"test_stream_thread": "It makes an array by a kernel in each of two threads",
    },
)
_NIXL = Suite(
    title="NIXL's tests",
    source="`test/python` of a checkout of ai-dynamo/nixl",
    groups=(Group("the bindings and the API", ("test_*.py",)),),
    wheels=("nixl", "torch"),
    reasons={
        r"^test_nixl_api.py::test_nixl_api.py": (
            "A destructor of NIXL waits with Python's GIL for a thread of UCX, which is in a call of the driver and "
            "waits for the GIL ([the known hang](guides/cuda.md#ucx-and-nixl))"
        ),
    },
    kernels={r"test_prep_mem_view": "PyTorch fills a tensor of a device by a kernel"},
    options=("--timeout-method=thread",),
    environment={"UCX_TLS": "cuda_copy,cuda_ipc,sm,self,tcp"},
)

SUITES: Mapping[str, Suite] = {
    "cuda": _CORE,
    "cuda-bindings": _BINDINGS,
    "numba": _NUMBA,
    "cupy": _CUPY,
    "nixl": _NIXL,
}
