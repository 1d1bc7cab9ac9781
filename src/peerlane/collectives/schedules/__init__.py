"""Schedules: which bytes go to which rank in which round, as operations that a transport carries out.

A schedule is a pure generator of the operations of one rank.  It touches no memory and waits for nobody, so that a
test can run the operations of all ranks in one thread.  An algorithm is a module here and its line in ``choice.py``.
"""
