"""The bill of materials of a wheel: CycloneDX 1.6, in the wheel's `.dist-info/sboms` (PEP 770).

setup.py writes it. Two builds of the same sources with the same compilers write the same bytes.
"""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

FILE = "sboms/gpureduce.cdx.json"
_CUDA_LICENSE = "https://docs.nvidia.com/cuda/eula/index.html"


def cccl_version(toolkit: Path) -> str:
    """The version of CUB's headers; "" if they are not found."""
    for folder in ("include/cccl", "include"):
        path = toolkit / folder / "cub" / "version.cuh"
        found = re.search(r"#define CUB_VERSION (\d+)", path.read_text()) if path.exists() else None
        if found:
            number = int(found.group(1))
            return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"
    return ""


def _component(name: str, version: str, purl: str, license_: dict[str, Any], what: str) -> Any:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "description": what,
        "licenses": [license_],
        "purl": purl,
    }


def bill(version: str, info: dict[str, Any]) -> str:
    """The bill as text. `info` is what the build has written to `_build.json`."""
    own = f"pkg:pypi/gpureduce@{version}"
    parts = []
    if info["cuda"]:
        toolkit = info["nvcc"]
        parts.append(
            _component(
                "CUDA runtime",
                toolkit,
                f"pkg:generic/nvidia-cuda-runtime@{toolkit}",
                {"license": {"name": "NVIDIA CUDA Toolkit EULA", "url": _CUDA_LICENSE}},
                "libcudart_static, linked into _cuda",
            )
        )
        cccl = info["cccl"]
        parts.append(
            _component(
                "CUDA Core Compute Libraries",
                cccl,
                f"pkg:github/NVIDIA/cccl@v{cccl}",
                {"expression": "Apache-2.0 WITH LLVM-exception AND BSD-3-Clause"},
                "templates of CUB, compiled into _cuda",
            )
        )
    compilers = [{"type": "application", "name": "C compiler", "version": info["compiler"]}]
    if info["cuda"]:
        compilers.append({"type": "application", "name": "nvcc", "version": info["nvcc"]})
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + json.dumps(info))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": "gpureduce",
                "version": version,
                "licenses": [{"license": {"id": "MIT"}}],
                "purl": own,
            },
            "tools": {"components": compilers},
        },
        "components": parts,
        "dependencies": [
            {"ref": own, "dependsOn": [part["bom-ref"] for part in parts]},
            *({"ref": part["bom-ref"], "dependsOn": []} for part in parts),
        ],
    }
    return json.dumps(content, indent=1) + "\n"
