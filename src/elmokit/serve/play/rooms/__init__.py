"""What each room of the page computes: `Request`, what the page sends, and `answer`, what it gets."""

ROOMS = ("start", "contexts", "why", "letters", "readers", "layers", "mix", "task")
