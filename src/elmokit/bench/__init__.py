"""How fast it is here: what the machine can do, and what a model makes of it; benchmarks/ share it."""
