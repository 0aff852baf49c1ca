"""The ``gpureduce`` command: readable output, and ``--json`` for programs."""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import gpureduce
from gpureduce.bench import command as bench_command
from gpureduce.bench import options, tuning
from gpureduce.bench.render import Cell, of
from gpureduce.bench.suites import axis, page, scan, scoreboard, several_devices, strategies
from gpureduce.bench.suites import segments as bench_segments
from gpureduce.cli import (
    assignment,
    audit,
    check,
    explain,
    grade,
    lectures,
    npy_files,
    progress,
    races,
    replay,
    segments,
    stats,
    tour,
)
from gpureduce.cli.arguments import Parser, refusal, words_of
from gpureduce.cli.kernel_files import kernel_paths, strategy_or_kernel
from gpureduce.core import calibration, registry
from gpureduce.core.checks import whole
from gpureduce.core.text_files import FileError
from gpureduce.kernels.source_text import KernelError
from gpureduce.lectures import experiments
from gpureduce.text import EMULATED, show, show_json, table
from gpureduce.training import speed


def _sum_row(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    array = npy_files.load(arguments.file)
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


_OF_A_SUM: dict[str, Cell] = {
    "strategy": of("strategy"), "sum": of("value", str), "block": of("block"), "grid": of("grid"),
    "launches": of("launches"), "kernel ms": of("kernel_ms", ".3f"),
    "total ms": of("total_ms", ".3f"), "GB/s": of("gb_s", ".2f"), "ran on": of("device"),
}  # fmt: skip
_OF_A_DEVICE: dict[str, Cell] = {
    "device": of("id"), "name": of("name"),
    "capability": of("capability", lambda both: ".".join(map(str, both))), "SMs": of("sms"),
    "memory GiB": of("memory_bytes", lambda nbytes: f"{nbytes / 2**30:.1f}"),
    "peak GB/s": of("peak_gb_s", ".0f"),
}  # fmt: skip


def _show(rows: Iterable[dict[str, Any]], columns: Mapping[str, Cell], right: range) -> None:
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    print(table(list(columns), cells, right=right))


def _show_sums(rows: list[dict[str, Any]]) -> None:
    _show(rows, _OF_A_SUM, range(1, 8))
    if any(row["source"] == "emulator" for row in rows):
        print(f"\n{EMULATED}")


def _command_sum(arguments: argparse.Namespace) -> None:
    if arguments.output is not None and len(arguments.strategy) > 1:
        raise ValueError("--output writes the sums of one strategy: name exactly one")
    target = npy_files.target(arguments, arguments.file)
    rows = [_sum_row(arguments, name) for name in arguments.strategy]
    if target:
        npy_files.save(target, rows[0]["value"])
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


# What `gpureduce bench` measures besides strategies: its suite, and the options that go with it.
_MODES: dict[str, tuple[Callable[[argparse.Namespace], bench_command.Suite] | None, Sequence[str]]]
_MODES = {
    "lecture": (None, ("record", "device", "repeats", "force")),
    "axis": (axis.suite,
             ("sizes", "dtypes", "parts", "device", "repeats", "output", "force", "json")),
    "scan": (scan.suite, ("sizes", "dtypes", "device", "repeats", "output", "force", "json")),
    "segments": (bench_segments.suite,
                 ("sizes", "dtypes", "device", "repeats", "output", "force", "json", "cub")),
    "torch": (speed.suite, ("sizes", "device", "repeats", "output", "force", "json")),
    "devices": (several_devices.suite,
                ("sizes", "dtypes", "strategies", "repeats", "json", "output", "force")),
}  # fmt: skip


def _check_options(arguments: argparse.Namespace, mode: str) -> None:
    """Raises for an option that a mode of ``gpureduce bench`` does not take."""
    usual, taken = vars(_parser().parse_args(["bench"])), _MODES[mode][1]
    for name, value in vars(arguments).items():
        if name not in (mode, *taken) and name in usual and value != usual[name]:
            takes = [f"--{option}" for option in taken]
            raise ValueError(
                f"--{name.replace('_', '-')} is not for --{mode}, which takes "
                f"{', '.join(takes[:-1])} and {takes[-1]}"
            )


def _command_bench(arguments: argparse.Namespace) -> None:
    modes = [mode for mode in _MODES if getattr(arguments, mode) not in (None, False)]
    for mode in modes:
        _check_options(arguments, mode)
    for n in arguments.sizes or ():
        whole("sizes", n, 1, 2**63 - 1)
    files = kernel_paths(arguments.strategies or ())
    arguments.inputs = [*files, *([arguments.cub] if arguments.cub else [])]
    if arguments.strategies and arguments.devices is None:
        arguments.strategies = [strategy_or_kernel(one) for one in arguments.strategies]
    for option, mode in (("parts", "axis"), ("cub", "segments")):
        if getattr(arguments, option) and not getattr(arguments, mode):
            raise ValueError(f"--{option} is for --{mode}")
    suite = _MODES[modes[0]][0] if modes else None
    if suite:
        bench_command.run(modes[0], suite, arguments)
    elif arguments.lecture or arguments.record:
        lectures.command(arguments)
    elif options.names_nothing(arguments):
        bench_command.run("bench", page.suite, arguments, page.as_html)
    elif arguments.scoreboard or options.names_nothing(arguments, ["call"]):
        bench_command.run("bench", scoreboard.suite, arguments)
    else:
        bench_command.run("bench", strategies.suite, arguments)


def _command_strategies(arguments: argparse.Namespace) -> None:
    found = gpureduce.strategies(arguments.internal)
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
    found = [dataclasses.asdict(device) for device in gpureduce.devices()]
    if arguments.json:
        show_json(found)
        return
    _show(found, _OF_A_DEVICE, range(2, 6))
    why = gpureduce.build_info()["why"]
    if why:
        print(f"\nNo GPU: {why}")


def _command_info(arguments: argparse.Namespace) -> None:
    info = gpureduce.build_info() | calibration.summary()
    if arguments.json:
        show_json(info)
        return
    for key, value in info.items():
        if key == "trees" or value in (None, "", []):
            continue
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        print(f"{key:12} {text}")


def _command_include(arguments: argparse.Namespace) -> None:
    path = gpureduce.include_path()
    show({"include": path}, path, arguments.json)


def _parser() -> Parser:
    parser = Parser(
        prog="gpureduce", description="Parallel reduction, rung by rung.",
        epilog="Start with: gpureduce tour. Every command has --help.",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=gpureduce.__version__)
    commands = parser.add_subparsers(metavar="COMMAND", dest="verb")
    parser.verbs = commands.choices

    def command(
        name: str, run: Callable[[argparse.Namespace], None], text: str,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        added = commands.add_parser(name, help=text, description=text)
        added.add_argument("--json", action="store_true", help="print JSON; nan and inf as strings")
        added.set_defaults(run=run, inputs=())
        for words, how in options.items():
            added.add_argument(*words.split(), **how)

    command("sum", _command_sum, "add up the elements of a .npy file", {
        "file": {"metavar": "FILE.npy"},
        "--strategy": {"nargs": "+", "default": ["auto"], "metavar": "NAME", "help": "one or more "
            "of: " + ", ".join(s.name for s in gpureduce.strategies()
                                if s.kind not in ("keys", "scan"))},
        "--dtype": {"help": "the dtype to add up in and return, as in numpy.sum"},
        "--block": {"type": int, "help": "threads per block: 32, 64, ... 1024"},
        "--grid": {"type": int, "help": "blocks"},
        "--finish": {"choices": registry.FINISHES, "help": "how block sums become one number"},
        "--device": {"help": "cuda, cuda:1, emulator, cpu, or cuda:* for all GPUs"},
        "--allow-broken": {"action": "store_true", "help":
            "run kernels that are wrong on purpose"},
        "--axis": {"type": _axis, "metavar": "AXIS", "help":
            "the axis to add up along, or several: 0 or 0,2"},
        "--keepdims": {"action": "store_true", "help": "keep the reduced axes, with size 1"},
        **npy_files.OUTPUT,
    })  # fmt: skip
    for first in (segments.COMMAND, stats.COMMAND, tour.COMMAND):
        command(*first)
    command("bench", _command_bench, "print a summary of this machine in a minute; or time what "
        "is named, and other libraries beside it", {
        **{f"--{name}": how for name, how in options.OPTIONS.items()},
        "--lecture": {"metavar": "NAME", "help": "run a lecture's experiment instead and print its "
            "figures beside ours; one of: " + ", ".join((*experiments.EXPERIMENTS, "all"))},
        "--record": {"metavar": "FILE.json", "help":
            "with --lecture: write the JSON that the notebooks read, to a file or into a folder"},
    })  # fmt: skip
    for one in (
        explain.EXPLAIN, explain.VERIFY, races.COMMAND, replay.COMMAND, check.COMMAND,
        grade.COMMAND, audit.COMMAND, assignment.COMMAND, lectures.COMMAND,
    ):  # fmt: skip
        command(*one)
    about = "find the quickest kernels of this card for `fast`"
    command("tune", tuning.command, about, tuning.OPTIONS)
    command("strategies", _command_strategies, "list the strategies and their lessons", {
        "--internal": {"action": "store_true", "help":
            "list the kernels that sums along an axis and by segment launch"},
    })  # fmt: skip
    command("devices", _command_devices, "list the devices")
    command("info", _command_info, "tell how gpureduce was built and what it found")
    command(
        "include", _command_include,
        "print the folder of gpureduce/exact_add.cuh, as in nvcc -I$(gpureduce include)",
    )  # fmt: skip
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
    parser = _parser()
    arguments, extra = parser.parse_known_args(argv)
    verb = parser.verbs.get(arguments.verb)
    if extra:
        (verb or parser).refuse(extra)
    try:
        arguments.run(arguments) if verb else parser.print_help()
        _flush()
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt as stop:
        print(": ".join(["gpureduce: broken off", *map(str, stop.args)]), file=sys.stderr)
        return 130  # shells' convention: 128 + the signal's number
    except OSError as error:
        print(refusal(words_of(error)), end="", file=sys.stderr)
    except (FileError, KernelError) as error:
        print(refusal(error), end="", file=sys.stderr)
    except (ValueError, TypeError) as error:
        print(refusal(error, verb), end="", file=sys.stderr)
    except (MemoryError, ImportError, RuntimeError) as error:
        print(refusal(error), end="", file=sys.stderr)
    else:
        return 0
    return 2
