"""The fields of `Image`, from keywords or from a table of a file, all faults at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gputasks.checks import values
from gputasks.checks.faults import Faults, shown
from gputasks.checks.paths import as_text, clean_path
from gputasks.frozen import Frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GENERATED = ("apt_packages", "requirements", "python_package_installer",
             "python_package_installer_args", "index_urls", "environment", "run", "copy", "user",
             "workdir")  # fmt: skip
"""What is put into a generated Dockerfile; a Dockerfile of the user's says it itself."""

WRITTEN = ("target", "build_args")
"""What only a Dockerfile of the user's has."""

KEYS = ("parent_image", "dockerfile", *WRITTEN, "build_context_root", "dockerignore", *GENERATED,
        "secrets", "labels", "platform", "network", "cache", "skip_build", "push", "verify",
        "allow_secret_names")  # fmt: skip

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(KEYS, ""),
    **dict.fromkeys(("apt_packages", "requirements", "index_urls", "run"), ()),
    **{k: {} for k in ("environment", "copy", "build_args", "secrets", "labels")},
    "python_package_installer": "uv",
    "build_context_root": ".",
    "allow_secret_names": (),
    "cache": True,
    "skip_build": False,
    "verify": "auto",
}

_WITH_PREBUILT = ("parent_image", "skip_build", "verify", "platform", "push")
INSTALLERS = ("uv", "pip")
LOOKS_SECRET = r"(?i)TOKEN|PASSWORD|PASSWD|SECRET|KEY"  # noqa: S105  a pattern of names

_NAME = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_APT = r"[a-z0-9][a-z0-9+.:-]*(?:=[A-Za-z0-9.+:~-]+)?(?:/[a-z-]+)?"
_ID = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_REF = r"(?a)[\w.:/@-]+"

_HINTS = {
    "build_options": "`build_args`, `network`, `platform`, `labels` and `cache` are keys here",
    "image_tag": "the tag is made of the content, `gputasks/NAME:<digest>`",
    "runtime_environment": "`env=` of `gt.train` and `gt.command`",
    "base": "`parent_image`",
    "apt": "`apt_packages`",
    "pip": "`requirements`",
    "context": "`build_context_root`",
    "env": "`environment` for variables of the image, `env=` of `gt.train` for those of a run",
}


