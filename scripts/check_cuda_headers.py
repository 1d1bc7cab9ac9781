"""Compares CUDA's headers of this project with the vendor's own, and names each difference that no rule explains.

Usage: ``check_cuda_headers.py [-v] NAME=INCLUDES[:INCLUDES...]...``, for example ``nvml=/tmp/13/include``.  NAME is
one of cuda, cudart, cudart12, nvml and nccl; the folders are those of the vendor's wheels (nvidia-cuda-runtime,
nvidia-cuda-crt, nvidia-cuda-profiler-api, nvidia-cuda-cccl, nvidia-nvml-dev, nvidia-nccl).  Where the folder ``lib``
beside them has the library, its symbols are compared, too.  A C++ compiler reads the vendor's headers.  This script
only learns whether a statement about them is true, and no byte of them enters the project.

It prints the differences, and how often each explanation applies; ``-v`` prints what it explains.  It exits with 1 if
a difference has no explanation.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src/peerlane/dialects/cuda"
sys.path.insert(0, str(ROOT / "native/headers"))

from sources import use_sources  # noqa: E402

use_sources()

from peerlane.dialects._shared import c_declarations  # noqa: E402
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function  # noqa: E402
from peerlane.dialects._shared.c_layout import Layout  # noqa: E402

_INCLUDES = {
    "cuda": "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>",
    "cudart": "#include <cuda_runtime_api.h>\n#include <cuda_profiler_api.h>\n#include <library_types.h>",
    "cudart12": "#include <cuda_runtime_api.h>\n#include <library_types.h>",
    "nvml": "#define NVML_NO_UNVERSIONED_FUNC_DEFS\n#include <nvml.h>",
    "nccl": "#include <nccl.h>\n#include <nccl_device.h>",
}
_LIBRARIES = {"cudart": "libcudart.so.13", "cudart12": "libcudart.so.12", "nccl": "libnccl.so.2"}
_FUNCTIONS = {"cuda": r"cu[A-Z]\w+", "cudart": r"cuda[A-Z]\w+", "cudart12": r"cuda[A-Z]\w+", "nvml": r"nvml[A-Z]\w+",
              "nccl": r"nccl[A-Z]\w+"}  # fmt: skip
_INSIDE = "CUstreamBatchMemOpParams_union"
_VARIANT = re.compile(r"_pt[ds][sz]$")
#: Why a difference is right, by what it is about.
_EXPLAINED = {
    r"cuda\w* (function|value|struct|type) \w*([Ee]gl|EGL|GL|Vdp|VDPAU)\w*: the vendor's headers lack it": (
        "it shares memory with graphics, and its headers need those of other software"
    ),
    r"cuda\w* value \w+(LEGACY|Legacy|PER_THREAD|PerThread|LAUNCH_PARAM_BUFFER\w+): not [12]": (
        "the constant is an address, which no assertion at compile time can compare"
    ),
    r"cuda\w* value (CU_TARGET_COMPUTE_101\w?|cudaDevAttr\w+|cudaCGScopeMultiGrid): the vendor's headers lack it": (
        "the wheel serves versions from 12.9 on, and has what later ones dropped"
    ),
    r"cudart function __cuda\w+: the vendor's headers lack it": "compilers call it, and programs do not",
    r"cudart function cudaMemcpyBatchAsync: another type": "the notation has no const behind a star",
    r"cudart\w* symbol (__cuda|cudaSubgrid)\w+: ours lacks it": (
        "no source whose licence allows it has the name; programs of nvcc that link to the library may need it"
    ),
    r"cudart12 function cudaStreamGetCaptureInfo: the vendor's headers lack it": "a macro hides it",
    r"cudart12 struct \w+: (\w+) not at \d+": "the field is new in version 13, which changed no other offset",
    r"nvml value (\w+: the vendor's headers lack it|NVML_(FI_MAX|DEVICE_VGPU_CAP_COUNT): not \d+)": (
        "nvidia-ml-py has it, and is of another release"
    ),
    r"nvml struct \w+_(sensor|utilization): the vendor's headers lack it": "the vendor gave the struct no name",
    r"nccl function \w+: the vendor's headers lack it": "the library has the symbol, and no header declares it",
    r"nccl function \w+: ours lacks it": "it is inline, and no symbol of the library",
}


def differences(name: str, folders: list[str]) -> Iterator[str]:
    """Yield how a header differs from the vendor's."""
    declared = own = c_declarations.read((FOLDER / f"{name}.h.txt").read_text())
    if name == "cudart12":
        declared = c_declarations.read(
            (FOLDER / "cudart.h.txt").read_text() + (FOLDER / "cudart12.h.txt").read_text()
        )
    text = preprocessed(name, folders)
    words = {*re.findall(r"\w+", text)}
    named = {each for each in re.findall(rf"\b({_FUNCTIONS[name]})\s*\(", text) if not _VARIANT.search(each)}
    statements: dict[str, str] = {}
    for function in declared.functions.values():
        if function.name not in named:
            if function.name in own.functions:
                yield f"function {function.name}: the vendor's headers lack it"
        elif function.parameters or "unread" in function.words:
            statements[f"function {function.name}: another type"] = same_type(function)
    for each in sorted(named - {*declared.functions, *declared.callbacks, *declared.types}):
        yield f"function {each}: ours lacks it"
    for kind, members in [*declared.enums.items(), ("", {})]:
        values = {key: each.value for key, each in members.items()} if kind else declared.constants
        for key, value in values.items():
            if kind and key in declared.constants:  # another version has the value of the enumerator
                continue
            if key in words:
                statements[f"value {key}: not {value}"] = f"(unsigned long long)({key}) == {value % 2**64}ull"
            elif declared is own:
                yield f"value {key}: the vendor's headers lack it"
    layout = Layout(declared)
    for struct in declared.structs.values():
        if not struct.fields or "." in struct.name:
            continue
        if struct.name not in words:
            if declared is own:
                yield f"struct {struct.name}: the vendor's headers lack it"
            continue
        size = ctypes.sizeof(layout.struct(struct.name))
        called = f"{_INSIDE}::{struct.name}" if struct.name.startswith("CUstreamMemOp") else struct.name
        statements[f"struct {struct.name}: not of {size} bytes"] = f"sizeof({called}) == {size}"
        for path, offset in fields(declared, layout, struct.name):
            statements[f"struct {struct.name}: {path} not at {offset}"] = (
                f"offsetof({called}, {path}) == {offset}"
            )
    for alias in own.types:
        if alias not in words and alias not in declared.enums:
            yield f"type {alias}: the vendor's headers lack it"
    yield from untrue(name, folders, statements)
    yield from endings(name, folders, declared, {*own.functions})


