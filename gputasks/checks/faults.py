"""All faults of one call or file, collected with their places, raised together at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.errors import ConfigError, ManyErrors, did_you_mean, raise_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Path = tuple[str, ...]
    Place = str | Callable[[Path], str]
    """A place for all faults, or a way to find the place of the key at a path."""


class Faults:
    """What is wrong with one owner of keys: a call, a spec, a table.

    Args:
        owner: how messages call it, with backticks: "`gt.train`", "run `large`".
        place: `file:line` of everything, or a function of the key's path.
        path: where the owner's keys lie in the file.

    """

    def __init__(
        self,
        owner: str,
        place: Place = "",
        path: Path = (),
        *,
        found: list[ConfigError] | None = None,
    ) -> None:
        self.owner = owner
        self._place = place
        self._path = path
        self.found: list[ConfigError] = [] if found is None else found

    def inside(self, owner: str, *keys: str) -> Faults:
        """A collector for what lies deeper; its faults come out with ours."""
        return Faults(owner, self._place, (*self._path, *keys), found=self.found)

    def at(self, *keys: str) -> str:
        """The place of a key, or the nearest place above it."""
        return self._place if isinstance(self._place, str) else self._place((*self._path, *keys))

    def add(self, message: str, *keys: str, hint: str = "", facts: Sequence[str] = ()) -> None:
        """Note a fault that stands at a key of the owner."""
        self.found.append(ConfigError(message, place=self.at(*keys), facts=facts, hint=hint))

    def must(self, key: str, what: str, value: Any, *, hint: str = "") -> None:
        """Note that a key must be something that its value is not."""
        self.add(f"`{key}` of {self.owner} must be {what}, not {shown(value)}", key, hint=hint)

    def take(self, error: ConfigError, *keys: str) -> None:
        """Note what another checker raised, as of a key of ours."""
        if isinstance(error, ManyErrors):
            for fault in error.faults:
                self.take(fault, *keys)
        else:
            place = error.place or self.at(*keys)
            self.found.append(
                ConfigError(error.message, place=place, facts=error.facts, hint=error.hint)
            )

    def unknown(
        self, keys: Iterable[Any], valid: Iterable[str], hints: Mapping[str, str] | None = None
    ) -> None:
        """Note each key that is not valid, with the nearest valid one.

        Args:
            keys: what was given.
            valid: what may be given.
            hints: better advice than the nearest name, for words of other tools.

        """
        names = tuple(valid)
        for key in keys:
            if key not in names:
                # `mem` is `memory`, whatever else has these letters in it.
                starts = [n for n in names if key and n.startswith(str(key))]
                guess = f"did you mean `{starts[0]}`?" if len(starts) == 1 else ""
                hint = (hints or {}).get(key) or guess or did_you_mean(str(key), names)
                self.add(f"unknown key `{key}` of {self.owner}", str(key), hint=hint)

    def finish(self) -> None:
        """Raise whatever was found.

        Raises:
            ConfigError: one fault, or all of them as `ManyErrors`.

        """
        raise_all(self.found)


def shown(value: Any) -> str:
    """A value as a message shows it: in backticks, on one line, never long, never failing."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a __repr__ of somebody else's, or an int of 5000 digits
        return f"a value of type `{type(value).__name__}`"
    if len(text) > 60:
        text = f"{text[:56]}…"
    return "`" + text.replace("\n", " ").replace("`", "'") + "`"
