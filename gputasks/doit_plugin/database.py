"""The sqlite3 file with doit's records, safe with several doit at once.

The table is the one of doit's own `sqlite3` backend, which can read it.

**No connection is kept.**  Saving a finished task is one short transaction; reading is one query.
So nothing is locked while tasks run, and no open database crosses the fork of `doit -n`.

**A rollback journal, fully synced**, and no write-ahead log: it works on network file systems and
for readers of a read-only folder, and leaves one file.  It costs some syncs per finished task, a
millisecond where the disk is fast, which is nothing beside a training.

**A damaged file** is moved aside, said in one line, and a new one begun: tasks without a record are
checked against their receipts, so that nothing counts as up to date for want of records.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from doit.exceptions import InvalidTask

from gputasks.errors import MachineError
from gputasks.layout import STATE_DIR, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_S = 60.0
"""How long to wait for the transactions of others, which take milliseconds each."""

_BULK_BYTES = 64 << 20
"""Size of a database from which records are only read one by one."""

_CREATE = "create table if not exists doit (task_id text not null primary key, task_data json)"
_MEANS = "every task will be checked against its receipt and may run again"


class StateError(InvalidTask, MachineError):  # type: ignore[misc]
    """Records that cannot be kept, as doit prints it: one message, no traceback."""


class Database:
    """One file of records by task.

    Args:
        path: of the file; made with its folder by the first `save`.

    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._said: set[str] = set()

    def load(self, task_id: str) -> bytes:
        """The record of one task as JSON, `{}` when there is none.

        Raises:
            StateError: the file cannot be read.

        """
        query = "select task_id, task_data from doit where task_id = ?"
        return self._read(query, task_id).get(task_id, b"{}")

    def load_all(self) -> dict[str, bytes] | None:
        """All records as JSON by task; None when they are too many to hold.

        Raises:
            StateError: the file cannot be read.

        """
        with contextlib.suppress(OSError):
            if os.path.getsize(self.path) > _BULK_BYTES:
                return None
        return self._read("select task_id, task_data from doit")

    def save(self, task_id: str, text: str) -> None:
        """Commit the record of a task; when this returns it is on the disk.

        Raises:
            StateError: it is not, and nothing else changed.

        """
        try:
            self._write("insert or replace into doit values (?, ?)", task_id, text)
        except (sqlite3.Error, OSError) as error:
            self._fail(f"`{task_id}` is done but cannot be recorded in `{self.path}`", error)

    def delete(self, task_id: str, *, strict: bool) -> bool:
        """Commit that a task has no record; False when that failed, which is then said.

        Raises:
            StateError: it failed, and `strict`.

        """
        try:
            self._write("delete from doit where task_id = ?", task_id)
        except (sqlite3.Error, OSError) as error:
            text = f"the record of `{task_id}` cannot be removed from `{self.path}`"
            if strict:
                self._fail(text, error)
            self._say(f"error: {text}: {_reason(error)}")
            return False
        return True

    def forget(self, task_id: str = "") -> None:
        """The user forgets a task, or all: their receipts count no more, nor does the cache."""
        layout = Layout(os.path.dirname(os.path.dirname(self.path)) or ".")
        folder = os.path.dirname(layout.receipt("x"))
        if os.path.basename(os.path.dirname(self.path)) != STATE_DIR or not os.path.isdir(folder):
            return
        receipts = [layout.receipt(task_id)] if task_id else _receipts(folder)
        for path in receipts:
            with contextlib.suppress(FileNotFoundError):
                os.replace(path, path.removesuffix(".json") + ".forgotten")

    def delete_all(self) -> None:
        """Commit that no task has a record.

        Raises:
            StateError: it failed, and no record was removed.

        """
        try:
            self._write("delete from doit")
        except (sqlite3.Error, OSError) as error:
            self._fail(f"records cannot be removed from `{self.path}`", error)

    def refuse(self, task_id: str, error: Exception) -> NoReturn:
        """The values of a task are no JSON.

        Raises:
            StateError: always.

        """
        raise StateError(
            f"`{task_id}` is done but cannot be recorded: its actions return what is no JSON",
            facts=[str(error)],
        ) from None

    def refuse_read_only(self) -> NoReturn:
        """Nothing can be recorded.

        Raises:
            StateError: always.

        """
        raise StateError(f"nothing can be recorded in `{self.path}`: it is read-only")

    def _fail(self, text: str, error: Exception) -> NoReturn:
        raise StateError(f"{text}: {_reason(error)}") from None

    def _read(self, query: str, *params: Any) -> dict[str, bytes]:
        try:
            self._say_if_empty()
            with self._connected() as connection:
                rows = connection.execute(query, params).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return {}
            self._fail(f"`{self.path}` cannot be read", error)
        except sqlite3.DatabaseError as error:
            self._move_aside(error)
            return {}
        return {str(k, "utf-8", "replace"): v if isinstance(v, bytes) else b"{}" for k, v in rows}

    def _write(self, statement: str, *params: Any) -> None:
        try:
            self._transact(statement, params)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            if not self._move_aside(error):
                raise
            self._transact(statement, params)

    def _transact(self, statement: str, params: tuple[Any, ...]) -> None:
        self._make_folder()
        with self._connected() as connection:
            connection.execute("begin immediate")
            connection.execute(_CREATE)
            connection.execute(statement, params)
            connection.execute("commit")

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        # Closing without a commit rolls back.
        connection = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
        connection.text_factory = bytes  # damaged text must not fail to decode
        try:
            yield connection
        finally:
            connection.close()

    def _make_folder(self) -> None:
        folder = os.path.dirname(self.path)
        if folder and not os.path.isdir(folder):
            if os.path.basename(folder) == STATE_DIR:
                Layout(os.path.dirname(folder)).prepare()
            else:
                os.makedirs(folder, exist_ok=True)

    def _say_if_empty(self) -> None:
        """An empty file is a new one, unless tasks have finished beside it."""
        receipts = os.path.join(os.path.dirname(self.path), "receipts")
        with contextlib.suppress(OSError):
            if not os.path.getsize(self.path) and os.listdir(receipts):
                self._say(
                    f"warning: `{self.path}` is empty although there are receipts in"
                    f" `{receipts}`: {_MEANS}"
                )

    def _move_aside(self, error: Exception) -> bool:
        """Put a damaged file out of the way; False when that cannot be done."""
        try:
            aside = self._rename()
        except OSError as fault:
            self._say(
                f"warning: `{self.path}` is damaged ({error}) and cannot be moved aside"
                f" ({fault.strerror}): {_MEANS}"
            )
            return False
        if aside:
            self._say(
                f"warning: `{self.path}` is damaged ({error}) and was moved to `{aside}`: {_MEANS}"
            )
        return True

    def _rename(self) -> str:
        """Rename the damaged file; empty when another process just did, and this is a new one."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                if not os.path.samestat(os.fstat(fd), os.stat(self.path)):
                    return ""
            except FileNotFoundError:
                return ""
            aside = base = f"{self.path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
            count = 1
            while os.path.lexists(aside):
                count += 1
                aside = f"{base}-{count}"
            # The journal first: left alone it would be rolled back into the new database.
            for suffix in ("-journal", "-wal", "-shm", ""):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path + suffix, aside + suffix)
            return aside
        finally:
            os.close(fd)

    def _say(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(line + "\n")


def _reason(error: Exception) -> str:
    """The words of sqlite or of the system, but for two that do not suffice alone."""
    text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    if "disk is full" in text:
        return "no space left on the disk"
    if "readonly" in text:
        return "it is read-only"
    return text


def _receipts(folder: str) -> list[str]:
    return [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".json")]
