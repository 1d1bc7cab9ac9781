"""How long streams and collectives would take on a real machine, from its links and what was submitted.

``machines`` has the rates of the links, ``fluid`` shares them among transfers, ``operations`` reads what a log has,
``schedules`` has the steps of the vendors' collectives, and ``own_schedules`` runs peerlane's own.  ``result`` and
``collectives`` are what a program sees.
"""
