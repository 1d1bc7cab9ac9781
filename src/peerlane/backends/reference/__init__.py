"""The reference back-end: it defines each verb in plain Python and NumPy.

It has one process and is synchronous: when a verb returns, the bytes have moved.  With
``PEERLANE_NODE="backend=reference,devices=2"`` a process uses its devices.  Other back-ends are compared with it.
"""

from peerlane.backends.reference.backend import ReferenceFactory

FACTORY = ReferenceFactory()
