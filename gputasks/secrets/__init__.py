"""`${secrets.NAME}`: written in dodo.py, resolved last, never kept and never shown.

A reference is what the fingerprint, the receipt and the record hold.  The value exists only in the
environment of the processes that need it, and in the memory of those that keep it out of the logs.

======= =================================================================================
resolve references of one task -> its variables, and what must be hidden of them
sources the shell's variables, a file, a command, in this order
forms   the ways in which a value may be spelt in a log
hidden  what a run does with them
======= =================================================================================
"""

from gputasks.secrets.hidden import Secrets
from gputasks.secrets.resolve import resolve

__all__ = ["Secrets", "resolve"]
