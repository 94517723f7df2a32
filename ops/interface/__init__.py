"""The one door of the operators: checks arguments, lays entries out as rows, compiles, and restores."""
