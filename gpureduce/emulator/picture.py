"""Pictures of rectangles and texts: as SVG without any library, or on matplotlib's axes."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpureduce.core import text_files

PAPER, INK, FAINT, EMPTY = "#ffffff", "#1f2933", "#7b8794", "#eef1f4"
ACTIVE, HALF, ALARM, GOOD = "#2b6cb0", "#90cdf4", "#c53030", "#2f855a"
ATOMIC, RUNG = "#7a4fa3", "#332288"
WIDTH = 760
_CELL, ROW = 20.0, 18  # of a grid
# The colours of an SVG file for a reader who prefers a dark scheme.
_DARK = {
    PAPER: "#131416", INK: "#dfe3e8", FAINT: "#9aa5b1", EMPTY: "#2a2f36", ACTIVE: "#63a4e8",
    HALF: "#2c5282", ALARM: "#fc8181", GOOD: "#48bb78", ATOMIC: "#b794f4",
    RUNG: "#8f83e8",
}  # fmt: skip


def style(more: Mapping[str, str] = MappingProxyType({})) -> str:
    """A style element by which the colours of an SVG file follow the reader's scheme.

    `more` has the dark colours of further light ones.
    """
    both = {**_DARK, **more}.items()
    rules = "".join(f'[fill="{light}"]{{fill:{dark}}}' for light, dark in both)
    return f"<style>@media (prefers-color-scheme:dark){{{rules}}}</style>"


@dataclass(frozen=True)
class Box:
    """A filled rectangle; `title` is what a mouse over it tells."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""


@dataclass(frozen=True)
class Words:
    """A line of text; `anchor` is ``"start"``, ``"middle"`` or ``"end"``."""

    x: float
    y: float
    text: str
    size: float = 11
    fill: str = INK
    anchor: str = "start"
    bold: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of a grid, whose columns have numbers: 0.5 is half a column behind the first."""

    column: float
    fill: str
    title: str
    text: str = ""
    ink: str = INK
    frame: str = ""
    is_struck: bool = False


@dataclass
class Picture:
    """Boxes and words on a page, in pixels from its upper left corner.

    `dark` has the dark colours of its own light ones.
    """

    width: float = WIDTH
    height: float = 0.0
    boxes: list[Box] = field(default_factory=list)
    words: list[Words] = field(default_factory=list)
    dark: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<picture of {self.width:g} x {self.height:g} pixels>"

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self, *, inline: bool = False) -> str:
        """The picture as an SVG document. `inline`: for a page, whose scheme is the page's."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" '
            f'height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}" '
            'font-family="DejaVu Sans, Verdana, sans-serif">',
            *([] if inline else [style(self.dark)]),
            f'<rect width="{self.width:g}" height="{self.height:g}" fill="{PAPER}"/>',
        ]
        for box in self.boxes:
            place = f'x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}"'
            inside = f"<title>{html.escape(box.title)}</title>" if box.title else ""
            parts.append(f'<rect {place} fill="{box.fill}">{inside}</rect>')
        for words in self.words:
            weight = ' font-weight="bold"' if words.bold else ""
            parts.append(
                f'<text x="{words.x:g}" y="{words.y:g}" font-size="{words.size:g}" '
                f'fill="{words.fill}" text-anchor="{words.anchor}"{weight} '
                f'xml:space="preserve">{html.escape(words.text)}</text>'
            )
        return "\n".join([*parts, "</svg>\n"])

    def html(self, title: str) -> str:
        """The picture under a heading, for a notebook."""
        return f"<div><b>{html.escape(title)}</b><br>{self.svg(inline=True)}</div>"

    def plot(self, ax: Any = None) -> Any:
        """Draw it with matplotlib, at the size it has in SVG; returns the axes."""
        try:
            import matplotlib.pyplot as plt
            from matplotlib.collections import PatchCollection
            from matplotlib.patches import Rectangle
        except ImportError as error:
            raise ImportError(
                "plot() needs matplotlib: pip install 'gpureduce[plot]'; svg() needs nothing"
            ) from error
        if ax is None:
            _, ax = plt.subplots(figsize=(self.width / 96, self.height / 96), layout="constrained")
        places = [Rectangle((box.x, box.y), box.width, box.height) for box in self.boxes]
        fills = [box.fill for box in self.boxes]
        ax.add_collection(PatchCollection(places, facecolors=fills, linewidths=0))
        # Font sizes are in points and the boxes in pixels: text is scaled as the boxes are.
        figure_width = ax.figure.get_size_inches()[0] * ax.get_position().width
        points = 72 * figure_width / self.width
        anchors = {"start": "left", "middle": "center", "end": "right"}
        for words in self.words:
            ax.text(
                words.x,
                words.y,
                words.text.replace("$", r"\$"),
                fontsize=words.size * points,
                color=words.fill,
                ha=anchors[words.anchor],
                va="baseline",
                weight="bold" if words.bold else "normal",
            )
        ax.set_xlim(0, self.width)
        ax.set_ylim(self.height, 0)
        ax.set_aspect("equal")
        ax.set_axis_off()
        return ax


