"""The command line of the fuzzers: ``python tools/fuzz KIND`` or ``python -m tools.fuzz KIND``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _arrange_path() -> None:
    """Make tests/support and `tools` importable, without hiding an installed gpureduce."""
    built = any((ROOT / "gpureduce").glob("_host*.so"))
    here = {str(Path(__file__).parent), *(() if built else (str(ROOT), ""))}
    sys.path[:] = [entry for entry in sys.path if entry not in here]
    sys.path += [str(ROOT), str(ROOT / "tests" / "support")]


_arrange_path()

from tools.fuzz import kinds, parent, worker  # noqa: E402


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    known = [*kinds.NAMES, "all"]
    parser.add_argument("kind", choices=[*known, kinds.SELF_TEST], metavar=f"{{{','.join(known)}}}")
    parser.add_argument("--cases", type=int, default=10_000, help="of each kind (default: 10000)")
    parser.add_argument("--seconds", type=float, default=0, help="stop each kind after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--timeout", type=float, default=20, help="seconds before a case hangs")
    parser.add_argument("--failures", type=int, default=50, help="give up a kind after so many")
    parser.add_argument("--python", action="store_true", help=kinds.PYTHON_HELP)
    parser.add_argument("--worker", nargs=3, metavar=("SHARED", "REPORT", "LAST"),
                        help=argparse.SUPPRESS)  # fmt: skip
    return parser.parse_args()


def main() -> int:
    """Run the kinds; the exit status is 1 if a case failed."""
    arguments = _arguments()
    if arguments.worker:
        return worker.main(arguments)
    if arguments.kind != "all":
        return 0 if parent.fuzz(arguments.kind, arguments) else 1
    clean = []
    for name in kinds.NAMES:
        cases = -(-arguments.cases // kinds.FEWER.get(name, 1))
        clean.append(parent.fuzz(name, argparse.Namespace(**vars(arguments) | {"cases": cases})))
    return 0 if all(clean) else 1


if __name__ == "__main__":
    sys.exit(main())
