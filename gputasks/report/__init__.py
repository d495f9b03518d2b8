"""What people, and programs, see while doit runs."""

from gputasks.report.reporter import Reporter

__all__ = ["Reporter"]
