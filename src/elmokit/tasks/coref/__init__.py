"""Coreference (Lee et al. 2017)."""
