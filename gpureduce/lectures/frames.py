"""The slides of a lecture on the ladder: questions, and steps of replays as pictures."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from gpureduce.emulator.picture import Picture
from gpureduce.emulator.races import races
from gpureduce.emulator.replay import Replay, replay

FORMATS = ("svg", "png", "pdf")
_STYLE = "<style>body{font:20px sans-serif;margin:auto;max-width:60em}img{width:100%}</style>"
# By name: the kind of step. The first such step is shown, or the last one. At "conflict" it is the
# one with most bank conflicts.
_MOMENTS = {
    "load": "load", "half_a_warp": "load", "barrier": "__syncthreads", "warp_barrier": "__syncwarp",
    "shuffle": "__shfl", "fence": "fence", "atomic": "atomic", "last_store": "store",
}  # fmt: skip
# The strategy, the question to ask, the moments of its replay that answer it, and the block.
TOPICS = (
    ("global_tree", "How many additions can threads do at once?", ("load", "half_a_warp"), 64),
    ("interleaved_mod", "Which lanes of a warp work in this step?", ("half_a_warp",), 64),
    ("interleaved_idx", "Whole warps end early now. What became slower?", ("conflict",), 256),
    ("sequential", "Why are there no bank conflicts now?", ("barrier", "half_a_warp"), 64),
    ("first_add", "Half of the threads only load. What else could they do?", ("load", "barrier"),
     64),
    ("unroll_warp", "One warp is left. Which threads must it wait for?", ("warp_barrier",), 64),
    ("warp_shfl", "Can lanes add up without shared memory?", ("shuffle", "barrier"), 64),
    ("last_block", "Who adds up the sums of the blocks?", ("fence", "atomic", "last_store"), 64),
    ("missing_barrier", "The sum is right. Is the kernel right?", (), 256),
)  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """A slide: the name of its file, the topic's question, the step in words, and the picture."""

    name: str
    question: str
    sentence: str
    picture: Picture


def frames() -> Iterator[Frame]:
    """The slides, in the order of the lecture."""
    number = itertools.count(1)
    for strategy, question, moments, block in TOPICS:
        for moment, shown, at in _of(strategy, moments, block):
            name = f"{next(number):02}_{strategy}_{moment}"
            yield Frame(name, question, shown.sentences[at], shown.frame(at))


def _of(strategy: str, moments: tuple[str, ...], block: int) -> Iterator[tuple[str, Replay, int]]:
    """The name of each moment, the replay, and the step."""
    if not moments:  # a race, in both orders of its accesses
        shown = replay(strategy, race=races(strategy).races[0])
        for name, order in (("one_order", shown), ("other_order", shown.beside)):
            if order and order.marks:
                yield name, order, max(order.marks)
        return
    shown = replay(strategy, 256, block=block)
    kinds = ("shared_load_conflicts", "shared_store_conflicts")
    conflicts = [sum(step.counts.get(kind, 0) for kind in kinds) for step in shown.steps]
    for name in moments:
        found = [conflicts.index(max(conflicts))]
        if name in _MOMENTS:
            found = [i for i, step in enumerate(shown.steps) if step.kind.startswith(_MOMENTS[name])
                     and (name != "half_a_warp" or len(step.lanes) == 16)]  # fmt: skip
        yield name, shown, found[-1 if name.startswith("last") else 0]


def page(made: list[Frame], form: str) -> str:
    """A page with the questions and the pictures in order, to look them through."""
    parts = ["<!DOCTYPE html>", '<meta charset="utf-8">', f"<title>The ladder</title>{_STYLE}"]
    questions = [one.question for one in made]
    for i, one in enumerate(made):
        if questions.index(one.question) == i:
            parts.append(f"<h2>{html.escape(one.question)}</h2>")
        file, said = f"{one.name}.{form}", html.escape(one.sentence)
        parts.append(f'<p><img src="{file}" alt="{said}"><p><a href="{file}">{said}</a>')
    return "\n".join([*parts, ""])
