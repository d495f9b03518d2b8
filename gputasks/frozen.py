"""Frozen dataclasses that cost nothing to make.

`dataclass(frozen=True)` writes and compiles six methods for each class: 3 ms for the four specs
that every dodo.py needs, each time doit starts.  Here the methods stand once, in a base class, and
`dataclasses` only notes the fields, so that `fields`, `replace` and `asdict` work as ever.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform

    @dataclass_transform(frozen_default=True, field_specifiers=(field,))
    def spec(cls: type[T]) -> type[T]:
        """For type checkers: a frozen dataclass."""
        return cls
else:
    spec = dataclass(init=False, repr=False, eq=False)


class Frozen:
    """Base of a `@spec`: equal by fields, shown by fields, never changed."""

    if not TYPE_CHECKING:  # a type checker knows the fields

        def __init__(self, *values: Any, **keys: Any) -> None:
            known = type(self).__dataclass_fields__
            keys.update(zip(known, values, strict=False))
            for name, one in known.items():
                if name in keys:
                    value = keys.pop(name)
                elif one.default is not MISSING:
                    value = one.default
                elif one.default_factory is not MISSING:
                    value = one.default_factory()
                else:
                    raise TypeError(f"{type(self).__name__}: `{name}` is missing")
                object.__setattr__(self, name, value)
            if keys:
                raise TypeError(f"{type(self).__name__} has no `{next(iter(keys))}`")

    def __setattr__(self, name: str, _value: Any) -> None:
        raise FrozenInstanceError(f"cannot change `{name}` of a {type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot remove `{name}` of a {type(self).__name__}")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({fields})"
