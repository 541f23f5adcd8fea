"""Text in, contextual vectors out: in memory (embedder.py) or from file to file (job.py)."""
