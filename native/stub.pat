# Lines that the stub generator cannot know: the buffer protocol is a type slot.
peerlane._core.Memory.__prefix__:
    def __buffer__(self, flags: int, /) -> memoryview: ...

peerlane._core.Exporter._exported:
    def _exported(self) -> object:
        """Return an object with the buffer that this one exports."""
    def __buffer__(self, flags: int, /) -> memoryview: ...
