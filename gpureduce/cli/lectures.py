"""``gpureduce bench --lecture`` and ``gpureduce lecture frames``.

The first runs an experiment, prints its table and writes the record down. The second writes slides.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gpureduce.bench.command import REPEATS
from gpureduce.core import devices, output_files
from gpureduce.emulator import picture
from gpureduce.lectures import frames
from gpureduce.lectures.experiments import EXPERIMENTS, find
from gpureduce.lectures.kernel_profile import NoProfiler
from gpureduce.lectures.records import file_name, run
from gpureduce.lectures.tables import of_h100, show
from gpureduce.text import counted, show_json


def _target(record: str, lecture: str, device: devices.Device, force: bool) -> Path | None:
    """The file of a record: in a folder, if that is what the option names."""
    path = Path(record)
    if path.is_dir() or not path.suffix:
        path.mkdir(parents=True, exist_ok=True)
        path /= file_name(lecture, "emulator" if device.backend == "emulator" else device.name)
    return output_files.checked(str(path), "--record", "lecture", (".json",), force=force)


def command(arguments: argparse.Namespace) -> None:
    """Runs ``gpureduce bench --lecture``: runs, prints, and writes a record if asked to.

    Without a GPU it shows the record of an H100. Only for a record does the emulator run.
    """
    lecture, record = arguments.lecture, arguments.record
    if not lecture:
        raise ValueError("--record needs --lecture NAME, or --lecture all and a folder")
    names = list(EXPERIMENTS) if lecture == "all" else [find(lecture).name]
    if record and record.endswith(".json") and len(names) > 1:
        raise ValueError(f"--lecture all records into a folder: pass a folder, not {record}")
    repeats = REPEATS if arguments.repeats is None else arguments.repeats
    device = devices.choose_device(arguments.device)
    recorded = names if record else []
    targets = {name: _target(record, name, device, arguments.force) for name in recorded}
    for name in names:
        if device.backend == "emulator" and not record:
            print(f"\n{of_h100(name)}", flush=True)
            continue
        try:
            found = run(name, device.id, repeats)
        except NoProfiler as error:
            if lecture != "all":
                raise
            print(f"\n{name}: left out, since {error}")
            continue
        print(f"\n{show(found)}", flush=True)
        if target := targets.get(name):
            found.save(target)
            print(f"recorded in {target}", flush=True)
    if device.backend == "emulator":
        print("\nWhat an emulated GPU can tell is counted: gpureduce explain NAME.")


def _write_frames(arguments: argparse.Namespace) -> None:
    folder, form = Path(arguments.out), arguments.format
    output_files.write_new(folder, {})  # raises for a folder that has files
    made = {f"{one.name}.{form}": one for one in frames.frames()}
    files = {folder / name: picture.drawn(one.picture, form) for name, one in made.items()}
    index = folder / "index.html"
    output_files.write_new(folder, {**files, index: frames.page([*made.values()], form)})
    if arguments.json:
        show_json([{"file": name, "question": one.question, "sentence": one.sentence}
                   for name, one in made.items()])  # fmt: skip
    else:
        print(f"{counted(len(made), 'picture')} in {folder}; {index} shows them")


COMMAND = ("lecture", _write_frames, "write the slides of a lecture on the ladder", {
    "deed": {"metavar": "frames", "choices": ["frames"]},
    "--out": {"metavar": "FOLDER", "required": True, "help":
        "the folder, which must be new or empty"},
    "--format": {"choices": frames.FORMATS, "default": "svg", "help":
        "png and pdf need matplotlib (default: svg)"},
})  # fmt: skip
