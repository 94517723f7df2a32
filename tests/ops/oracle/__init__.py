"""The operators in NumPy and extended precision, with no code and no algorithm of ``ops``.

An oracle is a function of a ``Problem`` that returns an ``Answer``. How far rounding may take an honest computation is
not derived for each operator: ``rounding.expected`` solves the problem again with its numbers off by some units.
"""
