"""The reference back-end: what each verb means, in plain Python and NumPy.

One process, synchronous: when a verb returns, the bytes have moved.  ``PEERLANE_NODE="backend=reference,devices=2"``
makes its devices those of a process.  It is the model that other back-ends are compared with.
"""

from peerlane.backends.reference.backend import ReferenceFactory

FACTORY = ReferenceFactory()
