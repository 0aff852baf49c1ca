"""Kernels that users write: compiled for the emulator, checked, and compared with the ladder."""
