# Lines that the stub generator cannot know: the buffer protocol is a type slot.
peerlane._core.Memory.__prefix__:
    def __buffer__(self, flags: int, /) -> memoryview: ...

peerlane._core.LateArea.__prefix__:
    def __buffer__(self, flags: int, /) -> memoryview: ...

peerlane._core.Exporter._exported:
    def _exported(self) -> object:
        """Return an object with the buffer that this one exports."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

peerlane._core.look_up_each:
    look_up_each: object
    """A C function that `benchmarks` times: void (*)(const uint64_t* addresses, size_t count)."""

peerlane._core.QuickMethod:
    \from typing import Any
    class QuickMethod:
        """A method of a ChannelEnd that native code serves where it can, and `otherwise` else."""
        def __init__(self, way: str, otherwise: Callable[..., None]) -> None: ...
        def __call__(self, *args: Any, **kwargs: Any) -> None: ...

peerlane._core.GroupCall:
    class GroupCall:
        """A collective or message of a group that native code makes where it can, and `otherwise` else."""
        def __init__(
            self,
            maker: Rounds | Mails,
            name: str,
            otherwise: Callable[..., None],
            finish: Callable[..., None],
            number_of: Callable[[str, Any, str], int],
        ) -> None: ...
        def __call__(self, *args: Any, **kwargs: Any) -> None: ...

peerlane._core.COLLECTIVE_VERBS:
    COLLECTIVE_VERBS: tuple[str, ...]

peerlane._core.MESSAGE_VERBS:
    MESSAGE_VERBS: tuple[str, ...]

peerlane._core.CHANNEL_VERBS:
    CHANNEL_VERBS: tuple[str, ...]

peerlane._core.LOG_KINDS:
    LOG_KINDS: dict[str, int]
    """The numbers of the kinds of events in a log, by name."""

peerlane._core.LOG_OPS:
    LOG_OPS: tuple[str, ...] = ...

peerlane._core.LOG_NOTICES:
    LOG_NOTICES: dict[str, int]
    """The numbers of what an event `noticed` says of an object, by name."""

peerlane._core.LOG_OBJECTS:
    LOG_OBJECTS: dict[str, int]
    """The numbers of the kinds of objects of which it says it, by name."""
