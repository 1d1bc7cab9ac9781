"""Makes the tables of the dialects' reference pages, and their type stubs, from the calls themselves.

``make reference`` writes them into the checkout; tests compare them.  No wheel has this package.
"""
