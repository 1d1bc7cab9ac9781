"""Transports: how the bytes of a collective get from one rank to another.

``native`` has those of native code, for ranks of one machine: in rounds, and by mail.  ``channels`` carries out any
schedule, in Python.
"""
