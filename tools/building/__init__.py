"""The build of the compiled modules, for setup.py."""
