"""The ``gpureduce`` command: readable output, and ``--json`` for programs."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import stat
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gpureduce
from gpureduce.bench import by_axis, by_segment, overview, report, several_devices, tuning
from gpureduce.cli import check, explain, grade, lectures, progress, races, segments
from gpureduce.cli.kernel_files import strategy_or_kernel
from gpureduce.core import calibration, registry
from gpureduce.core.arrays import random_numbers
from gpureduce.core.checks import whole
from gpureduce.core.dtypes import quietly
from gpureduce.lectures import experiments
from gpureduce.text import EMULATED, number, show_json, table

TOUR = ["interleaved_mod", "interleaved_idx", "sequential", "unroll_warp", "first_add", "cascade"]
TOUR += ["warp_shfl", "last_block", "cpu", "numpy"]


_NPY, _ZIP = b"\x93NUMPY", b"PK"


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
            raise ValueError(f"its format is {version[0]}.{version[1]}, and 1.0 to 3.0 are known")
        shape, _, dtype = readers[version](file)
    if dtype.itemsize == 0:
        raise ValueError(f"its header says {dtype.str!r} and the shape {shape}")


def _load(path: str) -> Any:
    if not path.endswith(".npy"):
        raise ValueError(f"{path}: only .npy files can be read")
    if stat.S_ISFIFO(os.stat(path).st_mode):
        raise ValueError(
            f"{path} is a pipe: write the array to a file, which is mapped into memory"
        )
    with open(path, "rb") as file:
        start = file.read(len(_NPY))
    if start.startswith(_ZIP):
        raise ValueError(
            f"{path} is no whole .npy file: it is an archive, as numpy.savez writes; write one "
            "array by numpy.save"
        )
    if start != _NPY:
        raise ValueError(
            f"{path} is no whole .npy file: it does not begin as numpy.save begins one"
        )
    try:
        _check_header(path)
        # NumPy's sizes wrap around before it refuses them.
        array = quietly(np.load, path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # any class: NumPy parses the header as Python
        told = " ".join(str(error).split())
        if "Python objects" in told:
            told = "its elements are Python objects, not numbers"
        raise ValueError(f"{path} is no whole .npy file: {told}") from error
    return array


def _sum_row(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    array = _load(arguments.file)
    with progress.reading(array):
        value, timing = gpureduce.sum(
            array,
            strategy=name,
            dtype=arguments.dtype,
            block=arguments.block,
            grid=arguments.grid,
            finish=arguments.finish,
            device=arguments.device,
            allow_broken=arguments.allow_broken,
            axis=arguments.axis,
            keepdims=arguments.keepdims,
        )
    return dataclasses.asdict(timing) | {
        "strategy": name,
        "value": value,
        "ran": timing.strategy,
        "gb_s": timing.gb_s,
        "percent_of_peak": timing.percent_of_peak,
    }


def _show_sums(rows: list[dict[str, Any]]) -> None:
    head = [
        "strategy",
        "sum",
        "block",
        "grid",
        "launches",
        "kernel ms",
        "total ms",
        "GB/s",
        "ran on",
    ]
    cells = [
        [
            row["strategy"],
            str(row["value"]),
            str(row["block"] or ""),
            str(row["grid"] or ""),
            str(row["launches"] or ""),
            number(row["kernel_ms"]),
            number(row["total_ms"]),
            number(row["gb_s"], ".2f"),
            row["device"],
        ]
        for row in rows
    ]
    print(table(head, cells, right=range(1, 8)))
    if any(row["source"] == "emulator" for row in rows):
        print(f"\n{EMULATED}")


def _save(path: str, sums: Any) -> None:
    """Writes sums to a .npy file."""
    with open(path, "wb") as file:
        np.save(file, sums, allow_pickle=False)


def _command_sum(arguments: argparse.Namespace) -> None:
    if arguments.output is not None and len(arguments.strategy) > 1:
        raise ValueError("--output takes the sums of one strategy: name one")
    rows = [_sum_row(arguments, name) for name in arguments.strategy]
    if arguments.output is not None:
        _save(arguments.output, rows[0]["value"])
    if arguments.json:
        show_json(rows)
        return
    arrays = [row["value"] for row in rows if isinstance(row["value"], np.ndarray)]
    for row in rows:
        if isinstance(row["value"], np.ndarray):
            row["value"] = f"{row['value'].dtype}{list(row['value'].shape)}"
    _show_sums(rows)
    for row, sums in zip(rows, arrays, strict=False):
        print(f"\n{row['strategy']}:\n{sums}")


def _axis(text: str) -> int | tuple[int, ...]:
    """The axes of an option: a number, or several with commas between them."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"an axis is a whole number, or several as in 0,2, not {text!r}"
        ) from None
    return numbers if "," in text else numbers[0]


