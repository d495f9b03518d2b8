"""Checks of single values, below the specs that use them, and how a fault is told.

Whole runs and files are checked by `settings`.
"""
