"""Sentiment (McCann et al. 2017)."""
