"""Graphs: ``hipGraphCreate``, ``hipGraphAddNode``, ``hipGraphLaunch``, ``hipStreamBeginCapture``."""

from peerlane.dialects.hip.graphs import captures, executables, graph, nodes  # noqa: F401 - they declare calls
