"""Measurements of strategies, and of the libraries beside them."""
