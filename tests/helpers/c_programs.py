"""Programs in C for tests: a header of what a library declares, and the compiler."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from peerlane.c_abi import directory
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function, Struct
from peerlane.dialects._shared.c_names import declarations_of as declarations
from peerlane.testing.procs import Completed

Ended: TypeAlias = subprocess.CompletedProcess[str] | Completed
Run: TypeAlias = Callable[..., Ended]
PEERLANE = (sys.executable, "-m", "peerlane")
ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "c_abi" / "programs"
LIBRARIES = {"acl": ("ascendcl",), "hip": ("amdhip64",), "hcomm": ("hcomm", "ascendcl")}
_FLAGS = ("-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
_SECONDS = 120


def header(dialect: str) -> str:
    """Return a header of C."""
    found = declarations(dialect)
    lines = ["#pragma once", "#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>"]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
    structs = [each for each in found.structs.values() if "." not in each.name]
    lines += [f"typedef {_keyword(each)} {each.name} {each.name};" for each in structs]
    lines += [f"typedef {_typed(each)};" for each in found.types.values()]
    lines += [
        f"typedef {each.returns.type} (*{each.name})({_parameters(each)});"
        for each in found.callbacks.values()
    ]
    lines += [f"{_keyword(each)} {each.name} {{ {' '.join(_fields(found, each))} }};" for each in structs]
    lines += [f"{_typed(each.returns)}({_parameters(each)});" for each in found.functions.values()]
    lines += ["#ifdef __cplusplus", "}", "#endif"]
    return "\n".join(lines) + "\n"


def _keyword(struct: Struct) -> str:
    return "union" if struct.is_union else "struct"


def _typed(each: Declarator) -> str:
    return f"{each.type} {'*' * each.stars}{each.name}"


def _fields(found: Declarations, struct: Struct) -> Iterator[str]:
    for each in struct.fields:
        inner = found.structs.get(each.type)
        if inner is not None and "." in inner.name:
            yield f"{_keyword(inner)} {{ {' '.join(_fields(found, inner))} }} {each.name};"
        elif each.is_behind:
            yield f"{each.type}{'*' * each.stars} *{each.name};"
        else:
            yield _typed(each) + (
                f"[{each.count}];" if each.count else f" : {each.bits};" if each.bits else ";"
            )


def _parameters(function: Function) -> str:
    made = [
        f"{'const ' if 'const' in each.words else ''}{each.type} {'*' * (each.stars + bool(each.count))}{each.name}"
        for each in function.parameters
    ]
    return ", ".join([*made, *["..."] * function.is_variadic]) or "void"


def compiled(folder: Path, source: Path, dialect: str, *flags: str) -> Path:
    """Compile a program, once for all processes that run tests, and return its path."""
    text = source.read_text() + header(dialect) + " ".join(flags)
    program = folder / f"{source.stem}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if program.exists():
        return program
    included = folder / f"{os.getpid()}.include"
    included.mkdir(exist_ok=True)
    (included / f"{dialect}.h").write_text(header(dialect))
    compiler = shutil.which("c++") or "g++"
    language = ("-x", "c", "-std=gnu11") if source.suffix == ".c" else ("-std=c++17",)
    made = program.with_suffix(f".{os.getpid()}")
    libraries = [f"-l{name}" for name in LIBRARIES[dialect]]
    words = [compiler, *language, *_FLAGS, f"-I{included}", *flags, str(source), "-x", "none"]
    subprocess.run([*words, f"-L{directory()}", *libraries, "-o", str(made)], check=True, timeout=_SECONDS)
    made.rename(program)
    return program


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    """Copy the test programs to a folder, each text replaced by another, and return the folder."""
    copies = {source.name: source.read_text() for source in PROGRAMS.iterdir() if source.is_file()}
    for old, new in changes:
        [name] = [name for name, text in copies.items() if text.count(old) == 1]
        copies[name] = copies[name].replace(old, new)
    for name, text in copies.items():
        (folder / name).write_text(text)
    return folder
