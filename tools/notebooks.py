"""Runs the notebooks from top to bottom, in place: ``python tools/notebooks.py [NAME ...]``.

Sources and outputs are committed, without metadata that changes from run to run (times of cells,
Python version, kernel). New records in notebooks/data appear after a run.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Runs all cells in `folder`. An error in a cell stops the run."""
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of Jupyter itself
        NotebookClient(
            notebook, timeout=240, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()


def strip(notebook: nbformat.NotebookNode) -> None:
    """Removes metadata that changes from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Joins consecutive stream outputs, because their boundaries vary from run to run."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        last = kept[-1] if kept else None
        if last and output.output_type == "stream" == last.output_type and output.name == last.name:
            last.text += output.text
        else:
            kept.append(output)
    return kept


def main(names: list[str]) -> None:
    paths = [path for path in sorted(FOLDER.glob("*.ipynb")) if not names or path.stem in names]
    if names and len(paths) < len(names):
        raise SystemExit(f"there are {', '.join(p.stem for p in sorted(FOLDER.glob('*.ipynb')))}")
    for path in paths:
        notebook = read(path)
        run(notebook, FOLDER)
        strip(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {sum(cell.cell_type == 'code' for cell in notebook.cells)} cells run")


if __name__ == "__main__":
    main(sys.argv[1:])
