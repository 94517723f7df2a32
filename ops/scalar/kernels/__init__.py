"""The scalar equation solved in one kernel, which reads rows once and keeps them on chip from one pass to the next."""
