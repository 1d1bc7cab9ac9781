"""Writes the stubs: ``python -I -S scripts/type_stubs BUILD``; BUILD has the native modules, and gets ``stubs``."""

from __future__ import annotations

import shutil
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]


def import_package(build: Path) -> None:
    """Import peerlane from its source, and its native modules from where they are built."""
    folder = SCRIPTS.parent / "src" / "peerlane"
    spec = spec_from_file_location(
        "peerlane", folder / "__init__.py", submodule_search_locations=[str(folder), str(build)]
    )
    assert spec is not None and spec.loader is not None
    sys.modules["peerlane"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["peerlane"])


def main(build: Path) -> None:
    """Write all."""
    sys.dont_write_bytecode = True
    sys.path[0] = str(SCRIPTS)
    import_package(build)
    from peerlane.dialects import registered

    shutil.rmtree(build / "stubs", ignore_errors=True)  # else those of a module that went stay
    for name in registered():
        if (SCRIPTS / "type_stubs" / f"{name}.py").exists():
            for path, text in import_module(f"type_stubs.{name}").stubs().items():
                (build / "stubs" / path).parent.mkdir(parents=True, exist_ok=True)
                (build / "stubs" / path).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
