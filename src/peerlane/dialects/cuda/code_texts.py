"""The texts of codes of CUDA's libraries: their names, and words of our own, the names in small letters.

Of success they are the vendor's words, which programs compare.
"""

from __future__ import annotations

from collections.abc import Mapping

from peerlane.dialects._shared.code_texts import CodeTexts, lower_case_words, texts

_UNKNOWN = "unrecognized error code"
_SUCCESS = "no error"


def _without(name: str, *beginnings: str) -> str:
    for each in beginnings:
        name = name.removeprefix(each)
    return name


def texts_of(enums: Mapping[str, Mapping[str, int]]) -> dict[str, CodeTexts]:
    """Return the texts of each function of a library that has texts of codes, by the enumerations of its header."""
    if "CUresult" in enums:  # each writes the text, and refuses other numbers
        members = enums["CUresult"]
        return {
            "cuGetErrorName": texts(members, "", str),
            "cuGetErrorString": texts(
                members,
                "",
                lambda name: (
                    _without(name, "CUDA_", "ERROR_").replace("_", " ").lower() if members[name] else _SUCCESS
                ),
            ),
        }
    if "cudaError_t" in enums:
        members = enums["cudaError_t"]
        return {
            "cudaGetErrorName": texts(members, _UNKNOWN, str),
            "cudaGetErrorString": texts(
                members,
                _UNKNOWN,
                lambda name: (
                    lower_case_words(_without(name, "cudaError", "cuda")) if members[name] else _SUCCESS
                ),
            ),
        }
    if "ncclResult_t" in enums:
        return {
            "ncclGetErrorString": texts(
                enums["ncclResult_t"],
                "unknown result code",
                lambda name: lower_case_words(_without(name, "nccl")),
            ),
            "ncclGetLastError": CodeTexts({}, "the process is ending"),
        }
    if "nvmlReturn_t" in enums:
        return {
            "nvmlErrorString": texts(
                enums["nvmlReturn_t"],
                "unknown",
                lambda name: _without(name, "NVML_", "ERROR_").replace("_", " ").lower(),
            )
        }
    return {}
