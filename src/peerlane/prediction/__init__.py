"""How long streams and collectives would take on a real machine, from its links and what was submitted.

``machines`` has the rates of the links, ``fluid`` shares them among transfers, ``operations`` reads what a log has,
and ``schedules`` has the steps of collectives.  ``result`` and ``collectives`` are what a program sees.
"""
