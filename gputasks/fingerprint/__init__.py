"""What is there now, by content: files, folders, the modules a script imports, the interpreter."""

from gputasks.fingerprint.digests import Digests
from gputasks.fingerprint.imports import local_imports
from gputasks.fingerprint.interpreters import Interpreter, interpreter
from gputasks.fingerprint.manifests import diff, read_manifest

__all__ = ["Digests", "Interpreter", "diff", "interpreter", "local_imports", "read_manifest"]
