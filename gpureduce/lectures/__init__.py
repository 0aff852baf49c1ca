"""The lectures' experiments, run on this machine, and the figures that the lectures print."""

from gpureduce.lectures.experiments import EXPERIMENTS, Experiment, find, lecture_card, sources
from gpureduce.lectures.measuring import Row
from gpureduce.lectures.plasma import Streams, two_streams
from gpureduce.lectures.records import Record, load, packaged, printed, recorded, run

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "Record",
    "Row",
    "Streams",
    "find",
    "lecture_card",
    "load",
    "packaged",
    "printed",
    "recorded",
    "run",
    "sources",
    "two_streams",
]
