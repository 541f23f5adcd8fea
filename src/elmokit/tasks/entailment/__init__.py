"""Entailment (Chen et al. 2017)."""
