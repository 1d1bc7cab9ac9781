"""What vendors of GPUs have in common, apart from their names, codes and policies: the machine behind their calls.

A vendor's dialect has a :class:`~peerlane.dialects.gpu.vendor.Vendor` and makes a
:class:`~peerlane.dialects.gpu.gpu.Gpu` of it.  Its calls read arguments, ask that, and make the vendor's results.
"""
