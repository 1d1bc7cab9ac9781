from collections.abc import Callable
from typing import Any

def __getattr__(name: str) -> Callable[..., int]: ...
