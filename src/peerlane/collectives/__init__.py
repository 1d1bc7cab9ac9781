"""Collectives of a group: one algorithm a file, written with channels, copies and reductions only."""
