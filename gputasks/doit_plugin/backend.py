"""doit's records, committed per finished task.

doit imports this module at every command of every project in the environment, so it imports
nothing: the file itself is the business of `database`, loaded when there is one or something is to
be recorded.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputasks.doit_plugin.database import Database

Record = dict[str, Any]

_FEW = 3
"""Tasks that are looked up one by one before all records are read at once."""


class DurableDB:
    """A doit DB backend (interface: `doit.dependency.SqliteDB`).

    What a command has read stays as it was then, as in doit's own backends.

    Args:
        name: path of the database; made with its folder when something is to be recorded.
        codec: doit's, with `encode` and `decode`.
        module_name: of no use here.

    """

    desc = "sqlite3, committed per finished task (gputasks)"

    def __init__(self, name: str, codec: Any, *, module_name: str | None = None) -> None:  # noqa: ARG002  doit's signature
        self.name = name
        self.codec = codec
        self._database: Database | None = None
        self._records: dict[str, Record] = {}
        self._all: dict[str, bytes] | None = None
        self._lookups = 0
        self._changed: set[str] = set()
        self._unfinished = ""
        self._removed: set[str] = set()

    @property
    def _db(self) -> Database:
        if self._database is None:
            from gputasks.doit_plugin.database import Database

            self._database = Database(self.name)
        return self._database

    def get(self, task_id: str, dependency: str) -> Any:
        """One recorded value, or None."""
        record = self._records.get(task_id)
        if record is None:
            record = self._load(task_id)
        return record.get(dependency)

    def in_(self, task_id: str) -> bool:
        """Whether anything is recorded of a task."""
        record = self._records.get(task_id)
        return bool(self._load(task_id) if record is None else record)

    def _load(self, task_id: str) -> Record:
        """What was recorded of a task; empty when that is nothing or cannot be read."""
        self._lookups += 1
        if self._all is None and not os.path.exists(self.name):
            self._all = {}
        if self._all is None and self._lookups > _FEW:
            self._all = self._db.load_all()
        text = self._db.load(task_id) if self._all is None else self._all.pop(task_id, b"{}")
        try:
            record = self.codec.decode(text.decode("utf-8"))
        except (ValueError, TypeError):
            record = None
        found: Record = record if isinstance(record, dict) else {}
        self._records[task_id] = found
        return found

    def set(self, task_id: str, dependency: str, value: Any) -> None:
        """Note a value down.

        doit's `save_success` begins with `_values_:` and ends with `deps:`; then the record of the
        task is committed.

        Raises:
            StateError: the record cannot be written, or holds what is no JSON.

        """
        record = self._records.get(task_id)
        if record is None:
            record = self._load(task_id)
        record[dependency] = value
        self._changed.add(task_id)
        if dependency == "_values_:":
            self._unfinished = task_id
            _look_again()
        elif dependency == "deps:":
            self._unfinished = ""
            deps = set(value)
            for key in [k for k in record if k not in deps and not k.endswith(":")]:
                del record[key]  # the state of a file that is no dependency any more
            self._commit(task_id)

    def check_writable(self) -> None:
        """Refuse before a task starts what would only fail after it.

        Raises:
            StateError: the database or its folder is read-only.

        """
        folder = os.path.dirname(self.name) or "."
        while folder and not os.path.exists(folder):
            folder = os.path.dirname(folder) or "."
        database = self.name if os.path.exists(self.name) else folder
        if not (os.access(folder, os.W_OK) and os.access(database, os.W_OK)):
            self._db.refuse_read_only()

    def _commit(self, task_id: str) -> None:
        self._changed.discard(task_id)
        self._removed.discard(task_id)
        try:
            text = self.codec.encode(self._records[task_id])
        except (TypeError, ValueError) as error:
            self._db.refuse(task_id, error)
        else:
            self._db.save(task_id, text)

    def remove(self, task_id: str) -> None:
        """Forget a task: after it failed, or because the user asks for it.

        Raises:
            StateError: the user asks for it (`doit forget` looks nothing up) and it cannot be
                written.  In a run this is only said, so that the failure of the task is told.

        """
        _look_again()
        nothing = self._records.get(task_id) == {}
        self._records[task_id] = {}
        self._changed.discard(task_id)
        if self._unfinished == task_id:
            self._unfinished = ""
        if not self._lookups:
            self._db.forget(task_id)
        if (
            not nothing
            and os.path.exists(self.name)
            and not self._db.delete(task_id, strict=not self._lookups)
        ):
            self._removed.add(task_id)

    def remove_all(self) -> None:
        """Forget all tasks.

        Raises:
            StateError: it cannot be written.

        """
        self._records, self._all = {}, {}
        self._changed, self._removed = set(), set()
        self._db.forget()
        if os.path.exists(self.name):
            self._db.delete_all()

    def dump(self) -> None:
        """Write what is left: tasks to ignore, and removals that could not be written before.

        Raises:
            StateError: it cannot be written.

        """
        for task_id in self._removed:
            self._db.delete(task_id, strict=False)
        self._removed = set()
        # A save that broke off half-way is the record of something that never was.
        self._changed.discard(self._unfinished)
        for task_id in sorted(self._changed):
            self._commit(task_id)


def _look_again() -> None:
    """An action has ended, which may have changed any file: digests of before hold no more."""
    module = sys.modules.get("gputasks.fingerprint.digests")
    if module is not None:
        module.Digests.invalidate_shared()
