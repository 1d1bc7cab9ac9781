"""Virtual devices: memory files behind guarded addresses, native streams, sharing by processes."""

from peerlane.backends.virtual import quick as quick  # first: the neutral API reads what it fills in
