"""What a layer knows, by something small that is learned on top of it."""
