"""Up to date means it: what a task consumed and left, compared with what is there now."""

from gputasks.receipts.inputs import take_inputs
from gputasks.receipts.receipt import Receipt
from gputasks.receipts.verdict import Verdict, evaluate

__all__ = ["Receipt", "Verdict", "evaluate", "take_inputs"]
