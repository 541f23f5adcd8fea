"""Other people's files <-> ours."""
