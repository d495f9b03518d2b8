"""Is a file complete?  Only what its format can tell without loading it.

A half-written file is found by what its writer writes last: the central directory of a zip (torch
since 1.6, npz), the length that a safetensors header promises, the shape that an npy header
promises, the pickle's end of a legacy torch file.
"""

from __future__ import annotations

import json
import os
import struct

CHECKPOINTS = (".ckpt", ".pt", ".pth", ".safetensors")
"""Endings of files that a training can resume from."""

_ZIP_MAGIC = b"PK\x03\x04"
_NPY_MAGIC = b"\x93NUMPY"


def fault(path: str) -> str:
    """Why the file cannot be a finished one, or an empty string.

    A format that is not known here is only asked to be readable and not empty.

    Raises:
        OSError: never for what the file holds; only the caller's folder may be gone.

    """
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        return f"unreadable: {error.strerror}"
    if size == 0:
        return "empty"
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".npz", ".zip", ".ckpt", ".pt", ".pth"):
        if head.startswith(_ZIP_MAGIC):
            return _zip_fault(path)
        if suffix in (".npz", ".zip"):
            return "no zip archive"
        return _pickle_fault(path, head)
    if suffix == ".safetensors":
        return _safetensors_fault(path, size)
    if suffix == ".npy":
        return "" if head.startswith(_NPY_MAGIC) else "no npy file"
    if suffix == ".json":
        return _json_fault(path)
    return ""


def checkable(path: str) -> bool:
    """True when the file is of a format whose completeness `fault` can tell."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return False
    pickle = head[:1] == b"\x80" and head[1:2] != b"\x02"
    return head == _ZIP_MAGIC or pickle or path.lower().endswith(".safetensors")


def _zip_fault(path: str) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError):
        return "truncated: its zip directory, which is written last, is missing"
    return "" if names else "an empty archive"


def _pickle_fault(path: str, head: bytes) -> str:
    """A plain pickle must end with the STOP opcode.

    `.ckpt` is also the ending of formats that are not known here: those pass.  So do legacy torch
    files (protocol 2), whose storages follow the pickles without an end mark.
    """
    if head[:1] != b"\x80" or head[1:2] == b"\x02":
        return ""
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return "" if file.read(1) == b"." else "truncated: the pickle has no end"


def _safetensors_fault(path: str, size: int) -> str:
    """The header, after its length in 8 bytes little-endian, says where the last tensor ends."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
        if length > size - 8:
            return "truncated: shorter than its header"
        try:
            header = json.loads(file.read(length))
            ends = [v["data_offsets"][1] for k, v in header.items() if k != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return "its header is no safetensors header"
    promised = 8 + length + max(ends, default=0)
    return "" if size >= promised else f"truncated: {size} of {promised} bytes"


def _json_fault(path: str) -> str:
    try:
        with open(path, "rb") as file:
            json.load(file)
    except ValueError as error:
        return f"no JSON: {error}"
    return ""
