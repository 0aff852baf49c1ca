"""The version. importlib.metadata would need longer to find it than all else that a sum imports."""

VERSION = "0.1.0"
