"""The common parts of all tables, figures and claims: reading runs, pairing seeds, writing Markdown."""
