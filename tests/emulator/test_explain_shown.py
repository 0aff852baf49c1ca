"""explain shown: text, pictures and comparisons."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

import gpureduce
from cases import KERNELS
from gpureduce.core import registry
from gpureduce.emulator import explain_picture, explain_text
from gpureduce.emulator.explain import explain


def test_comparison():
    both = explain("interleaved_idx", "sequential", n=2**16)
    assert isinstance(both, gpureduce.Comparison)
    fell = {change.name: change for change in both.fell}
    assert fell["shared_load_conflicts"].after == 0
    assert fell["shared_load_conflicts"].factor is None
    assert fell["shared_load_wavefronts"].factor == pytest.approx(95 / 25)
    assert both.lesson == registry.find("sequential").lesson
    told = " ".join(str(both).split())
    assert both.lesson in told and "3.8x less" in told and "0 gone" in told
    many = str(explain("sequential", "warp_shfl"))
    assert "7,961x less" in many and "0.39% less" in many and "new" in many
    assert "2.75x more" in str(explain("sequential", "interleaved_idx"))
    assert not explain("sequential", "sequential", n=1000).changes
    back = explain("sequential", "interleaved_idx", n=2**16)
    assert not back.fell and {c.name for c in back.rose} == set(fell)


def test_text():
    text = str(explain("interleaved_idx", n=2**20))
    assert "interleaved_idx.cu:23" in text and "8 wavefronts where 1 would do" in text
    assert "98,304 wavefronts, 88% conflicts" in text
    assert "4,096 blocks of 256 threads (counted from 3 of them)" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_wavefront_table_agrees_with_the_count():
    for strategy, dtype in (("interleaved_idx", "int32"), ("interleaved_idx", "float64")):
        for line in explain(strategy, n=1024, dtype=dtype).lines:
            if line.access:
                assert len(explain_text.wavefront_table(line.access)) == line.access.wavefronts


def pictures_of(strategy: str):
    return [
        explain(strategy, n=3000, block=1024).picture(),
        explain(strategy, n=100_000, block=64, dtype="float64" if strategy != "redux" else "int32")
        .picture(),
        explain("interleaved_mod", strategy, n=5000).picture(),
    ]  # fmt: skip


@pytest.mark.parametrize("strategy", KERNELS)
def test_pictures_stay_on_their_page(strategy):
    for picture in pictures_of(strategy):
        assert picture.boxes and picture.words
        for box in picture.boxes:
            assert 0 <= box.x <= box.x + box.width <= picture.width
            assert 0 <= box.y <= box.y + box.height <= picture.height
        for words in picture.words:
            # Half the size is a narrow font's width of a character, and more than a wide one's.
            width = 0.62 * words.size * len(words.text)
            left = words.x - {"start": 0.0, "middle": width / 2, "end": width}[words.anchor]
            assert left >= -10 and left + width <= picture.width * 1.05, words.text
        ElementTree.fromstring(picture.svg())


def test_conflicts_stand_out():
    def red(strategy):
        return sum(box.fill == explain_picture.ALARM for box in explain(strategy).picture().boxes)

    assert red("interleaved_idx") == 28  # 32 lanes less the 4 that the first wavefront serves
    assert red("sequential") == red("interleaved_mod") == 0


def test_plot_and_notebook(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = explain("interleaved_idx", n=2**16)
    ax = found.plot()
    assert len(ax.collections[0].get_paths()) == len(found.picture().boxes)
    assert explain("interleaved_idx", "sequential").plot(ax) is ax
    ax.figure.canvas.draw()
    plt.close("all")
    assert (
        found._repr_html_().startswith("<div><b>interleaved_idx: ")
        and "<svg" in found._repr_html_()
    )
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"gpureduce\[plot\]"):
        found.plot()
