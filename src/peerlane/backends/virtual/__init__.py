"""Virtual devices: memory files behind guarded addresses, native streams, and sharing between processes."""

from peerlane.backends.virtual import (
    quick as quick,
)  # first: it sets the functions that the neutral API imports
