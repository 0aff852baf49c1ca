"""Fuzzers for every kind of input, an interrupter and an allocation breaker.

python tools/fuzz KIND [--cases N] [--seconds S] [--seed S] [--start I]

Each case is a function of the seed and the number of the case. See README.md in this folder.
"""
