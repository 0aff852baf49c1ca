"""The version. importlib.metadata would take longer to find it than all imports of a sum."""

VERSION = "1.0.0rc1"
