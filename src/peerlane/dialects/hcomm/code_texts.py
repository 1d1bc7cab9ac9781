"""The texts of HCCL's codes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects._shared.code_texts import CodeTexts, texts

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "HCCL_SUCCESS": "no error",
        "HCCL_E_PARA": "an argument is wrong",
        "HCCL_E_PTR": "a pointer is NULL",
        "HCCL_E_MEMORY": "memory cannot be used so",
        "HCCL_E_INTERNAL": "an internal error",
        "HCCL_E_NOT_SUPPORT": "this is not supported",
        "HCCL_E_NOT_FOUND": "an object or memory was not found",
        "HCCL_E_UNAVAIL": "a resource is used up",
        "HCCL_E_SYSCALL": "a call of the system failed",
        "HCCL_E_TIMEOUT": "a wait took too long",
        "HCCL_E_OPEN_FILE_FAILURE": "a file cannot be read",
        "HCCL_E_TCP_CONNECT": "no connection over TCP",
        "HCCL_E_ROCE_CONNECT": "no connection over RoCE",
        "HCCL_E_TCP_TRANSFER": "a transfer over TCP failed",
        "HCCL_E_ROCE_TRANSFER": "a transfer over RoCE failed",
        "HCCL_E_RUNTIME": "a call of the runtime failed",
        "HCCL_E_DRV": "a call of the driver failed",
        "HCCL_E_PROFILING": "a call of the profiler failed",
        "HCCL_E_CCE": "a call of the compute engine failed",
        "HCCL_E_NETWORK": "the network failed",
        "HCCL_E_AGAIN": "it is busy; try again",
        "HCCL_E_REMOTE": "the other end failed",
        "HCCL_E_SUSPENDING": "the communicator is suspended",
        "HCCL_E_OPRETRY_FAIL": "an operation cannot be repeated",
        "HCCL_E_OOM": "memory is used up",
        "HCCL_E_IN_STATUS": "the error is in the status",
    }
)


def texts_of(enums: Mapping[str, Mapping[str, int]]) -> dict[str, CodeTexts]:
    """Return the texts of each function that has texts of codes, by the enumerations of the header."""
    members = {name: number for name, number in enums["HcclResult"].items() if name in _WORDS}
    return {"HcclGetErrorString": texts(members, "unknown code", lambda name: f"{name}: {_WORDS[name]}")}