def preprocessed(name: str, folders: list[str]) -> str:
    """Return what the compiler sees of the vendor's headers, and the names of their macros."""
    definitions = ""
    for option in (["-E", "-P"], ["-E", "-dM"]):
        command = ["g++", "-x", "c++", *option, *(f"-I{each}" for each in folders), "-"]
        done = subprocess.run(command, input=_INCLUDES[name], capture_output=True, text=True, check=True)
        lines = done.stdout.splitlines()
        definitions += "\n".join(each.split()[1] if each.startswith("#define ") else each for each in lines)
    return re.sub(r"^#.*", "", definitions, flags=re.MULTILINE)


def same_type(function: Function) -> str:
    """Return the statement that a function has the type that we declare."""
    parameters = ", ".join(map(kind, function.parameters))
    return f"std::is_same<decltype(&::{function.name}), {kind(function.returns)} (*)({parameters})>::value"


def kind(declarator: Declarator) -> str:
    """Return the type of a parameter in C++."""
    const = "const " if "const" in declarator.words else ""
    return f"{const}{declarator.type}{'*' * (declarator.stars + bool(declarator.count))}"


def fields(
    declared: Declarations, layout: Layout, name: str, path: str = "", at: int = 0
) -> Iterator[tuple[str, int]]:
    """Yield where each field of a struct lies, those of structs without a name too."""
    described = layout.struct(name)
    for number, each in enumerate(declared.structs[name].fields):
        offset = at + getattr(described, each.name or f"anonymous{number}").offset
        if "." in each.type and each.type in declared.structs:
            yield from fields(
                declared, layout, each.type, f"{path}{each.name}." if each.name else path, offset
            )
        elif "unread" not in each.words:
            yield f"{path}{each.name}", offset


def untrue(name: str, folders: list[str], statements: dict[str, str]) -> Iterator[str]:
    """Yield the differences whose statements the compiler does not confirm."""
    head = f"#include <cstddef>\n#include <cstdint>\n#include <type_traits>\n{_INCLUDES[name]}\n"
    first = head.count("\n") + 1
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as file:
        file.write(head + "".join(f'static_assert({each}, "");\n' for each in statements.values()))
        file.flush()
        options = ["-std=c++17", "-fsyntax-only", "-fmax-errors=0", "-w", *(f"-I{each}" for each in folders)]
        done = subprocess.run(["g++", *options, file.name], capture_output=True, text=True)
    failed = re.findall(rf"{re.escape(file.name)}:(\d+):\d+: error", done.stderr)
    if done.returncode and not failed:
        raise RuntimeError(done.stderr[:2000])
    names = [*statements]
    for line in sorted({int(each) for each in failed}):
        yield names[line - first]


def endings(name: str, folders: list[str], declared: Declarations, own: set[str]) -> Iterator[str]:
    """Yield what the library beside the headers has for variants, and the header has not."""
    library = next(
        (
            path
            for each in folders
            if (path := Path(each).parent / "lib" / _LIBRARIES.get(name, "-")).exists()
        ),
        None,
    )
    if name == "cuda":
        text = preprocessed(name, folders)
        symbols = {*re.findall(r"\b(cu\w+)\s*\(", text)}
    elif library is not None:
        done = subprocess.run(
            ["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True
        )
        symbols = {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
        for each in sorted(symbols):
            plain = re.sub(r"_pt[ds][sz]$", "", each)
            if re.match(r"_*(cuda|nccl)[A-Z]", plain) and plain not in declared.functions:
                yield f"symbol {each}: ours lacks it"
        for each in sorted(own - symbols):
            yield f"symbol {each}: the library lacks it"
    else:
        return
    for each in sorted(own & symbols):
        function = declared.functions[each]
        theirs = next((end for end in ("ptds", "ptsz") if f"{each}_{end}" in symbols), "")
        if theirs != function.variant:
            yield f"variant {each}: {function.variant or 'none'}, the vendor's is {theirs or 'none'}"


def explanation(name: str, difference: str) -> str:
    """Return why a difference is right; empty if nothing explains it."""
    matching = (why for pattern, why in _EXPLAINED.items() if re.fullmatch(pattern, f"{name} {difference}"))
    return next(matching, "")


def main() -> int:
    """Compare the headers of the command line."""
    is_verbose = "-v" in sys.argv
    unexplained = 0
    for argument in sys.argv[1:]:
        name, _, folders = argument.partition("=")
        if not folders:
            continue
        explained: Counter[str] = Counter()
        for each in differences(name, folders.split(":")):
            why = explanation(name, each)
            explained[why] += 1
            if not why or is_verbose:
                print(f"{name} {each}{f' ({why})' if why else ''}")
        unexplained += explained.pop("", 0)
        for why, count in explained.most_common():
            print(f"{name}: {count} times: {why}")
    print(f"{unexplained} differences without an explanation")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
