"""Random problems for every operator, each checked against an oracle of its own."""
