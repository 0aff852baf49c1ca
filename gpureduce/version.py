"""The version. importlib.metadata would take longer to find it than all imports of a sum."""

VERSION = "0.1.0"
