"""The predictions of docs/limits.md are those of the machine code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import small_cards

from gpureduce.hardware import toolkit

LIMITS = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
COUNTS = [
    float(count) for count in re.findall(r"^\| `(?:exact|fast)`.*?\| ([\d.]+) \|", LIMITS, re.M)
]
TOOLS = all(map(toolkit.find, ("nvcc", "nvdisasm")))


def test_the_table_follows_from_its_counts():
    assert small_cards.table(COUNTS) in LIMITS


def test_predictions_are_the_smaller_of_two_limits():
    """float64 on a T4: 126.6 10^9 instructions per second, and 40 10^9 elements from memory."""
    one = small_cards.table([14] * len(small_cards.SUMS)).splitlines()[3]
    assert one.split("|")[3].strip() == f"{8.1e3 / 64 / 14 / 40:.0%}" == "23%"
    assert set(small_cards.table([0] * len(small_cards.SUMS)).splitlines()[3].split("|")[3:7]) == {
        " 100% "
    }


@pytest.mark.slow
@pytest.mark.skipif(not TOOLS, reason="no nvcc or no nvdisasm")
@pytest.mark.parametrize("arch", [75, 89])
def test_the_counts_are_those_of_the_machine_code(arch, monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    counts, integers = small_cards.counts(arch)
    assert counts == COUNTS
    assert f"takes {integers:g} integer instructions" in LIMITS


def test_a_line_that_is_gone_is_an_error():
    gone = small_cards.SUMS[0]._replace(lines={"no such line": 1})
    with pytest.raises(LookupError, match="row_warp has no line 'no such line'"):
        small_cards.per_element(gone, {gone.symbol: []}, small_cards.FLOAT64)
