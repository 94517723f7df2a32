"""The way into and out of every operator: checks arguments, lays entries out as rows, compiles, restores shapes."""
