"""What every operator should return, in NumPy and extended precision: no code and no algorithm of ``ops``."""
