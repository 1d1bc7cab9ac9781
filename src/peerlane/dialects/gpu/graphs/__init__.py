"""Graphs: operations as nodes with edges, made by calls or by a capture, and launched as a whole."""
