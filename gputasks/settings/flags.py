"""Params as words of a command line.  Pure, and the same text for the same value always.

============= ========================== ==================================
value         `"flags"`                  `"key=value"`
============= ========================== ==================================
3, 0.001, x   `--key 3`                  `key=3`
-1, "-x"      `--key=-1`                 `key=-1`, `key='-x'`
True          `--key`                    `key=true`
False         nothing                    `key=false`
None          nothing                    `key=null`
[1, 2]        `--key 1 2`                `key=[1,2]`
{"a": 1}      `--key.a 1`                `key={a:1}`
============= ========================== ==================================

`"flags"` is for argparse and LightningCLI.  A list is one flag with several words, which argparse
reads with `nargs="+"`; repeating the flag would silently keep the last value there.  Inside a list
a value that is neither text nor number is written as JSON.  For a LightningCLI option that wants
the word, give the word: `{"trainer.logger": "false"}`, `{"model.sizes": "[1, 2]"}`.

`"key=value"` is Hydra's grammar; a text that Hydra would read as something else is quoted.
OmegaConf's own `${…}` stays what it is.  What a command line cannot say, such as False against
None, stands in the JSON file that `$GPUTASKS_PARAMS` names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gputasks.specs import ParamsStyle

RESUME = "{resume}"


def param_argv(params: Mapping[str, Any], style: ParamsStyle) -> list[str]:
    """The words for a script, in the order of the params, keys verbatim."""
    if style == "flags":
        return [word for key, value in params.items() for word in _flag(key, value)]
    if style == "key=value":
        return [f"{key}={_hydra(value)}" for key, value in params.items()]
    return []


def inexpressible(params: Mapping[str, Any], style: ParamsStyle) -> Iterator[tuple[str, str]]:
    """Keys whose values the style cannot carry, with the reason: told before anything starts."""
    for key, value in params.items():
        if style == "key=value":
            yield from ((key, why) for why in _hydra_key_faults(value))
        elif style == "flags" and isinstance(value, dict):
            yield from ((f"{key}.{k}", why) for k, why in inexpressible(value, style))
        elif style == "flags" and isinstance(value, list):
            for word in map(_list_word, value):
                if word.startswith("-") and not _is_negative_number(word):
                    yield key, f"`{word}` in a list would be read as a flag"


def resolve_resume(args: Sequence[str], checkpoint: str | None) -> list[str]:
    """The further words of a command line with `{resume}` replaced by a checkpoint.

    Without one the word goes, and with it the flag before it when the word is that flag's value:
    `--ckpt_path {resume}`, `--ckpt={resume}` and `+ckpt={resume}` all leave nothing behind.
    """
    kept: list[str] = []
    for word in args:
        if RESUME not in word:
            kept.append(word)
        elif checkpoint is not None:
            kept.append(word.replace(RESUME, checkpoint))
        elif "=" not in word.partition(RESUME)[0] and kept and _is_flag(kept[-1]):
            kept.pop()
    return kept


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word.strip("-") != "" and "=" not in word


def _flag(key: str, value: Any) -> Iterator[str]:
    if value is None or value is False:
        return
    if value is True:
        yield f"--{key}"
    elif isinstance(value, dict):
        for inner, deeper in value.items():
            yield from _flag(f"{key}.{inner}", deeper)
    elif isinstance(value, list):
        yield f"--{key}"
        yield from map(_list_word, value)
    else:
        word = _plain(value)
        if word.startswith("-"):
            yield f"--{key}={word}"
        else:
            yield f"--{key}"
            yield word


def _plain(value: Any) -> str:
    # repr gives the shortest text that reads back as the same float: 1e-5 and 0.00001 are one.
    return value if isinstance(value, str) else repr(value)


def _list_word(value: Any) -> str:
    if value is None or isinstance(value, (bool, list, dict)):
        return json.dumps(value, separators=(",", ":"))
    word = _plain(value)
    if isinstance(value, float) and word.startswith("-") and "e" in word:
        # argparse takes `-0.00001` for a number, and before Python 3.14 `-1e-05` for a flag.
        from decimal import Decimal

        word = f"{Decimal(word):f}"
        word += "" if "." in word else ".0"
    return word


def _is_negative_number(word: str) -> bool:
    """What argparse takes for a number where it could be a flag: `-1`, `-0.5`."""
    digits = word[1:].replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and not word.endswith(".")


_HYDRA_WORDS = frozenset(("true", "false", "null", "nan", "inf"))


def _hydra(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ",".join(map(_hydra, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{_hydra(v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return value if _is_hydra_word(value) else _hydra_quoted(value)
    return repr(value)


def _is_hydra_word(text: str) -> bool:
    """A text that Hydra reads as this text without quotes."""
    return (
        text.isascii()
        and (text[:1].isalpha() or text[:1] in ("_", "/"))
        and text.lower() not in _HYDRA_WORDS
        and all(c.isalnum() or c in "_/.-" for c in text)
    )


def _hydra_quoted(text: str) -> str:
    """Hydra's quoting: a backslash is special only before a quote, or at the end."""
    parts = []
    backslashes = 0
    for c in text:
        if c == "'":
            parts.append("\\" * backslashes + "\\")
        backslashes = backslashes + 1 if c == "\\" else 0
        parts.append(c)
    return "'" + "".join(parts) + "\\" * backslashes + "'"


def _hydra_key_faults(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _is_hydra_word(key):
                yield f"`{key}` is no key that Hydra reads as this text"
            yield from _hydra_key_faults(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _hydra_key_faults(inner)
