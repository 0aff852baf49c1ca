"""Counters of a real card, and their comparison with the emulator's."""
