"""Programs in C for tests: a header of what a library declares, and the compiler."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

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
_FLAGS = ("-g1", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
_SECONDS = 120


@functools.cache
def header(dialect: str) -> str:
    """Return a header of C."""
    declared = declarations(dialect)
    lines = ["#pragma once", "#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>"]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
    structs = [each for each in declared.structs.values() if "." not in each.name]
    lines += [f"typedef {_keyword(each)} {each.name} {each.name};" for each in structs]
    lines += [f"typedef {_typed(each)};" for each in declared.types.values()]
    lines += [
        f"typedef {each.returns.type} (*{each.name})({_parameters(each)});"
        for each in declared.callbacks.values()
    ]
    lines += [f"{_keyword(each)} {each.name} {{ {' '.join(_fields(declared, each))} }};" for each in structs]
    lines += [f"{_typed(each.returns)}({_parameters(each)});" for each in declared.functions.values()]
    lines += ["#ifdef __cplusplus", "}", "#endif"]
    return "\n".join(lines) + "\n"


def _keyword(struct: Struct) -> str:
    return "union" if struct.is_union else "struct"


def _typed(each: Declarator) -> str:
    return f"{each.type} {'*' * each.stars}{each.name}"


def _fields(declared: Declarations, struct: Struct) -> Iterator[str]:
    for each in struct.fields:
        inner = declared.structs.get(each.type)
        if inner is not None and "." in inner.name:
            yield f"{_keyword(inner)} {{ {' '.join(_fields(declared, inner))} }} {each.name};"
        elif each.is_behind:
            yield f"{each.type}{'*' * each.stars} *{each.name};"
        else:
            yield _typed(each) + (
                f"[{each.count}];" if each.count else f" : {each.bits};" if each.bits else ";"
            )


def _parameters(function: Function) -> str:
    declarators = [
        f"{'const ' if 'const' in each.words else ''}{each.type} {'*' * (each.stars + bool(each.count))}{each.name}"
        for each in function.parameters
    ]
    return ", ".join([*declarators, *["..."] * function.is_variadic]) or "void"


def folder_of_programs(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs that all processes of a run of tests share."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "c-programs"
    folder.mkdir(exist_ok=True)
    return folder


def compiled(folder: Path, source: Path, dialect: str, *flags: str) -> Path:
    """Compile a program that includes the header of a dialect, as :func:`built` does."""
    headers = written(folder, {f"{dialect}.h": header(dialect)})
    return built(folder, source, (*_FLAGS, f"-I{headers}", *flags), LIBRARIES[dialect])


def built(folder: Path, source: Path, flags: Sequence[str], libraries: Sequence[str]) -> Path:
    """Compile a program without a warning, once for all sources of the same text, and return its path."""
    language = ("-x", "c", "-std=gnu11") if source.suffix == ".c" else ("-std=c++17",)
    links = ["-x", "none", f"-L{directory()}", *(f"-l{name}" for name in libraries)]
    program = folder / f"{source.stem}.{_digest([*flags, *links, *_texts(source)])}"
    with _alone(program):
        if not program.exists():
            part = f"{program}.part"
            words = [shutil.which("c++") or "g++", *language, *flags, str(source), *links, "-o", part]
            done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=_SECONDS, check=False)
            print(done.stderr, end="", file=sys.stderr)
            done.check_returncode()
            assert not done.stderr
            Path(part).rename(program)
    return program


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    """Copy the test programs, each text replaced by another, and return the folder of the copies."""
    copies = {source.name: source.read_text() for source in PROGRAMS.iterdir() if source.is_file()}
    for old, new in changes:
        [name] = [name for name, text in copies.items() if text.count(old) == 1]
        copies[name] = copies[name].replace(old, new)
    return written(folder, copies)


def written(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write files to a folder of their own, once for all that have the same texts, and return the folder."""
    sources = folder / f"sources.{_digest([word for each in sorted(texts.items()) for word in each])}"
    with _alone(sources):
        if not sources.exists():
            part = Path(f"{sources}.part")
            part.mkdir()
            for name, text in texts.items():
                (part / name).write_text(text)
            part.rename(sources)
    return sources


def _texts(source: Path) -> list[str]:
    """Return the text of a source and of the headers beside it that it includes."""
    texts: dict[Path, str] = {}
    left = [source]
    while left:
        path = left.pop()
        if path not in texts and path.exists():
            texts[path] = path.read_text()
            left += [
                path.parent / name for name in re.findall(r'^#include "(.+)"', texts[path], re.MULTILINE)
            ]
    return list(texts.values())


def _digest(words: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
