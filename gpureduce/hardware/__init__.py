"""Hardware counters of a GPU, and their comparison with the emulator's counts."""
