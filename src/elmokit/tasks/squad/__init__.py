"""Question answering (Clark and Gardner 2017)."""
