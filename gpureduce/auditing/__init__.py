"""Audits: whether a function gives the same bits in any circumstances, and how exact it is."""
