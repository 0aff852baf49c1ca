"""Imports and includes point one way; the checks of that see those that do not."""

from __future__ import annotations

import pytest

import includes
from cases import CSRC


@pytest.mark.skipif(not CSRC.exists(), reason="no source")
def test_includes_point_down():
    assert not includes.faults()


def test_calls_of_python_are_found(tmp_path, monkeypatch):
    assert not includes.callbacks()
    monkeypatch.setattr(includes, "CSRC", tmp_path)
    for name in includes.MAY_CALL_PYTHON:
        (tmp_path / "bindings" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bindings" / name).write_text("PyObject_CallNoArgs(method);\n")
    assert not includes.callbacks()
    for call in ("PyObject_CallFunction(plan, 0)", 'PyImport_ImportModule("gpureduce.core.plan")'):
        (tmp_path / "bindings" / "device" / "views.c").write_text(f"{call};\n")
        assert includes.callbacks() == ["csrc/bindings/device/views.c calls Python"]
    (tmp_path / "bindings" / "device" / "views.c").write_text("PyObject_CallableCheck;\n")
    (tmp_path / "bindings" / "gil.c").write_text("\n")
    assert includes.callbacks() == ["csrc/bindings/gil.c no longer calls Python"]


def test_names_of_c_are_unique(tmp_path, monkeypatch):
    assert not includes.repeated()
    for name in ("one", "two"):
        text = "#ifndef SAME_H\ntypedef struct {\n} gr_same;\nint gr_both(void)\n{\n}\n"
        (tmp_path / f"{name}.h").write_text(text)
    monkeypatch.setattr(includes, "CSRC", tmp_path)
    found = includes.repeated()
    assert {row.partition(" ")[0] for row in found} == {"SAME_H", "gr_same", "gr_both"}


def test_files_of_c_do_not_call_each_other_in_a_circle(tmp_path, monkeypatch):
    assert not includes.circle()
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        text = f"int gr_{name}(void)\n{{\n    return gr_{other}();\n}}\n"
        (tmp_path / f"{name}.c").write_text(text)
    monkeypatch.setattr(includes, "CSRC", tmp_path)
    (found,) = includes.circle()
    assert {f"csrc/{name}.c" in found for name in ("one", "two", "three")} == {True}


@pytest.mark.parametrize(
    ("source", "include", "allowed"),
    [
        ("threads/pool.c", "engine/engine.h", False),
        ("shared/registry.c", "exact/exact.h", False),
        ("emulator/runtime/launch.cpp", "bindings/gil.h", False),
        ("engine/sum.c", "kernels/parts/common.h", False),
        ("kernels/last_block.cu", "engine/engine.h", False),
        ("cpu/cpu_sum.c", "no_such_file.h", False),
        ("kernels/last_block.cu", "parts/common.h", True),
        ("bindings/device/module.c", "engine/engine.h", True),
        ("bindings/host/module.c", "exact/exact.h", True),
        ("bindings/host/module.c", "engine/engine.h", False),
        ("bindings/host/module.c", "bindings/device/run.h", False),
        ("engine/sum.c", "threads/pool.h", True),
    ],
)
@pytest.mark.skipif(not CSRC.exists(), reason="no source")
def test_includes_that_point_up_are_found(source, include, allowed):
    assert (includes.fault(include, CSRC / source) is None) == allowed
