"""A corpus -> a trained biLM."""
