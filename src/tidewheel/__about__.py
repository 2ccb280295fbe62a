"""The version, in one place: the build, the CLI and the worker registry read it here."""

__version__ = "0.1.0"
