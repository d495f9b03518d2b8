"""TOML files: one parser everywhere, and a place for everything that is wrong with them."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError
from gputasks.settings.lines import key_lines

if TYPE_CHECKING:
    from gputasks.settings.lines import Path

_NOT_TOML = {
    "None": "TOML has no None: leave the key out",
    "null": "TOML has no null: leave the key out",
    "True": "write `true`",
    "False": "write `false`",
}


class Document:
    """A file that was read.

    Args:
        path: as it was given.
        text: without a byte order mark.
        data: the tables.

    """

    def __init__(self, path: str, text: str, data: dict[str, Any]) -> None:
        self.path = path
        self.data = data
        self._text = text
        self._lines: Any = None

    def place(self, path: Path) -> str:
        """`gputasks.toml:12`: where the key at a path stands, or the nearest key above it."""
        if self._lines is None:
            self._lines = key_lines(self._text)
        line = self._lines.line(path)
        return self.path if line is None else f"{self.path}:{line}"


def read_toml(path: str) -> Document:
    """Read a file.  A byte order mark and Windows line ends are fine.

    Raises:
        ConfigError: missing, unreadable, not UTF-8, not TOML, a key or table twice; with the line.

    """
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        raise ConfigError(f"`{path}` is missing") from None
    except OSError as error:
        raise ConfigError(f"`{path}` cannot be read: {error.strerror}") from None
    return parse_toml(path, raw)


def parse_toml(path: str, raw: bytes) -> Document:
    """The same for bytes that were read from the file.

    Raises:
        ConfigError: not UTF-8, not TOML, a key or table twice; with the line.

    """
    text = _decoded(path, raw)
    return Document(path, text, _parsed(path, text))


def _decoded(path: str, raw: bytes) -> str:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(
            f"`{path}` is UTF-16, and TOML is UTF-8", hint=f"`iconv -f UTF-16 -t UTF-8 {path}`"
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `start` counts from behind a byte order mark.
        at = error.start + len(codecs.BOM_UTF8) * raw.startswith(codecs.BOM_UTF8)
        raise ConfigError(
            f"`{path}` is not UTF-8",
            place=f"{path}:{raw.count(bytes([10]), 0, at) + 1}",
            facts=[f"byte 0x{raw[at]:02x} at offset {at}"],
            hint=f"`iconv -f LATIN1 -t UTF-8 {path}`, if that is how it was written",
        ) from None


def _parsed(path: str, text: str) -> dict[str, Any]:
    import tomli

    try:
        return tomli.loads(text)
    except tomli.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error), getattr(error, "lineno", None)) from None
    except RecursionError:
        raise ConfigError(f"`{path}` is nested too deeply") from None
    except ValueError as error:  # a date that does not exist, a number of 5000 digits
        raise ConfigError(f"`{path}` is not valid TOML: {error}") from None


def _syntax_error(path: str, text: str, message: str, line: int | None) -> ConfigError:
    said, _, where = message.partition(" (at ")
    if line is None:  # tomli before 2.2 tells it in the text only
        number = where.removeprefix("line ").split(",")[0]
        line = int(number) if number.isdigit() else text.count("\n") + 1
    if said.startswith(("Cannot ", "Duplicate ")):
        for first, again in key_lines(text).again:
            if again.line <= line:
                return ConfigError(
                    f"`{again.text}` is defined twice",
                    place=f"{path}:{again.line}",
                    facts=[f"first as `{first.text}` at {path}:{first.line}"],
                )
    source = text.split("\n")[line - 1 : line]
    word = source[0].partition("=")[2].strip().rstrip(",") if source else ""
    return ConfigError(
        f"`{path}` is not valid TOML: {said[:1].lower()}{said[1:]}",
        place=f"{path}:{line}",
        facts=[where.rstrip(")")] if "column" in where else [],
        hint=_NOT_TOML.get(word, ""),
    )
