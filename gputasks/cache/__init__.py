"""Artifacts of earlier runs, by what made them: restored in place of hours of training."""

from gputasks.cache.cache import Cache
from gputasks.cache.entries import Entry

__all__ = ["Cache", "Entry"]
