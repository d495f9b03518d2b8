"""The version, where the package, the records and the command line find it."""

__version__ = "0.1.0"
