"""The conductor: plan -> lease -> launch -> events -> verify -> receipt, in this order, once.

It knows neither doit nor a terminal: it works from a notebook or a test as from doit.
"""

from gputasks.run.conductor import conduct
from gputasks.run.job import Done, Job

__all__ = ["Done", "Job", "conduct"]
