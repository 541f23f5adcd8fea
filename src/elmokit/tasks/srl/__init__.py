"""Semantic roles (He et al. 2017)."""
