"""The laboratory: peerlane against other libraries, against its own bars, and against another build.

``python -m benchmarks SUBJECT`` measures, ``python -m benchmarks against PYTHON`` compares two builds.  `peerlane
bench`, which is in the wheel, has the method and what users measure; this package adds the contenders and the bars.
"""
