"""The scalar equation solved in one kernel, which reads rows once and keeps them on chip between passes."""
