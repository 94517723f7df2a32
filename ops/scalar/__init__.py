"""The one scalar equation that every relaxed top-k operator is solved by, and what follows from its root."""
