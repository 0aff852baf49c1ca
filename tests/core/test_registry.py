"""One line per strategy: files, lines and everything generated from them agree."""

from __future__ import annotations

import re

import pytest

import gpureduce
import readme
from cases import CSRC, ROOT, run_python
from gpureduce.core import registry

pytestmark = pytest.mark.skipif(not CSRC.exists(), reason="not a source checkout")


def kernel_files(folder: str) -> set[str]:
    return {path.stem for path in (CSRC / folder).glob("*.cu")}


def test_each_kernel_has_a_file_and_each_file_a_line():
    kinds = ("kernel", "broken", "everywhere", "axis", "segments", "keys", "scan")
    rows = [*gpureduce.strategies(), *gpureduce.strategies(internal=True)]
    by_kind = {kind: {s.name for s in rows if s.kind == kind} for kind in kinds}
    assert kernel_files("kernels") == by_kind["kernel"] | by_kind["everywhere"]
    assert kernel_files("kernels/broken") == by_kind["broken"]
    assert kernel_files("kernels/axis") == by_kind["axis"]
    steps = kernel_files("kernels/segments") | kernel_files("kernels/running") | {"scan_add"}
    assert steps == by_kind["segments"]
    assert kernel_files("kernels/scan") == by_kind["scan"] | {"scan_add"}
    assert kernel_files("kernels/keys") == by_kind["keys"]


def test_kernel_files():
    """Each defines the kernel of its name, is of lesson length, and ordinary CUDA."""
    for path in (CSRC / "kernels").rglob("*.cu"):
        text = path.read_text()
        bounds = r"(__launch_bounds__\(.+\)\s+)?"
        assert re.search(rf"__global__ void {bounds}{path.stem}\(", text), path
        assert text.startswith(f"/* {path.stem}: "), f"{path}: the head comment names the kernel"
        assert not re.search(r"#\s*(if|define)|asm|g_idata|g_odata", text), path
        # Blocks that run side by side keep it in shared_array.
        assert not re.search(r"__shared__", text), path
        assert len(text.splitlines()) <= 75, path


@pytest.mark.parametrize("name", ["docs/strategies.md", "CONTRIBUTING.md"])
def test_texts_know_how_long_kernels_are(name):
    sizes = [len(path.read_text().splitlines()) for path in (CSRC / "kernels").rglob("*.cu")]
    said = re.findall(r"(\d+)\s+to\s+(\d+)\s+lines", (ROOT / name).read_text())
    assert said == [(str(min(sizes)), str(max(sizes)))]


def test_the_docs_know_which_strategies_have_no_file():
    text = (ROOT / "docs/strategies.md").read_text()
    said = re.search(r"Each strategy but (.*?) is one file", text, re.S)
    without = [s.name for s in gpureduce.strategies() if not s.launches_kernels]
    assert re.findall(r"`(\w+)`", said[1]) == without


def test_names_in_the_readme_are_in_the_package():
    text = (ROOT / "README.md").read_text()
    names = sorted(set(re.findall(r"(?<!-m )\bgpureduce\.([a-z]\w*)", text)))
    assert "sum" in names
    # A process of its own: other tests import more of the package.
    code = f"import gpureduce; print([n for n in {names} if not hasattr(gpureduce, n)])"
    assert run_python(code) == "[]\n"


def test_last_block_publishes_before_it_draws():
    """No processor here would show a missing fence, so the text is looked at."""
    text = (CSRC / "kernels" / "last_block.cu").read_text()
    publish = r"work\[blockIdx\.x\] = sum;\s*__threadfence\(\);\s*is_last = atomicInc"
    assert re.search(publish, text)
    assert re.search(r"return;\s*__threadfence\(\);", text)


def test_a_sum_that_is_not_there_yet_is_looked_for_again():
    """None here comes later than its ticket, and no processor here would read half a word."""
    text = (CSRC / "kernels" / "parts" / "common.h").read_text()
    looks = text[text.index("finish_in_last_block") :]
    assert re.search(
        r"do \{\s*marks = ~0u;.*marks &= get_marked.*\} while \(!marks\);", looks, re.S
    )
    words = (CSRC / "cuda" / "device.h").read_text()
    for access in ("st", "ld"):
        for size in ("u64", "b128"):
            assert f"{access}.relaxed.gpu.global.{size} " in words


@pytest.mark.parametrize("call", ["wait_for_earlier_kernels();", "invite_next_kernel();"])
def test_just_the_overlapping_kernels_invite_the_next_and_wait_for_the_last(call):
    """A kernel that waits without being invited, or invites without being waited for, is wrong."""
    lines = (CSRC / "strategies.def").read_text() + (CSRC / "steps.def").read_text()
    overlaps = re.findall(r"^STRATEGY\((\w+), \w+,[^,]*\bOVERLAPS\b", lines, re.M)
    assert overlaps
    for path in (CSRC / "kernels").rglob("*.cu"):
        assert (call in path.read_text()) == (path.stem in overlaps), path


def test_names_aliases_and_lessons():
    rows = [*gpureduce.strategies(), *gpureduce.strategies(internal=True)]
    names = [n for s in rows for n in (s.name, *s.aliases)]
    assert len(names) == len(set(names))
    for row in gpureduce.strategies():
        assert row.lesson.endswith(".") and len(row.lesson) <= 100, row.name
        assert all(registry.find(alias) is row for alias in row.aliases)
    assert gpureduce.sum([1, 2, 3], "reduce2", device="emulator").timing.strategy == "sequential"


def test_generated_pages_are_fresh():
    for path, text in readme.pages(ROOT).items():
        assert path.read_text() == text, f"{path.name}: run python tools/readme.py"


def test_readme_names_every_strategy_and_fits_two_screens():
    text = (ROOT / "README.md").read_text()
    strategies = text[text.index("## Strategies") : text.index("docs/strategies")]
    listed = re.findall(r"`(\w+)`(?: \((.*?)\))?", strategies)
    rows = [s for s in gpureduce.strategies() if not s.broken]
    assert [(name, re.findall(r"\w+", aliases)) for name, aliases in listed] == [
        (s.name, list(s.aliases)) for s in rows
    ]
    assert 80 <= len(text.splitlines()) <= 100


def test_readme_examples_print_what_it_shows():
    text = (ROOT / "README.md").read_text()
    [(example, printed)] = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.S)
    assert text.count("```python\n") == 1 and len(example.splitlines()) <= 12
    assert run_python(example) == printed


def test_development_knows_every_folder():
    text = (ROOT / "docs" / "development.md").read_text()
    packages = {path.parent.name for path in (ROOT / "gpureduce").glob("*/__init__.py")}
    folders = {path.parent.name for path in CSRC.glob("*/*.[ch]")}
    assert not [name for name in sorted(packages) if f"`gpureduce/{name}/`" not in text]
    assert not [name for name in sorted(folders) if f"`csrc/{name}/`" not in text]
