"""Back-ends: what executes.  One file each; the neutral API speaks to them through ``interface``."""
