"""What users could call at the last tag, and cannot now: ``python tools/api.py [COMMIT]``.

Compares tests/core/snapshot.json with the tag's. Returns 1 if a minor version takes something away.
"""

import ast
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT, SNAPSHOT = Path(__file__).resolve().parents[1], "tests/core/snapshot.json"


def parameters(signature: str) -> tuple[list[str], set[str], set[str]]:
    """The parameters by position, all of them, and those that must be given."""
    of = ast.parse(f"def f{signature.replace('<factory>', 'None')}: ...").body[0].args
    places = [one.arg for one in of.posonlyargs + of.args]
    others = dict(zip([one.arg for one in of.kwonlyargs], of.kw_defaults, strict=True))
    needed = {*places[: len(places) - len(of.defaults)], *(k for k, v in others.items() if not v)}
    return places, {*places, *others, *(one.arg for one in (of.vararg, of.kwarg) if one)}, needed


def lost(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """A line for each thing that no longer works."""
    if where.endswith("/signature"):
        (places, every, needed), (now, still, wanted) = parameters(before), parameters(after)
        yield from (f"{where}: {name} is gone" for name in sorted(every - still))
        yield from (f"{where}: {name} must be given" for name in sorted(wanted - needed))
        kept = [name for name in places if name in still]
        yield from [f"{where}: other positions"] * (now[: len(kept)] != kept)
    elif isinstance(before, dict):
        for key, value in before.items():
            at = f"{where}/{key}"
            yield from lost(value, after[key], at) if key in after else [f"{at} is gone"]
    elif isinstance(before, list) or where.endswith(("/names", "/fields")):
        words = [one.split() if isinstance(one, str) else one for one in (before, after)]
        yield from (f"{where}: {one} is gone" for one in words[0] if one not in words[1])


def main() -> int:
    git = ["git", "-C", ROOT]
    tags = subprocess.check_output([*git, "tag", "--sort=-creatordate", "--merged"], text=True)
    version = runpy.run_path(str(ROOT / "gpureduce" / "version.py"))["VERSION"]
    for tag in sys.argv[1:] or tags.split()[:1]:
        before = json.loads(subprocess.check_output([*git, "show", f"{tag}:{SNAPSHOT}"]))
        gone = list(lost(before, json.loads((ROOT / SNAPSHOT).read_text())))
        print(f"Gone since {tag}: {len(gone)}", *gone, sep="\n")
        return bool(gone) and tag.startswith(f"v{version.split('.')[0]}.")
    print("There is no tag yet to compare with.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
