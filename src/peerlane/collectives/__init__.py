"""What all ranks of a group do together: one algorithm a file, written with channels, copies and reductions only."""
