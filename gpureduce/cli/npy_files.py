""".npy files on the command line: arrays to add up, and sums to write."""

from __future__ import annotations

import argparse
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.core import output_files, text_files
from gpureduce.core.dtypes import quietly
from gpureduce.core.text_files import FileError

_NPY, _ZIP = b"\x93NUMPY", b"PK"
SEGMENTS: dict[str, dict[str, Any]] = {
    "--segment-ids": {"metavar": "IDS.npy", "help": "for kernels of sums by segment: the ids"},
    "--num-segments": {"type": int, "metavar": "K", "help": "default: the largest id plus one"},
}


def _check_header(path: str) -> None:
    """Raises for an itemsize of 0, which NumPy would divide by and cannot map."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
        (3, 0): np.lib.format.read_array_header_2_0,  # differs only in the encoding of names
    }
    with open(path, "rb") as file:
        version = np.lib.format.read_magic(file)
        if version not in readers:
            raise ValueError(f"its version is {version[0]}.{version[1]}, not from 1.0 to 3.0")
        shape, _, dtype = readers[version](file)
    if dtype.itemsize == 0:
        raise ValueError(f"its header says {dtype.str!r} and the shape {shape}")


def segments(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of Python for SEGMENTS."""
    path = arguments.segment_ids
    ids = None if path is None else load(path)
    return {"segment_ids": ids, "num_segments": arguments.num_segments}


def load(path: str) -> Any:
    """The array in a .npy file, mapped into memory."""
    if not path.endswith(".npy"):
        raise FileError(f"{path}: only .npy files can be read")
    if stat.S_ISFIFO(os.stat(path).st_mode):
        raise FileError(f"{path} is a pipe: write the array to a file, which can be mapped")
    with open(path, "rb") as file:
        start = file.read(len(_NPY))
    if start.startswith(_ZIP):
        raise FileError(
            f"{path} is an archive, as numpy.savez writes it: write one array with numpy.save"
        )
    if start != _NPY:
        raise FileError(f"{path} is not a .npy file: its first bytes are not those of one")
    try:
        _check_header(path)
        # NumPy's sizes wrap around before it refuses them.
        array = quietly(np.load, path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # any class: NumPy parses the header as Python
        reason = " ".join(str(error).split())
        if "Python objects" in reason:
            reason = "its elements are Python objects, not numbers"
        raise FileError(f"{path} is not a complete .npy file: {reason}") from error
    return array


OUTPUT: dict[str, Any] = {  # the options for a file of sums
    "--output": {"metavar": "FILE.npy", "help": "also write the sums to a file"},
    "--force": output_files.FORCE,
}


def target(arguments: argparse.Namespace, *inputs: str) -> Path | None:
    """The file of --output, checked before anything is added up."""
    return output_files.checked(
        arguments.output, "--output", "", (".npy",), inputs=inputs, force=arguments.force
    )


def save(path: Path, sums: Any) -> None:
    """Writes sums to a .npy file."""
    with text_files.replacing(path) as file:
        np.save(file, sums, allow_pickle=False)
