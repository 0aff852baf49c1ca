"""`gpureduce bench` with nothing named: the page about this machine."""

from __future__ import annotations

import json
import types
import xml.etree.ElementTree

import pytest

from gpureduce.bench import command, libraries, options, record
from gpureduce.bench.suites import page
from gpureduce.cli import main

SMALL = page.Sizes(4096, (4, 400), (4096,), (1024, 4096))


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(page, "SIZES", dict.fromkeys(page.SIZES, SMALL))
    monkeypatch.setattr(libraries, "installed", lambda *_: ("numpy",))


def measured(device):
    return command.measured(page.suite(types.SimpleNamespace(device=device, repeats=1)))


@pytest.fixture
def emulated():
    return measured("emulator")


def test_the_page_of_a_device(emulated):
    text = page.as_text(emulated)
    assert text.startswith("gpureduce on the emulated GPU\n\nMeasured on ")
    assert text.count("Emulated times tell nothing") + text.count("tell nothing about a card") == 1
    for title in ("Bandwidth: 4 KiB", "Calls, from", "Float32 arrays in host memory",
                  "What `auto` does", "What tuning would gain"):  # fmt: skip
        assert f"\n{title}" in text
    ends = {row["strategy"] for row in emulated["rows"] if row["measure"] == "apart"}
    assert {"interleaved_mod", "warp_shfl", "fast", "exact"} <= ends
    assert [row["nbytes"] for row in emulated["gains"]] == [1024, 4096]
    assert "would make" not in text  # an emulated gain is none


def test_the_page_of_the_processors(monkeypatch):
    monkeypatch.setattr(page.devices, "default_backend", lambda: "emulator")
    made = measured(None)
    text = page.as_text(made)
    assert {row["measure"] for row in made["rows"]} == {"call", "host"} and not made["gains"]
    assert made["processor"] in text and "tuning" not in text and "emulated" not in text.lower()


def test_html_is_well_formed(emulated):
    made = page.as_html(emulated)
    assert "<h1>gpureduce on the emulated GPU</h1>" in made and "(emulated)</text>" in made
    body = made.partition("<body>")[2].partition("</body>")[0]
    tree = xml.etree.ElementTree.fromstring(f"<body>{body}</body>")
    assert len(tree.findall(".//table")) == 5
    assert "`" not in body and "What <code>auto</code> does" in body
    assert len(tree.findall(".//{http://www.w3.org/2000/svg}svg")) == 1


def _card(emulated):
    """A record like that of a card, with the limit and another library."""
    rows = [row | {"source": "cuda_event"} for row in emulated["rows"]]
    fast = next(r for r in rows if r["strategy"] == "fast" and r["measure"] == "apart")
    limit = fast | {"strategy": "load_only", "median_us": fast["median_us"] / 2,
                    "gb_s": 2 * fast["gb_s"]}  # fmt: skip
    torch = fast | {"strategy": "torch", "producer": "torch", "measure": "call"}
    gains = [{"nbytes": 1024, "fast_us": 3.0, "us": 2.0, "strategy": "tiles", "block": 64}]
    auto = {"host_arrays": "cpu at 64 MiB", "calibration": "cpu 100 GB/s"}
    more = {"page": "cuda", "card": "Some Card", "gains": gains, "auto": auto}
    return emulated | more | {"rows": [*rows, limit, torch]}


def test_the_page_of_a_card(emulated):
    made = _card(emulated)
    text = page.as_text(made)
    assert text.startswith("gpureduce on Some Card") and "Emulated" not in text
    limit = next(line for line in text.splitlines() if line.startswith("load_only "))
    assert " 100.0 " in limit
    fast = next(line for line in text.splitlines() if line.startswith("fast "))
    assert " 50.0 " in fast and any(line.startswith("torch ") for line in text.splitlines())
    assert "`gpureduce tune` would make some sums 50% faster." in text
    assert "by this calibration" in text
    made["gains"][0]["us"] = 2.99
    assert "`gpureduce tune` would gain nothing here." in page.as_text(made)


def test_forms(tmp_path, capsys):
    bench = ["bench", "--device", "emulator", "--repeats", "1"]
    assert main.main([*bench, "--output", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out.startswith("gpureduce on the emulated GPU")
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")
    assert main.main([*bench, "--json", "--output", str(tmp_path / "page.json")]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made == json.loads((tmp_path / "page.json").read_text())
    assert record.load(tmp_path / "page.json", "bench")["page"] == "emulator"
    assert main.main([*bench, "--csv"]) == 0
    assert capsys.readouterr().out.startswith("strategy,dtype,n,")
    assert main.main([*bench, "--output", str(tmp_path / "page.txt")]) == 2
    assert "must end in .html or .json or .csv" in capsys.readouterr().err


def test_any_name_asks_for_a_measurement():
    nothing = dict.fromkeys([*options.NAMES, "measure"]) | {"offset": 0, "scoreboard": False}
    assert options.names_nothing(types.SimpleNamespace(**nothing))
    for name in options.NAMES:
        assert not options.names_nothing(types.SimpleNamespace(**nothing | {name: []}))
    for more in ({"scoreboard": True}, {"measure": ["call"]}, {"offset": 1}):
        assert not options.names_nothing(types.SimpleNamespace(**nothing | more))