def drawn(picture: Picture, form: str, dpi: int = 200) -> bytes:
    """A picture as the contents of a file. All formats but SVG need matplotlib."""
    if form == "svg":
        return picture.svg().encode()
    file, figure = io.BytesIO(), picture.plot().figure
    figure.savefig(file, format=form, dpi=dpi)
    import matplotlib.pyplot as plt

    plt.close(figure)
    return file.getvalue()


def film(pictures: Sequence[Picture], path: Path, seconds: float) -> None:
    """Writes pictures as an animated GIF, all as high as the highest."""
    height = max(one.height for one in pictures)
    files = [drawn(replace(one, height=height), "png", dpi=100) for one in pictures]
    import PIL.Image  # comes with matplotlib, which has drawn these

    first, *rest = (PIL.Image.open(io.BytesIO(one)).convert("RGB") for one in files)
    how = {"save_all": True, "append_images": rest, "duration": 1000 * seconds, "loop": 0}
    with text_files.replacing(path) as file:
        first.save(file, "GIF", **how)


class Page:
    """A picture in the making, from top to bottom."""

    def __init__(self) -> None:
        self.picture = Picture()
        self.y = 0.0

    def box(self, x: float, dy: float, width: float, height: float, fill: str, title: str) -> None:
        self.picture.boxes.append(Box(x, self.y + dy, width, height, fill, title))

    def say(self, x: float, dy: float, text: str, **style: Any) -> None:
        self.picture.words.append(Words(x, self.y + dy, text, **style))

    def heading(self, text: str, remark: str = "") -> None:
        self.y += 26
        self.say(8, 0, text, size=13, bold=True)
        if remark:
            self.y += 16
            self.say(8, 0, remark, fill=FAINT)
        self.y += 8

    def legend(self, x: float, entries: Iterable[tuple[str, str]]) -> None:
        """What colours mean."""
        for fill, text in entries:
            self.box(x, 1, 10, 10, fill, text)
            self.say(x + 15, 10, text, size=10, fill=FAINT)
            x += 15 + 6.5 * len(text) + 18
        self.y += 18

    def grid(self, x: float, column: str, rows: Iterable[tuple[str, Iterable[Cell]]]) -> None:
        """Rows of up to 32 cells, each with a label, below the numbers of the columns."""
        for i in range(0, 32, 4):
            self.say(x + (i + 0.5) * _CELL, 8, f"{i}", size=9, fill=FAINT, anchor="middle")
        self.say(x + 32 * _CELL + 6, 8, column, size=9, fill=FAINT)
        self.y += 12
        for label, cells in rows:
            self.say(x - 8, 13, label, size=10, anchor="end", fill=FAINT)
            for cell in cells:
                at, style = x + cell.column * _CELL, {"fill": cell.ink, "anchor": "middle"}
                self.box(at, 1, _CELL - 1, ROW - 2, cell.frame or cell.fill, cell.title)
                if cell.frame:
                    self.box(at + 2, 3, _CELL - 5, ROW - 6, cell.fill, cell.title)
                if cell.text:
                    size = min(9, 11 - len(cell.text))
                    self.say(at + _CELL / 2 - 0.5, 13, cell.text, size=size, **style)
                if cell.is_struck:
                    self.box(at, 8, _CELL - 1, 2, FAINT, cell.title)
            self.y += ROW

    def done(self) -> Picture:
        self.picture.height = self.y + 10
        return self.picture
