"""Transports: how the bytes of a collective get from one rank to another.

``rounds`` and ``mail`` are native code's, for ranks of one machine; ``channels`` carries out any schedule.
"""
