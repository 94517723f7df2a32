"""What the tables, figures and claims of all experiments share: reading runs, pairing seeds, writing Markdown."""
