"""The parser of the command line. An error is one line of reason, then the verb's usage."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gpureduce.core.checks import nearest, no_such, shown
from gpureduce.text import visible


class Parser(argparse.ArgumentParser):
    """A parser of the command line, or of one of its verbs."""

    verbs: Mapping[str, Parser]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._given: set[str] = set()

    def _get_values(self, action: argparse.Action, words: list[str]) -> Any:
        """The value of an option. argparse would keep the last of two."""
        if action.option_strings and action.nargs != 0:
            if action.dest in self._given:
                raise argparse.ArgumentError(None, f"{action.option_strings[-1]} is given twice")
            self._given.add(action.dest)
        return super()._get_values(action, words)

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        message = re.sub(
            "^argument (.*): invalid int value: ", r"\1 must be a whole number, not ", message
        )
        missing = "the following arguments are required: "
        if message.startswith(missing):
            names = message.removeprefix(missing)
            message = f"{names} {'are' if ',' in names else 'is'} missing"
            if any(action.nargs == "+" for action in self._actions):
                message += "; write it before options that take several words"
        self.exit(2, refusal(message, self))

    def format_usage(self) -> str:
        """One line: --help lists the options."""
        return f"usage: {self._words()}\n"

    def format_help(self) -> str:
        """The usage, the arguments and the options."""
        self.usage = self._words()
        return super().format_help()

    def _words(self) -> str:
        words = [self.prog]
        for action in self._actions:
            if not action.option_strings:
                name = str(action.metavar or action.dest)
                words.append(name if action.nargs != "?" else f"[{name}]")
        return " ".join([*words, "[options]"])

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raises for a value that is no choice. argparse calls it for verbs, too."""
        choices = [*map(str, action.choices or [str(value)])]
        if str(value) in choices:
            return
        if not action.option_strings:
            raise argparse.ArgumentError(None, no_such("command", value, choices))
        said = (
            f"{action.option_strings[-1]} must be one of {', '.join(choices)}, not {shown(value)}"
        )
        like = nearest(value, choices)
        raise argparse.ArgumentError(None, f"{said}: did you mean {like}?" if like else said)

    def refuse(self, extra: Sequence[str]) -> NoReturn:
        """Ends the program because of words that no option or argument takes."""
        option = next((word.partition("=")[0] for word in extra if word.startswith("-")), "")
        if not option:
            self.error(f"unexpected argument {shown(extra[0])}")
        known = [name for action in self._actions for name in action.option_strings]
        like = nearest(option, known)
        said = f"{self.prog.split()[-1]} has no option {shown(option)}"
        self.error(f"{said}: did you mean {like}?" if like else said)


def refusal(reason: object, verb: argparse.ArgumentParser | None = None) -> str:
    """What an error prints: one line of reason, and the usage of a verb."""
    # A suggestion will do: the names that there are take ten lines.
    text = visible(re.sub(r"(did you mean [^?]+\?) There are .*", r"\1", str(reason)))
    return f"gpureduce: {text}\n{verb.format_usage() if verb else ''}"


def words_of(error: OSError) -> str:
    """An operating system's error in words, with the file that it is about."""
    if error.errno is None or error.filename is None:
        return error.strerror or str(error)
    name = error.filename if isinstance(error.filename, str) else str(error.filename)
    if isinstance(error, FileNotFoundError):
        return f"there is no file {name}"
    return f"{name}: {(error.strerror or str(error)).lower()}"
