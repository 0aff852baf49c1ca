"""Sums of arrays that lie on several devices, and of arrays that engines spread over a cluster."""
