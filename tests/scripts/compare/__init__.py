"""A package, so that fixtures may last as long as its tests."""
