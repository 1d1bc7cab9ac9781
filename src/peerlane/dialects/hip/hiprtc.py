"""``hip.hiprtc``: the run-time compiler, which peerlane does not have."""
