"""Run the sanitizer's share of the GPU tests under the tools of compute-sanitizer, side by side.

    python tools/gpu_sanitizers.py [--record FILE] [--tool TOOL]...

`--record` adds each result at once to a record that ``pytest -m gpu --record FILE`` has written.
Without `--tool`, all tools run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

# Shares of the processors. The tools prepare each kernel that a process loads, so its tests stay
# together.
SHARES = {"memcheck": 4, "racecheck": 5, "synccheck": 3, "initcheck": 3}
TESTS = Path(__file__).resolve().parents[1] / "tests"


def run(tool: str, processes: int) -> dict[str, object]:
    """Runs one tool over all tests marked sanitizer. Returns its errors, and the passed tests."""
    command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all"]
    command += [sys.executable, "-P", "-m", "pytest", "-q", "-m", "sanitizer", str(TESTS)]
    command += ["-n", str(processes), "--dist", "worksteal", "-p", "no:benchmark"]
    command += ["--durations", "5"]  # printed below: the longest tests may need a part each
    done = subprocess.run(command, capture_output=True, text=True)
    passed = re.search(r"(\d+) passed", done.stdout)
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.stdout)
    clean = bool(done.returncode == 0 and passed and summary and summary[1].startswith("0 "))
    if not clean:
        reports = "\n".join(re.findall("^=+ .*", done.stdout, re.MULTILINE)[:60])
        print(reports, done.stdout[-4000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
    found = {
        "clean": clean,
        "summary": summary[1] if summary else "none",
        "tests": int(passed[1]) if passed else 0,
    }
    print(tool, found, flush=True)  # at once: the next tool may take long
    print(*re.findall(r"\d+\.\d+s call .*", done.stdout), sep="\n", flush=True)
    return found


def compile_outside(folder: str) -> None:
    """Compiles the program of a test once. Each tool would do so, and watch the compiler."""
    test = TESTS / "native" / "test_exact_add_header.py::test_nvcc_compiles_it"
    command = [sys.executable, "-P", "-m", "pytest", "-q", "--slow", str(test)]
    subprocess.run([*command, "--basetemp", f"{folder}/made"], check=True)
    os.environ.setdefault("GPUREDUCE_EXACT_ADD", f"{folder}/made/exact_add_card/exact_add")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path)
    parser.add_argument("--tool", action="append", choices=SHARES, help="only these")
    arguments = parser.parse_args()
    if arguments.record and not arguments.record.exists():
        parser.error(f"there is no {arguments.record}: `pytest -m gpu --record` writes it first")
    tools = arguments.tool or [*SHARES]
    shares = sum(SHARES[tool] for tool in tools)
    pool = ThreadPoolExecutor(len(SHARES))  # each tool leaves the GPU idle most of the time
    all_clean = True
    with tempfile.TemporaryDirectory() as folder, pool:
        compile_outside(folder)
        found = {
            pool.submit(run, tool, max(1, (os.cpu_count() or 1) * SHARES[tool] // shares)): tool
            for tool in tools
        }
        for one in as_completed(found):
            all_clean &= bool(one.result()["clean"])
            if arguments.record:
                record = json.loads(arguments.record.read_text())
                record.setdefault("compute_sanitizer", {})[found[one]] = one.result()
                arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all_clean else 1


if __name__ == "__main__":
    sys.exit(main())
