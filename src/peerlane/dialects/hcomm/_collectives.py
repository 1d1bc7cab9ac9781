"""``hcomm``: collectives (spec hcomm 4)."""
