"""Take the prototypes of HIP's C functions from the public hip-python wheels, in the notation of `c_declarations`.

Usage: ``extract_hip_declarations.py NEW OLD > src/peerlane/dialects/hip/declarations.txt``, the folders with the
files ``cyhip.pyx`` and ``cyhiprtc.pyx`` of hip-python 10.0 and with ``chip.pyx`` and ``chiprtc.pyx`` of 7.2.  It runs
in an environment with peerlane, whose dialect tells which functions work.  The library has every symbol that a wheel
looks up.  Of a function that is only refused the parameters are left out: nothing reads them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from peerlane.dialects.hip import hip as _hip  # noqa: F401 - it declares calls
from peerlane.dialects.hip import hiprtc as _hiprtc  # noqa: F401 - it declares calls
from peerlane.dialects.hip._facts import facts, real_name
from peerlane.dialects.hip._state import calls

_FUNCTION = re.compile(
    r"^cdef (?P<returns>[^\n(]+?) ?(?P<name>\w+)\((?P<parameters>[^\n]*)\)[^\n]* nogil:\n"
    r"(?:    .*\n)*?.*__init_symbol\(&\w+, ?\"(?P<symbol>\w+)\"\)",
    re.MULTILINE,
)
_SCALARS = {
    "unsigned int": "uint32_t",
    "unsigned long long": "uint64_t",
    "unsigned long": "size_t",
    "unsigned short": "uint16_t",
    "unsigned char": "uint8_t",
}
_PLAIN = {*_SCALARS.values(), "int", "float", "void", "char", "int32_t", "int64_t"}
_WIDTH = 116

#: Parameters that the wheels take for outputs, or of which C's rules are others.
_OTHERS = {
    "hipMemcpyBatchAsync": {
        "dsts": "void* dsts[count]",
        "srcs": "void* srcs[count]",
        "sizes": "size_t sizes[count]",
        "attrsIdxs": "size_t* attrsIdxs",
        "failIdx": "size_t* failIdx",
    },
    "hipExtStreamCreateWithCUMask": {"cuMask": "const uint32_t cuMask[cuMaskSize]"},
    "hipMemcpy3DBatchAsync": {"failIdx": "maybe always size_t* failIdx"},
    "hipGetDeviceCount": {"count": "out always int* count"},
    "hipDeviceGetPCIBusId": {"pciBusId": "out always char pciBusId[len]"},
    "hipSetValidDevices": {"device_arr": "const int device_arr[len]"},
    "hipGetProcAddress": {"symbolStatus": "maybe always hipDriverProcAddressQueryResult* symbolStatus"},
    "hipGetProcAddress_spt": {"symbolStatus": "maybe always hipDriverProcAddressQueryResult* symbolStatus"},
    "hipGetDriverEntryPoint": {"driverStatus": "maybe always hipDriverEntryPointQueryResult* driverStatus"},
    "hipGetDriverEntryPoint_spt": {"status": "maybe always hipDriverEntryPointQueryResult* status"},
    "hipLibraryLoadData": {
        "jitOptions": "unread hipJitOption* jitOptions",
        "libraryOptions": "unread hipLibraryOption_e* libraryOptions",
    },
    "hipLibraryLoadFromFile": {
        "jitOptions": "unread hipJitOption* jitOptions",
        "libraryOptions": "unread hipLibraryOption_e* libraryOptions",
    },
    "hipLinkCreate": {"options": "unread hipJitOption* options"},
    "hipLinkAddData": {"options": "unread hipJitOption* options"},
    "hipLinkAddFile": {"options": "unread hipJitOption* options"},
    "hipModuleLoadDataEx": {"options": "unread hipJitOption* options"},
    "hipModuleGetGlobal": {"dptr": "maybe void** dptr", "bytes": "maybe size_t* bytes"},
    "hipDrvPointerGetAttributes": {
        "attributes": "given hipPointer_attribute attributes[numAttributes]",
        "data": "given void* data[numAttributes]",
    },
    "hipMemPrefetchBatchAsync": {
        "dev_ptrs": "given void* dev_ptrs[count]",
        "sizes": "given size_t sizes[count]",
        "prefetch_loc_idxs": "given size_t prefetch_loc_idxs[num_prefetch_locs]",
    },
    "hipMemRangeGetAttributes": {
        "data": "given void* data[num_attributes]",
        "data_sizes": "given size_t data_sizes[num_attributes]",
        "attributes": "given hipMemRangeAttribute attributes[num_attributes]",
    },
}

#: What no wheel looks up, and programs of C call.
_ADDED = ("hipError_t hipExtHostAlloc(out void** ptr, size_t size, uint32_t flags) = hipHostMalloc;",)

#: What is refused, and whose arguments the text of the refusal shows; the last six no wheel looks up.
_SHOWN = (
    "hipError_t hipLaunchKernel("
    "const void* function_address, dim3 numBlocks, dim3 dimBlocks, void** args, "
    "size_t sharedMemBytes, hipStream_t stream);",
    "hipError_t hipLaunchKernel_spt("
    "const void* function_address, dim3 numBlocks, dim3 dimBlocks, unread void** args, "
    "size_t sharedMemBytes, hipStream_t stream);",
    "hipError_t hipExtLaunchKernel("
    "const void* function_address, dim3 numBlocks, dim3 dimBlocks, void** args, "
    "size_t sharedMemBytes, hipStream_t stream, hipEvent_t startEvent, hipEvent_t stopEvent, "
    "int flags);",
    "hipError_t hipLaunchCooperativeKernel("
    "const void* f, dim3 gridDim, dim3 blockDimX, void** kernelParams, uint32_t sharedMemBytes, "
    "hipStream_t stream);",
    "hipError_t hipLaunchCooperativeKernel_spt("
    "const void* f, dim3 gridDim, dim3 blockDim, unread void** kernelParams, uint32_t sharedMemBytes, "
    "hipStream_t hStream);",
    "hipError_t hipModuleLaunchKernel("
    "hipFunction_t f, uint32_t gridDimX, uint32_t gridDimY, uint32_t gridDimZ, uint32_t blockDimX, "
    "uint32_t blockDimY, uint32_t blockDimZ, uint32_t sharedMemBytes, hipStream_t stream, "
    "void** kernelParams, void** extra);",
    "hipError_t hipModuleLaunchCooperativeKernel("
    "hipFunction_t f, uint32_t gridDimX, uint32_t gridDimY, uint32_t gridDimZ, uint32_t blockDimX, "
    "uint32_t blockDimY, uint32_t blockDimZ, uint32_t sharedMemBytes, hipStream_t stream, "
    "void** kernelParams);",
    "hipError_t hipExtModuleLaunchKernel("
    "hipFunction_t f, uint32_t globalWorkSizeX, uint32_t globalWorkSizeY, uint32_t globalWorkSizeZ, "
    "uint32_t localWorkSizeX, uint32_t localWorkSizeY, uint32_t localWorkSizeZ, "
    "size_t sharedMemBytes, hipStream_t hStream, void** kernelParams, void** extra, "
    "hipEvent_t startEvent, hipEvent_t stopEvent, uint32_t flags);",
    "hipError_t hipHccModuleLaunchKernel("
    "hipFunction_t f, uint32_t globalWorkSizeX, uint32_t globalWorkSizeY, uint32_t globalWorkSizeZ, "
    "uint32_t localWorkSizeX, uint32_t localWorkSizeY, uint32_t localWorkSizeZ, "
    "size_t sharedMemBytes, hipStream_t hStream, void** kernelParams, void** extra, "
    "hipEvent_t startEvent, hipEvent_t stopEvent);",
    "hipError_t hipGLGetDevices("
    "uint32_t* pHipDeviceCount, int* pHipDevices, uint32_t hipDeviceCount, int deviceList);",
    "hipError_t hipGraphicsGLRegisterBuffer(void** resource, uint32_t buffer, uint32_t flags);",
    "hipError_t hipGraphicsGLRegisterImage("
    "void** resource, uint32_t image, uint32_t target, uint32_t flags);",
    "hipError_t hipDeviceGetP2PAtomicCapabilities("
    "uint32_t* capabilities, const uint32_t* operations, uint32_t count, int srcDevice, "
    "int dstDevice);",
)

#: Calls whose outputs may be NULL, in the code of the vendor's runtime.
_MAYBE = {
    "hipCtxPopCurrent",
    "hipDeviceGetStreamPriorityRange",
    "hipDevicePrimaryCtxGetState",
    "hipMemGetInfo",
}

#: Functions that the vendor's library has as those of C++, by their symbols; no wheel looks them up.
_OF_CXX = {
    "_Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc": "hipCreateSurfaceObject",
    "_Z23hipDestroySurfaceObjectP13__hip_surface": "hipDestroySurfaceObject",
    "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j": (
        "hipModuleLaunchKernel"
    ),
    "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_": (
        "hipModuleLaunchKernel"
    ),
}

#: What the library has in code of its own: the start-up code of hipcc's programs calls it, or no device is needed.
_NATIVE = {"hipConfigureCall", "hipCreateChannelDesc", "hipSetupArgument"}

#: What programs need that were compiled before HIP 6, and no wheel looks up.
_EARLIER = (
    "hipError_t hipGetDevicePropertiesR0000(out hipDeviceProp_tR0000* prop, int device);",
    "hipError_t hipGetDeviceProperties(out hipDeviceProp_tR0000* prop, int device) = hipGetDevicePropertiesR0000;",
    "hipError_t hipChooseDeviceR0000(out int* device, const hipDeviceProp_tR0000* prop);",
    "hipError_t hipChooseDevice(out int* device, const hipDeviceProp_tR0000* prop) = hipChooseDeviceR0000;",
)


def prototypes(folder: Path) -> dict[str, re.Match[str]]:
    """Return the functions that the files of a folder look up, by symbol."""
    found = {}
    for path in sorted(folder.glob("c*hip*.pyx")):
        if path.stem.removeprefix("c").removeprefix("y") not in ("hip", "hiprtc"):
            continue
        text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
        for match in _FUNCTION.finditer(text.partition("_lib_handle, name)")[2]):
            found[match["symbol"]] = match
    return found


def spelled(kind: str) -> str:
    """Return a C type as the notation has it: ``const T**``."""
    words = kind.replace("*const", "*").replace("*", " * ").split()
    stars = words.count("*")
    const = "const " if words[0] == "const" else ""
    name = " ".join(word for word in words if word not in ("*", "const"))
    return f"{const}{_SCALARS.get(name, name)}{'*' * stars}"


def parameter(call: str, text: str, following: str) -> str:
    """Return a parameter as the notation has it; ``following`` is the one behind it."""
    kind, _, name = text.rpartition(" ")
    if name in _OTHERS.get(call, ()):
        return _OTHERS[call][name]
    table = facts()["functions"][call]
    if name in [each[0] for each in table["parameters"]]:
        return f"{spelled(kind)} {name}"
    if spelled(kind) == "char*":
        return f"out char {name}[{following}]"
    return f"{'maybe' if call in _MAYBE else 'out'} {spelled(kind)} {name}"


def declaration(match: re.Match[str]) -> str:
    """Return the line of a function that works."""
    call, symbol = match["name"], match["symbol"]
    given = [each.strip() for each in match["parameters"].split(",") if each.strip()]
    names = [each.rpartition(" ")[2] for each in given]
    shown = [parameter(call, each, after) for each, after in zip(given, [*names[1:], ""], strict=False)]
    renamed = f" = {call}" if call != symbol else ""
    return f"{spelled(match['returns'])} {symbol}({', '.join(shown)}){renamed};"


def structs_by_value(names: set[str]) -> list[str]:
    """Return structs with their fields."""
    found = []
    for name in sorted(names):
        fields = [field_of(each) for each in facts()["structs"][real_name(name)]["fields"]]
        found.append(f"struct {name} {{ {' '.join(fields)} }};")
    return found


def field_of(field: list[Any]) -> str:
    """Return a field as the notation has it."""
    name, kind, _, _, nbytes = field
    word, _, rest = kind.partition(" ")
    if word in ("str", "bytes"):
        return f"char {name}[{nbytes}];"
    if word == "pointer":
        return f"void* {name};"
    return f"{rest if word in ('enum', 'struct') else spelled(kind)} {name};"


def wrapped(head: str, names: list[str]) -> list[str]:
    """Return statements with lists of names, none of them too long."""
    found, line = [], ""
    for name in names:
        if line and len(head) + len(line) + len(name) > _WIDTH:
            found.append(f"{head}{line};")
            line = ""
        line += f", {name}" if line else name
    return [*found, f"{head}{line};"] if line else found


def used_types(lines: list[str]) -> tuple[set[str], set[str]]:
    """Return the types that declarations name, and those of them that are passed by value."""
    used, by_value = set(), set()
    for line in lines:
        returns, _, rest = line.partition("(")
        for each in [returns, *rest.partition(")")[0].split(",")]:
            match = re.match(
                r"(?:refused |out |maybe |always |unread |given |const )*(\w+)(\**) \w+", each.strip()
            )
            if match and match[1] not in _PLAIN:
                used.add(match[1])
                if not match[2] and real_name(match[1]) in facts()["structs"]:
                    by_value.add(match[1])
    return used, {name for name in by_value if facts()["structs"][real_name(name)]["size"]}


def main() -> None:
    new, old = (Path(each) for each in sys.argv[1:3])
    functions = {**prototypes(old), **prototypes(new)}
    for name in _NATIVE:
        del functions[name]
    works = [declaration(each) for each in functions.values() if each["name"] in calls.table]
    looks = [f"refused {declaration(each)}" for each in functions.values() if each["name"] in calls.wrong]
    refused: dict[str, list[str]] = {}
    shown = {name for each in _SHOWN for name in re.findall(r"(\w+)\(", each)}
    for symbol, match in functions.items():
        if symbol not in shown and match["name"] not in calls.table and match["name"] not in calls.wrong:
            kind = spelled(match["returns"])
            kind = "void*" if kind.endswith("*") else kind
            same = "" if match["name"] == symbol else f" = {match['name']}"
            refused.setdefault(kind, []).append(symbol + same)
    refused["hipError_t"] += [f"{symbol} = {name}" for symbol, name in _OF_CXX.items()]
    works += _EARLIER
    used, by_value = used_types([*works, *looks, *_SHOWN, *(f"{kind} it()" for kind in refused)])
    described = facts()["structs"]
    enums = {name for name in used if real_name(name) in facts()["enums"]}
    enums |= {
        each[1].partition(" ")[2]
        for name in by_value
        for each in described[real_name(name)]["fields"]
        if each[1].startswith("enum ")
    }
    structs = {name for name in used - enums if described.get(real_name(name), {}).get("size")}
    structs.add("hipDeviceProp_tR0000")
    lines = [
        "// What HIP's runtime declares, for the dialect `hip`: made by scripts/extract_hip_declarations.py of the",
        "// public wheels of hip-python 10.0 and 7.2.  The notation: `c_declarations.py`.",
        "",
        *(f"typedef void* {name};" for name in sorted(used - enums - structs)),
        *wrapped("enum ", sorted(enums)),
        *wrapped("struct ", sorted(structs - by_value)),
        "",
        *structs_by_value(by_value),
        "",
        *works,
        *_ADDED,
        "",
        "// What a virtual device does not have.",
        *looks,
        *(f"refused {each}" for each in _SHOWN),
        *(line for kind, names in refused.items() for line in wrapped(f"refused {kind} ", names)),
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