def image_fields(name: Any, extra: Sequence[Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Values for every field of `Image`.

    Raises:
        ConfigError: every fault of the call.

    """
    faults = Faults("`Image`")
    if extra:
        faults.add(f"`Image` takes one positional argument, the name; got {len(extra)} more")
    fields = checked_image(faults, name, keys)
    faults.finish()
    return fields


def checked_image(faults: Faults, name: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The same with a collector of the caller's."""
    fields: dict[str, Any] = {"name": _name(faults, name)}
    faults.unknown(keys, KEYS, _HINTS)
    given = {k: v for k, v in keys.items() if k in KEYS and v not in (None, "", (), {})}
    allowed = _texts(faults, "allow_secret_names", given.get("allow_secret_names", ()))
    for key, value in given.items():
        fields[key] = _value(faults, key, value, allowed)
    _installer(fields)
    told = {k: v for k, v in given.items() if v != DEFAULTS[k]}
    if fields["python_package_installer_args"] == {"system": None}:
        told.pop("python_package_installer_args", None)
    _check_together(faults, told)
    return {**DEFAULTS, **fields}


def _installer(fields: dict[str, Any]) -> None:
    fields["python_package_installer"] = fields.get("python_package_installer") or "uv"
    if "python_package_installer_args" not in fields:
        uv = fields["python_package_installer"] == "uv"
        fields["python_package_installer_args"] = {"system": None} if uv else {}


def _value(faults: Faults, key: str, value: Any, allowed: Sequence[str]) -> Any:
    if key in ("cache", "skip_build"):
        return values.boolean(faults, key, value)
    if key in ("apt_packages", "index_urls", "run", "allow_secret_names"):
        found = _texts(faults, key, value)
        for text in found:
            _check_item(faults, key, text)
        return found
    if key in ("environment", "build_args", "labels", "secrets"):
        return _table(faults, key, value, allowed)
    if key == "python_package_installer":
        return values.choice(faults, key, value, INSTALLERS)
    if key == "python_package_installer_args":
        return _arguments(faults, value)
    if key == "copy":
        return _copies(faults, value)
    if key in ("requirements", "dockerignore"):
        if isinstance(as_text(value), str):
            return clean_path(faults, key, value)
        return _texts(faults, key, value)
    if key in ("dockerfile", "build_context_root"):
        return clean_path(faults, key, value)
    if key == "parent_image":
        return _parent(faults, value)
    return _text(faults, key, value)


def _name(faults: Faults, name: Any) -> str:
    found = values.text(faults, "name", name, what="a word") or ""
    if found and not re.fullmatch(_NAME, found):
        hint = "small letters and digits, with `.`, `_` or `-` between them"
        lowered = re.sub(r"[^a-z0-9]+", "-", found.lower()).strip("-")
        faults.add(
            f"`{found}` is no name for an image",
            "name",
            hint=f"`{lowered}`: {hint}" if lowered else hint,
        )
    return found


def _parent(faults: Faults, value: Any) -> Any:
    if isinstance(value, Frozen) and hasattr(value, "parent_image"):
        return value  # another image of ours, which is checked
    found = values.text(faults, "parent_image", value) or ""
    if not found:
        return found
    if not re.fullmatch(_REF, found):
        faults.must("parent_image", "an image with a tag, e.g. `python:3.12-slim`", value)
    elif "@" not in found and ":" not in found.rpartition("/")[2]:
        faults.add(
            f"`{found}` in `parent_image` of {faults.owner} has neither tag nor digest:"
            " that is `latest`, another one every week",
            "parent_image",
            hint=f"`{found}:VERSION`, or `{found}@sha256:…`",
        )
    return found


def _text(faults: Faults, key: str, value: Any) -> str:
    found = values.text(faults, key, value) or ""
    if key in ("user", "workdir") and any(c in found for c in "$\"'\n "):
        faults.must(key, "a text without spaces, quotes and `$`", value)
    if key == "workdir" and found and not found.startswith("/"):
        faults.must(key, "an absolute path in the image", value)
    if (
        key == "verify"
        and found not in ("auto", "none", "cuda", "")
        and not re.fullmatch(r"\d+(\.\d+)?", found)
    ):
        faults.must(key, "`auto`, `none`, `cuda` or a version of CUDA, `13.0`", value)
    if key == "platform" and found and not re.fullmatch(r"[a-z0-9]+/[a-z0-9]+(/v\d+)?", found):
        faults.must(key, "a platform, e.g. `linux/amd64`", value)
    if key == "push" and found and (not re.fullmatch(_REF, found) or "@" in found):
        faults.must(key, "a repository, e.g. `registry.example.org/team/train`", value)
    return found


def _texts(faults: Faults, key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set, frozenset)):
        hint = f'write `{key}=["{value}"]`' if isinstance(value, str) else ""
        faults.must(key, "a list of texts", value, hint=hint)
        return ()
    found = []
    for item in sorted(value, key=str) if isinstance(value, (set, frozenset)) else value:
        if isinstance(item, str) and item.strip() and not values.unsendable(item):
            found.append(item)
        else:
            faults.must(key, "a list of texts", item)
    return tuple(found)


def _check_item(faults: Faults, key: str, text: str) -> None:
    if key == "apt_packages" and not re.fullmatch(_APT, text):
        faults.add(f"{shown(text)} in `apt_packages` of {faults.owner} is no package", key)
    if key == "index_urls":
        if not re.match(r"(https?|file)://", text):
            faults.must(key, "a list of URLs", text)
        elif re.match(r"https?://[^/]*@", text):
            faults.add(
                f"a URL in `index_urls` of {faults.owner} holds a password, which every layer"
                " would show",
                key,
                hint='`secrets={"pip.conf": "~/.config/pip/pip.conf"}` with the URL in that file',
            )


def _table(faults: Faults, key: str, value: Any, allowed: Sequence[str]) -> dict[str, str]:
    if not hasattr(value, "items"):
        faults.must(key, "a table of names and texts", value)
        return {}
    found = {}
    form = {"labels": _ID, "secrets": _ID}.get(key, _VARIABLE)
    for name, item in value.items():
        text = as_text(item) if key == "secrets" else item
        if not isinstance(name, str) or not re.fullmatch(form, name):
            faults.add(f"{shown(name)} in `{key}` of {faults.owner} is no name", key, str(name))
        elif not isinstance(text, str) or values.unsendable(text):
            hint = f'write `"{item}"`' if isinstance(item, (int, float)) else ""
            inner = faults.inside(f"`{key}` of {faults.owner}", key)
            inner.must(name, "a text", item, hint=hint)
        elif key in ("environment", "build_args") and _is_telling(name) and name not in allowed:
            faults.add(
                f"`{name}` in `{key}` of {faults.owner} looks like a secret, and everybody who has"
                " the image can read it",
                key,
                name,
                hint=f'`secrets={{"{name.lower()}": "env:{name}"}}` shows it to `RUN` only;'
                f' if it is none: `allow_secret_names=["{name}"]`',
            )
        elif key == "secrets" and not text:
            faults.must(key, "a file, or `env:NAME`", text)
        else:
            found[name] = text
    return found


def _is_telling(name: str) -> bool:
    return re.search(LOOKS_SECRET, name) is not None


def _arguments(faults: Faults, value: Any) -> dict[str, str | None]:
    """Options of the installer: None or true is a bare flag; TOML has no null."""
    key = "python_package_installer_args"
    if not hasattr(value, "items"):
        faults.must(key, 'a table, e.g. `{"system": None}` for `--system`', value)
        return {}
    found: dict[str, str | None] = {}
    for name, item in value.items():
        if not isinstance(name, str) or not re.fullmatch(_ID, name.lstrip("-")):
            faults.add(f"{shown(name)} in `{key}` of {faults.owner} is no option", key, str(name))
        elif item is None or item is True or item == "":
            found[name.lstrip("-")] = None
        elif isinstance(item, (str, int, float)) and not isinstance(item, bool):
            found[name.lstrip("-")] = str(item)
        else:
            inner = faults.inside(f"`{key}` of {faults.owner}", key)
            inner.must(name, "a text, or None for a bare flag", item)
    return found


def _copies(faults: Faults, value: Any) -> dict[str, str]:
    if isinstance(value, (list, tuple)):
        pairs = [str(v).partition(":") for v in value]
        items = [(source, target) for source, _, target in pairs]
    elif hasattr(value, "items"):
        items = [(as_text(k), v) for k, v in value.items()]
    else:
        faults.must("copy", 'a table, e.g. `{"src": "/app/src"}`', value)
        return {}
    found = {}
    for source, target in items:
        if not isinstance(target, str) or not target or "$" in target + str(source):
            faults.add(
                f"`copy` of {faults.owner} must say where {shown(source)} goes",
                "copy",
                hint=f'`copy={{"{source}": "/app/{source}"}}`',
            )
        elif path := clean_path(faults, "copy", source):
            found[path] = target
    return found


def _check_together(faults: Faults, given: Mapping[str, Any]) -> None:
    written, parent = "dockerfile" in given, "parent_image" in given
    if given.get("skip_build") is True:
        if not parent:
            faults.add(f"`skip_build` of {faults.owner} needs a `parent_image`", "skip_build")
        for key in given:
            if key not in _WITH_PREBUILT:
                faults.add(f"`{key}` of {faults.owner} has no effect with `skip_build`", key)
    elif not written and not parent:
        faults.add(
            f"{faults.owner} has nothing to start from",
            hint='`parent_image="python:3.12-slim"`, or `dockerfile="images/train.Dockerfile"`',
        )
    elif written:
        for key in given:
            if key in GENERATED or key == "parent_image":
                faults.add(
                    f"`{key}` of {faults.owner} is for images without a Dockerfile",
                    key,
                    hint="say it in the Dockerfile, or leave out `dockerfile`",
                )
    else:
        for key in given:
            if key in WRITTEN:
                faults.add(f"`{key}` of {faults.owner} needs a `dockerfile`", key)
