"""The provenance fields of every record: machine, versions, date and commit."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from gpureduce.core import devices

# The fields that `provenance` writes, and their types, for checks of records.
HEAD: dict[str, Any] = {
    "card": str,
    "device": str,
    "processor": str,
    "processors": int,
    "driver": str | None,
    "toolkit": str | None,
    "versions": dict[str, str],
    "date": str,
    "commit": str | None,
}


def output_of(*command: str) -> str | None:
    """What a command prints; None if it fails or prints nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _found(path: str, pattern: str) -> str | None:
    """The group of a pattern in a file; None without the file or a match."""
    try:
        found = re.search(pattern, Path(path).read_text(), re.MULTILINE)
    except OSError:
        return None
    return found[1] if found else None


def provenance(kind: str, device: devices.Device | None = None, schema: int = 1) -> dict[str, Any]:
    """Schema, GPU, driver, toolkit, versions, date, commit, and git's hashes of csrc's folders.

    The hashes are those of the sources that were built. The environment variable GPUREDUCE_COMMIT
    (``git rev-parse HEAD``) overrides the commit, for packages outside a checkout. `device` is the
    measured device, by default the first GPU.
    """
    device = device or devices.devices()[0]
    commit = os.environ.get("GPUREDUCE_COMMIT")
    info = devices.build_info()
    return {
        "schema": schema,
        "kind": kind,
        "card": device.name,
        "device": device.backend,
        "processor": _found("/proc/cpuinfo", r"^model name\s*: (.+)$") or platform.machine(),
        "processors": len(os.sched_getaffinity(0)),
        # CUDA's API knows only the version of CUDA that the driver supports.
        "driver": _found("/proc/driver/nvidia/version", r"\b(\d+\.\d+(?:\.\d+)?)\b"),
        "toolkit": info.get("nvcc"),
        "versions": {
            "gpureduce": info["version"],
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": commit or output_of("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"),
        "trees": dict(devices.build()["trees"]),
    }
