"""What a user wrote, as keyword arguments or as TOML, turned into checked and frozen specs.

One set of checkers serves both forms, so that a run from a file equals the same run from a dodo.py.
Every fault of a call or of a file is told at once, with its place and the nearest valid name.
"""
