"""Benchmark of the operators against their peers: time, memory, scaling, compilations."""
