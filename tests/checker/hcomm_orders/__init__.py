"""The orders of the vendor's operator samples, right, in the words of these tests (docs/facts/hcomm.md).

Each module is a program: ``peerlane check -n RANKS -m checker.hcomm_orders.mesh [batch]``.  It runs its algorithm
twice, so that a notify counts by which memory may be used again, and compares every byte.  With ``batch`` the tasks
of a round are queued between ``HcommBatchModeStart`` and ``HcommBatchModeEnd``.
"""
