"""Benchmarks of the strategies and of other libraries."""
