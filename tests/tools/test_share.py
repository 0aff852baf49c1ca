"""pytest --share N: fewer cases, of every test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
CASES = [f"tests/test_x.py::test_{t}[{case}]" for t in range(5) for case in range(100)]


def test_a_share_of_the_cases_of_every_test(request):
    plugin, left = request.config.pluginmanager.get_plugin(str(CONFTEST)), []

    def share(number):
        items = [
            SimpleNamespace(nodeid=name, get_closest_marker=lambda name: None) for name in CASES
        ]
        hook = SimpleNamespace(pytest_deselected=lambda items: left.append(len(items)))
        config = SimpleNamespace(getoption=lambda name: number, hook=hook)
        plugin.pytest_collection_modifyitems(config, items)
        return [item.nodeid for item in items]

    assert share(1) == CASES
    some = share(4)
    assert some == share(4) and {name.partition("[")[0] for name in some} == {
        name.partition("[")[0] for name in CASES
    }
    assert 100 < len(some) < 150 and left == [0, 500 - len(some), 500 - len(some)]