def _command_tour(arguments: argparse.Namespace) -> None:
    array = random_numbers(1).integers(-1000, 1000, arguments.n, dtype=np.int32)
    arguments.strategy = TOUR
    rows = []
    for name in TOUR:
        on_host = registry.find(name).kind == "host"
        value, timing = gpureduce.sum(
            array, strategy=name, device=None if on_host else arguments.device
        )
        rows.append({"strategy": name, "value": value, **dataclasses.asdict(timing)})
        rows[-1] |= {"strategy": name, "gb_s": timing.gb_s}
    if arguments.json:
        show_json(rows)
        return
    print(f"{arguments.n} random int32 numbers, added up in int64 by several strategies:\n")
    _show_sums(rows)


# What `gpureduce bench` measures besides strategies, and the options that go with it.
_MODES = {
    "lecture": ("record", "device", "repeats"),
    "axis": ("sizes", "dtypes", "parts", "device", "repeats", "output", "json"),
    "segments": ("sizes", "dtypes", "device", "repeats", "output", "json", "cub"),
    "devices": ("sizes", "dtypes", "strategies", "repeats", "json", "output"),
}


def _check_options(arguments: argparse.Namespace, mode: str) -> None:
    """Raises for an option that a mode of ``gpureduce bench`` does not take."""
    usual, taken = vars(_parser().parse_args(["bench"])), _MODES[mode]
    for name, value in vars(arguments).items():
        if name not in (mode, *taken) and name in usual and value != usual[name]:
            takes = [f"--{option}" for option in taken]
            raise ValueError(
                f"--{name.replace('_', '-')} is not for --{mode}, which takes "
                f"{', '.join(takes[:-1])} and {takes[-1]}"
            )


def _command_bench(arguments: argparse.Namespace) -> None:
    for mode in _MODES:
        if getattr(arguments, mode) not in (None, False):
            _check_options(arguments, mode)
    for n in arguments.sizes or ():
        whole("sizes", n, 1, 2**63 - 1)
    if arguments.strategies and arguments.devices is None:
        arguments.strategies = [strategy_or_kernel(one) for one in arguments.strategies]
    if arguments.parts and not arguments.axis:
        raise ValueError("--parts is for --axis")
    if arguments.axis:
        by_axis.command(arguments)
    elif arguments.segments:
        by_segment.command(arguments)
    elif arguments.devices is not None:
        several_devices.command(arguments)
    elif arguments.lecture or arguments.record:
        repeats = report.REPEATS if arguments.repeats is None else arguments.repeats
        lectures.command(arguments.lecture or "", arguments.device, repeats, arguments.record)
    elif report.names_nothing(arguments):
        overview.command(arguments)
    else:
        report.command(arguments)


def _command_strategies(arguments: argparse.Namespace) -> None:
    found = gpureduce.strategies()
    if arguments.json:
        rows = [dataclasses.asdict(s) | {"broken": s.broken} for s in found]
        show_json([{k: v for k, v in r.items() if k not in ("index", "traits")} for r in rows])
        return
    for row in found:
        extra = [f"also {', '.join(row.aliases)}"] if row.aliases else []
        extra += [f"needs {row.needs}"] if row.needs else []
        extra += [f"{' and '.join(row.dtypes)} only"] if len(row.dtypes) == 2 else []
        extra += ["floats change from run to run"] if not row.deterministic | row.broken else []
        print(row.name + (f"  ({'; '.join(extra)})" if extra else ""))
        print(textwrap.fill(row.lesson, 96, initial_indent="    ", subsequent_indent="    "))


def _command_devices(arguments: argparse.Namespace) -> None:
    found = gpureduce.devices()
    if arguments.json:
        show_json([dataclasses.asdict(device) for device in found])
        return
    head = ["device", "name", "capability", "SMs", "memory GiB", "peak GB/s"]
    rows = [
        [
            device.id,
            device.name,
            ".".join(map(str, device.capability)),
            str(device.sms),
            number(device.memory_bytes / 2**30, ".1f"),
            number(device.peak_gb_s, ".0f"),
        ]
        for device in found
    ]
    print(table(head, rows, right=range(2, 6)))
    why = gpureduce.build_info()["why"]
    if why:
        print(f"\nNo GPU: {why}")


