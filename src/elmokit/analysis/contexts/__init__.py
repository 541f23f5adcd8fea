"""A word and the contexts it stands in."""
