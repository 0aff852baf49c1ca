"""Command lines made of the parsers' own options, with usual and odd values."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
from pathlib import Path
from random import Random

import numpy as np

from gpureduce.cli import main
from tools.fuzz import commands, consumers, values
from tools.fuzz.outcomes import Failure

_ODD = ("", " ", "-1", "0", "1.5", "nan", "1e400", "2^70", "2^-1", "2**10", "0x10", "x", "é",
        "\ud800", "a b", "--", "-", ",", "9" * 5000, "1_0", "٣", "None", "[]", "\0", "%s", "{0}",
        "18446744073709551616", "-9223372036854775809")  # fmt: skip
# Small values for the options that set the amount of work.
_SMALL = {
    "n": ("1", "100", "2^10"),
    "sizes": ("1", "100", "2^11"),
    "repeats": ("1", "2"),
    "block": ("32", "64", "256", "1024", "33"),
    "blocks": ("32", "64", "256", "1024", "33"),
    "grid": ("1", "2", "7", "64"),
    "offset": ("0", "1", "3"),
    "dtype": (*values.NAMES, "int", "M8[s]", "O", ">f4"),
    "dtypes": (*values.NAMES, "int", "M8[s]", "O", ">f4"),
    "input_dtype": (*values.NAMES, "int"),
    "accumulate": (*values.NAMES, "int"),
    "device": ("emulator", "cpu", "cuda", "cuda:1", "cuda:x", "emulator:0"),
    "schedule": ("forward", "reverse", "random", "lockstep", "random 7"),
    "schedules": ("forward", "reverse", "random", "lockstep", "random 7"),
    "lecture": ("none", "Lab", ""),
}
# Left out, they have much to do.
_ALWAYS = {"tour": ("n",), "bench": ("sizes", "repeats"), "tune": ("sizes", "repeats"),
           "explain": ("n",), "races": ("n",), "verify-counters": ("sizes",)}  # fmt: skip
# The scoreboard takes minutes.
_NEVER = ("help", "scoreboard")
_FOLDER_NAMES = ("out.json", "out.csv", "out.svg", "out", "no/out.json", "", ".", "a.npy", "x.txt")


# It takes longer to make than most commands take.
main._parser = functools.cache(main._parser)


@functools.cache
def _parsers() -> dict[str, argparse.ArgumentParser]:
    actions = main._parser()._actions
    (found,) = (a for a in actions if isinstance(a, argparse._SubParsersAction))
    return dict(found.choices)


@functools.cache
def _strategies() -> list[str]:
    import gpureduce

    return [name for s in gpureduce.strategies() for name in (s.name, *s.aliases)]


def _folder() -> Path:
    """A folder with some arrays in it."""
    folder = Path(tempfile.gettempdir()) / f"cli-{os.getpid()}"
    if not folder.is_dir():
        folder.mkdir()
        for name in ("int32", "float32", "bool", "complex64"):
            np.save(folder / f"{name}.npy", values.arena(name)[0][:3000])
        (folder / "a.npy").write_bytes(b"\x93NUMPY")
    return folder


def _file(rng: Random) -> str:
    if rng.random() < 0.05:
        return rng.choice(("/dev/full", "/proc/self/mem", "/", "\0", "é" * 300, "a.npy"))
    folder = _folder()
    names = [*_FOLDER_NAMES, *(path.name for path in folder.glob("*.npy"))]
    return f"{folder}/{rng.choice(names)}"


def _value(rng: Random, action: argparse.Action) -> str:
    name = action.dest
    if rng.random() < 0.12 and name not in _ALWAYS_NAMES:
        return rng.choice(_ODD)
    if action.choices:
        return rng.choice([str(choice) for choice in action.choices])
    if name in ("strategy", "strategies", "other"):
        return rng.choice(_strategies())
    if name == "file" and rng.random() < 0.8:
        return f"{_folder()}/{rng.choice(('int32', 'float32', 'bool', 'complex64'))}.npy"
    if name in ("file", "svg", "record", "output", "again"):
        path = _file(rng)  # who reads all of /dev/full reads for ever
        return path if name != "again" else path.replace("/dev/full", "/dev/null")
    return rng.choice(_SMALL.get(name, ("1", "x", "100")))


_ALWAYS_NAMES = ("n", "sizes", "repeats", "lecture")


def _words(rng: Random, action: argparse.Action) -> list[str]:
    """An option, or an argument by its place, with its values."""
    several = action.nargs in ("+", "*")
    count = rng.randint(1, 3) if several else 0 if action.nargs == 0 else 1
    found = [_value(rng, action) for _ in range(count)]
    if not action.option_strings:
        return found
    if count == 1 and rng.random() < 0.2:
        return [f"{action.option_strings[-1]}={found[0]}"]
    return [action.option_strings[-1], *found]


def _command(rng: Random) -> list[str]:
    name = rng.choice(list(_parsers()))
    actions = [a for a in _parsers()[name]._actions if a.dest not in _NEVER]
    words: list[str] = []
    for action in actions:
        must = action.dest in _ALWAYS.get(name, ())
        usual = 0.95 if not action.option_strings else 0.25
        if must or rng.random() < usual:
            words += _words(rng, action)
    if rng.random() < 0.05:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*_ODD, "--nothing", "--help")))
    return [name, *words]


def _arguments(rng: Random) -> list[str]:
    if rng.random() < 0.03:
        return [
            rng.choice((*_ODD, "--version", "--help", "nothing")) for _ in range(rng.randint(0, 3))
        ]
    return _command(rng)


def case(rng: Random) -> str:
    """A command line, run in this process."""
    status, out, err = commands.run(_arguments(rng))
    if status == 2:
        commands.check_refusal(err)
    elif status == 1 and not out:
        raise Failure("exit status 1 without a word")
    if rng.random() < 0.05:
        shutil.rmtree(_folder())
    if rng.random() < 0.05:
        consumers.check_next(rng)
    return f"exit {status}"