def _command_info(arguments: argparse.Namespace) -> None:
    info = gpureduce.build_info() | calibration.told()
    if arguments.json:
        show_json(info)
        return
    for key, value in info.items():
        if key == "trees" or value in (None, "", []):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        print(f"{key:12} {text}")


def _sum_arguments(adding: argparse.ArgumentParser) -> None:
    adding.add_argument("file", metavar="FILE.npy")
    adding.add_argument(
        "--strategy",
        nargs="+",
        default=["auto"],
        metavar="NAME",
        help="one or more of: "
        + ", ".join(s.name for s in gpureduce.strategies() if s.kind not in ("segments", "keys")),
    )
    adding.add_argument("--dtype", help="the dtype to add up in and return, as in numpy.sum")
    adding.add_argument("--block", type=int, help="threads per block: 32, 64, ... 1024")
    adding.add_argument("--grid", type=int, help="blocks")
    adding.add_argument(
        "--finish", choices=registry.FINISHES, help="how block sums become one number"
    )
    adding.add_argument("--device", help="cuda, cuda:1, emulator, cpu, or cuda:* for all GPUs")
    adding.add_argument(
        "--allow-broken", action="store_true", help="run kernels that are wrong on purpose"
    )
    adding.add_argument(
        "--axis", type=_axis, metavar="AXIS", help="the axis to add up along, or several: 0 or 0,2"
    )
    adding.add_argument(
        "--keepdims", action="store_true", help="keep the reduced axes, with size 1"
    )
    adding.add_argument("--output", metavar="FILE.npy", help="also write the sums to a file")


def _bench_arguments(benching: argparse.ArgumentParser) -> None:
    report.add_arguments(benching)
    by_axis.add_arguments(benching)
    benching.add_argument(
        "--segments",
        action="store_true",
        help="time sums by segment beside other libraries; takes --sizes, --dtypes, --device, "
        "--repeats and --output",
    )
    benching.add_argument(
        "--cub",
        metavar="LIBRARY",
        help="with --segments on a card: a build of tools/cub_segments.cu, for CUB and limits",
    )
    benching.add_argument(
        "--lecture",
        metavar="NAME",
        help="run a lecture's experiment instead and print its figures beside ours; one of: "
        + ", ".join((*experiments.EXPERIMENTS, "all")),
    )
    benching.add_argument(
        "--record", metavar="FILE", help="with --lecture: write the JSON that the notebooks read"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpureduce", description="Parallel reduction, rung by rung."
    )
    parser.add_argument("--version", action="version", version=gpureduce.__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> Any:
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON; nan and inf as strings")
        added.set_defaults(run=run)
        return added

    _sum_arguments(command("sum", _command_sum, "add up the elements of a .npy file"))
    segments.register(command, _load, _save)

    tour = command("tour", _command_tour, "add up random numbers by several strategies")
    tour.add_argument(
        "--n", type=report.size, default=2**20, help="how many numbers (default: 2^20)"
    )
    tour.add_argument("--device", help="cuda, cuda:1 or emulator")

    benching = command(
        "bench",
        _command_bench,
        "print a summary of this machine in a minute; or time what is named, and other libraries "
        "beside it",
    )
    _bench_arguments(benching)
    explain.register(command)
    races.register(command)
    check.register(command)
    grade.register(command)
    tuning_ = command("tune", tuning.command, "find the quickest kernels of this card for `fast`")
    tuning.add_arguments(tuning_)

    command("strategies", _command_strategies, "list the strategies and what each one teaches")
    command("devices", _command_devices, "list the devices")
    command("info", _command_info, "tell how gpureduce was built and what it found")
    return parser


def _flush() -> None:
    """Flushes stdout now. If the flush at exit failed, Python would print its own message."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # keeps Python's flush at exit from failing, too
        raise


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Errors go to standard error; returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale may lack arrows and shades
    if sys.stderr is None:  # closed; print() would take stdout instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
        _flush()
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt as stop:
        print(": ".join(["gpureduce: broken off", *map(str, stop.args)]), file=sys.stderr)
        return 130  # shells' convention: 128 + the signal's number
    except (OSError, ValueError, TypeError, MemoryError, ImportError, RuntimeError) as error:
        print(f"gpureduce: {error}", file=sys.stderr)
        return 2
    return 0
