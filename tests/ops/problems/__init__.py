"""Random problems for every public operator, against ``tests.ops.oracle``; `make fuzz` tries many."""
