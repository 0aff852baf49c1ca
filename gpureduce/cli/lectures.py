"""``gpureduce bench --lecture``: run an experiment, print its table, write the record down."""

from __future__ import annotations

from pathlib import Path

from gpureduce.lectures.experiments import EXPERIMENTS, find
from gpureduce.lectures.kernel_profile import NoProfiler
from gpureduce.lectures.records import Record, file_name, run
from gpureduce.lectures.tables import show


def _target(wanted: str, record: Record, many: bool) -> Path:
    path = Path(wanted)
    if path.suffix == ".json" and not many:
        return path
    path.mkdir(parents=True, exist_ok=True)
    return path / file_name(record.lecture, "emulator" if record.emulated else record.device)


def command(lecture: str, device: str | None, repeats: int, record: str | None) -> list[Record]:
    """Runs ``gpureduce bench --lecture``: runs, prints, and writes a record if asked to."""
    if not lecture:
        raise ValueError("--record goes with --lecture NAME, or --lecture all and a folder")
    names = list(EXPERIMENTS) if lecture == "all" else [find(lecture).name]
    if record and record.endswith(".json") and len(names) > 1:
        raise ValueError(f"all experiments need a folder to be recorded in, not {record}")
    done = []
    for name in names:
        try:
            found = run(name, device, repeats)
        except NoProfiler as error:
            if lecture != "all":
                raise
            print(f"\n{name}: left out, since {error}")
            continue
        print(f"\n{show(found)}", flush=True)
        if found.emulated:
            print("What an emulated GPU can tell is counted: gpureduce explain NAME.", flush=True)
        if record:
            path = _target(record, found, many=len(names) > 1)
            found.save(path)
            print(f"recorded in {path}", flush=True)
        done.append(found)
    return done
