"""The tables of a project file: `[runs.NAME]`, `[images.NAME]`, `[nodes.NAME]`, the pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputasks.checks import images, values
from gputasks.checks.resources import pool_counts
from gputasks.errors import did_you_mean, nearest
from gputasks.imagespec import Image
from gputasks.settings import runs
from gputasks.settings.environment import is_name
from gputasks.specs import NodeSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gputasks.checks.faults import Faults
    from gputasks.specs import Run

NODE_KEYS = ("ssh", "address", "gpus", "python", "labels", "workdir", "price_per_gpu_hour",
             "ifname", "host_key")  # fmt: skip
_KINDS = ("script", "command", "shell")


def is_table_name(faults: Faults, what: str, name: str) -> bool:
    """Names stand in task names, file names and command lines: `[A-Za-z0-9_.-]+`."""
    fine = (
        name.isascii()
        and all(c.isalnum() or c in "_.-" for c in name)
        and name[:1] not in ("", "-")
    )
    if not fine:
        faults.add(
            f"`{name}` is no name for a {what}", hint="letters, digits, `_`, `.` and `-`, not first"
        )
    return fine


def run(faults: Faults, _name: str, table: Mapping[str, Any]) -> Run | None:
    """A training where there is a `script`, a program where there is a `command` or `shell` text.

    `shell = "a | b"` is short for `command = "a | b"` with `shell = true`.
    """
    keys = dict(table)
    kinds = [k for k in _KINDS if k in keys and not (k == "shell" and isinstance(keys[k], bool))]
    if len(kinds) > 1:
        faults.add(f"{faults.owner} has both `{kinds[0]}` and `{kinds[1]}`", kinds[1])
        return None
    if not kinds:
        valid = (*_KINDS, *runs.TRAIN_KEYS, *runs.COMMAND_KEYS)
        unknown = [k for k in keys if k not in valid]
        faults.unknown(unknown, valid)
        if not any(nearest(k, _KINDS) for k in unknown):
            faults.add(
                f"{faults.owner} says nothing to run",
                hint='`script = "train.py"`, `command = ["…"]` or `shell = "…"`',
            )
        return None
    before = len(faults.found)
    what = keys.pop(kinds[0])
    if kinds == ["script"]:
        made = runs.checked_train(faults, what, (), keys)
    else:
        if kinds == ["shell"]:
            keys["shell"] = True
        made = runs.checked_command(faults, what, (), keys)
    return made if len(faults.found) == before else None


def image(faults: Faults, name: str, table: Mapping[str, Any]) -> Image | None:
    """An image."""
    before = len(faults.found)
    images.checked_image(faults, name, table)
    return Image(name, **table) if len(faults.found) == before else None


def node(faults: Faults, name: str, table: Mapping[str, Any]) -> NodeSpec:
    """A node."""
    faults.unknown((k for k in table if k not in NODE_KEYS), NODE_KEYS)
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key == "gpus":
            fields[key] = _node_gpus(faults, value)
        elif key == "labels":
            fields[key] = _labels(faults, value)
        elif key == "price_per_gpu_hour":
            fields[key] = 0.0 if value == 0 and type(value) in (int, float) else values.positive(
                faults, key, value, most=10**6)  # fmt: skip
        elif key in NODE_KEYS:
            fields[key] = values.text(faults, key, value) or ""
    _check_destination(faults, "ssh", fields.get("ssh", ""))
    if fields.get("address"):
        _check_address(faults, fields["address"])
    if fields.get("host_key") and len(fields["host_key"].split()) < 2:
        faults.must("host_key", "a public key, `ssh-ed25519 AAAA…`", fields["host_key"])
    return NodeSpec(name=name, **fields)


def node_pool(faults: Faults, _name: str, table: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The nodes of a pool: names, or ssh destinations."""
    faults.unknown((k for k in table if k != "hosts"), ("hosts",))
    hosts = table.get("hosts")
    if not isinstance(hosts, list) or not hosts:
        faults.must("hosts", "a list of nodes", hosts)
        return None
    found = []
    for host in hosts:
        if values.text(faults, "hosts", host, what="a list of texts"):
            _check_destination(faults, "hosts", host)
            if host in found:
                faults.add(f"`{host}` is twice in `hosts` of {faults.owner}", "hosts")
            found.append(host)
    return tuple(found)


def resource_pools(faults: Faults, value: Any) -> dict[str, int]:
    """How many units there are of each pool."""
    return {} if value is None else pool_counts(faults, "resource_pools", value) or {}


def check_pools(faults: Faults, written: Any, pools: Mapping[str, int]) -> None:
    """Refuse runs that ask for a pool that is not there, or for more than it has.

    Args:
        faults: where to note them.
        written: the table of runs as it stands in the file, so that faulty runs are asked too.
        pools: what there is.

    """
    for name in written if isinstance(written, dict) else ():
        asked = written[name]
        for key in ("resources", "pool_resources"):
            asked = asked.get(key) if isinstance(asked, dict) else None
        for pool, count in asked.items() if isinstance(asked, dict) else ():
            at = ("runs", name, "resources", "pool_resources", pool)
            if pool not in pools:
                hint = did_you_mean(pool, pools) if pools else ""
                faults.add(
                    f"run `{name}` asks for pool `{pool}`, which is not there", *at, hint=hint
                )
            elif isinstance(count, int) and count > pools[pool]:
                has = f"which has {pools[pool]}"
                faults.add(f"run `{name}` asks for {count} of pool `{pool}`, {has}", *at)


def _node_gpus(faults: Faults, value: Any) -> Any:
    """A count, or the indices and UUIDs to use."""
    if not isinstance(value, list):
        return values.whole(faults, "gpus", value, least=0)
    for one in value:
        index = isinstance(one, int) and not isinstance(one, bool) and 0 <= one < values.MAX_COUNT
        if not index and not (isinstance(one, str) and one.startswith(("GPU-", "MIG-"))):
            faults.must("gpus", "a count, or a list of indices and `GPU-…` or `MIG-…` names", one)
    if len({str(v) for v in value}) != len(value):
        faults.add(f"`gpus` of {faults.owner} names a GPU twice", "gpus")
    return tuple(value)


def _labels(faults: Faults, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        faults.must("labels", "a table of names and texts", value)
        return {}
    for name, text in value.items():
        if not is_name(name.replace("-", "_").replace(".", "_")):
            faults.add(f"`{name}` in `labels` of {faults.owner} is no name", "labels", name)
        values.text(faults.inside(f"`labels` of {faults.owner}", "labels"), name, text)
    return dict(value)


def _check_destination(faults: Faults, key: str, value: str) -> None:
    # ssh would take `-oProxyCommand=…` for an option.
    if value.startswith("-") or any(c.isspace() for c in value):
        faults.must(key, "an ssh destination, `alias` or `user@address:port`", value)


def _check_address(faults: Faults, value: str) -> None:
    import ipaddress

    try:
        ipaddress.ip_address(value)
    except ValueError:
        # Names resolve differently on each node; Debian gives every machine 127.0.1.1 for its own.
        faults.must("address", "a numeric address", value, hint="names belong to `ssh`")
