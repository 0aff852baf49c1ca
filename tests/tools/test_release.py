"""What a release says about itself in several files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import sbom
from building import kernels, modules, nvcc

from gpureduce.version import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_same_everywhere():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    recipe = re.search(r'^  version: "(.+)"$', (ROOT / "conda" / "recipe.yaml").read_text(), re.M)
    found = [match and match.group(1) for match in (cited, newest, recipe)]
    assert found == [VERSION] * 3


def test_a_release_fits_a_minute():
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]
    assert max(len(release.splitlines()) for release in releases) <= 40


@pytest.mark.parametrize("cuda", [True, False])
def test_the_bill_of_materials_names_what_is_linked_in(cuda):
    bill = sbom.bill
    info = {"cuda": cuda, "nvcc": "13.0", "cccl": "3.0.1", "compiler": "gcc 12"}
    text = bill("1.2.3", info)
    parts = json.loads(text)["components"]
    assert [part["version"] for part in parts] == (["13.0", "3.0.1"] if cuda else [])
    assert text == bill("1.2.3", info)  # nothing of the clock or of chance
    assert text != bill("1.2.4", info)


def _runs(card: int, kernel: int, options: list[str]) -> tuple[str, int]:
    """What a card runs of a kernel that needs a capability: machine code or PTX, and for which."""
    images = [re.search(r"code=(sm|compute)_(\d+)$", option) for option in options]
    found = [(image.group(1), int(image.group(2))) for image in images if image]
    assert all(arch >= kernel for _, arch in found)
    code = [a for kind, a in found if kind == "sm" and a // 10 == card // 10 and a <= card]
    if card == 87 or 87 in code:  # Tegra: its code is for no other card, and it runs no other code
        code = [arch for arch in code if (arch == 87) == (card == 87)]
    ptx = [arch for kind, arch in found if kind == "compute" and arch <= card]
    return ("sm", max(code)) if code else ("compute", max(ptx))


@pytest.mark.parametrize(
    ("wheel", "cards"),
    [
        ("DEFAULT_ARCHS", (75, 80, 86, 89, 90, 100, 103, 120, 121, 130)),
        ("ARM_ARCHS", (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121, 130)),
    ],
)
def test_every_card_runs_every_kernel_of_a_wheel(wheel, cards):
    archs = nvcc.Archs.named(getattr(nvcc, wheel))
    for kernel in {kernel.capability for kernel in kernels.read_registry()}:
        for card in cards:
            if card >= kernel:
                _, arch = _runs(card, kernel, archs.options(kernel))
                # Older code neither waits for earlier kernels nor lets the next ones begin.
                assert arch >= 90 or card < 90, (card, kernel)


def _jobs_of(folder: Path, options: str) -> list:
    """The compilations of a build by an nvcc 12.4 that lists some options, and fails otherwise."""
    program = folder / "nvcc"
    program.write_text(
        "#!/bin/sh\n"
        "[ $1 = --version ] && echo 'Cuda compilation tools, release 12.4, V12.4.131' && exit\n"
        f"[ $1 = --help ] && echo '{options}' && exit\n"
        "echo 'unsupported GNU version!' >&2; exit 1\n"
    )
    program.chmod(0o755)
    build = modules.CudaBuild(folder, "_cuda", program, nvcc.Archs.named("90"))
    return [job for job in build.jobs if job.command[0] == str(program)]


def test_kernels_that_are_compiled_together_are_small_and_alike():
    files = {kernel.name: ROOT / kernel.path for kernel in kernels.read_registry()}
    names = " ".join(kernels.TOGETHER).split()
    assert len(names) == len(set(names)) and set(names) <= set(files)
    # The first sum of a program must not wait for other kernels.
    default = re.findall(r'"(\w+)"', (ROOT / "csrc/engine/fast_table.c").read_text())
    assert "tiles" in default and not {*default, "exact"} & set(names)
    for line in kernels.TOGETHER:
        texts = [files[name].read_text() for name in line.split()]
        shared = {bool(re.search("shared_array|block_sum", text)) for text in texts}
        assert len(shared) == 1, line


@pytest.mark.parametrize("named", ["75", "90", "DEFAULT_ARCHS", "ARM_ARCHS"])
def test_kernels_that_are_compiled_together_are_for_the_same_architectures(named):
    archs = nvcc.Archs.named(getattr(nvcc, named, named))
    every = kernels.read_registry()
    units = kernels.units(every, archs)
    assert sorted(k.name for unit in units for k in unit) == sorted(k.name for k in every)
    assert len(units) < len(every) - 20
    for unit in units:
        assert len({tuple(archs.options(kernel.capability)) for kernel in unit}) == 1


def test_a_source_of_several_kernels_changes_only_with_them(tmp_path):
    sources = {job.source.stem: job.source for job in _jobs_of(tmp_path, "")}
    assert "exact" in sources and "sequential" not in sources
    ladder = sources["interleaved_mod"]
    text = ladder.read_text()
    kernels = re.findall(r"^#define KERNEL (\w+)$", text, re.M)
    assert kernels[:3] == ["interleaved_mod", "interleaved_idx", "sequential"]
    assert text.count('#include "engine/kernel_table.cu"') == len(kernels)
    # kernel_table.cu clears all macros, for the next kernel.
    table = (ROOT / "csrc/engine/kernel_table.cu").read_text()
    cleared = re.findall(r"^#undef (\w+)$", table, re.M)
    assert set(re.findall(r"^#define (\w+)", text, re.M)) <= set(cleared)

    os.utime(ladder, (0, 0))
    again = {job.source.stem: job for job in _jobs_of(tmp_path, "")}["interleaved_mod"]
    assert again.source == ladder and ladder.stat().st_mtime == 0
    ladder.write_text(text.replace("sequential", "other"))
    _jobs_of(tmp_path, "")
    assert ladder.read_text() == text


@pytest.mark.parametrize("known", ["", "--compress-mode", "--frandom-seed"])
def test_nvcc_gets_only_options_that_it_has(tmp_path, known):
    for job in _jobs_of(tmp_path, f"{known}   (...)"):
        given = [option for option in job.command if "compress-mode" in option or "seed" in option]
        assert len(given) == bool(known) and all(known[2:] in option for option in given)


def test_an_error_of_nvcc_ends_with_what_to_do(tmp_path):
    job = _jobs_of(tmp_path, "")[0]
    with pytest.raises(RuntimeError) as raised:
        job.compile()
    said = str(raised.value)
    assert said.index("unsupported GNU version!") < said.index(f"This is release 12.4, {tmp_path}")
    for advice in ("GPUREDUCE_CUDA=0 pip install", "GPUREDUCE_CUDA_ARCHS", "CXX=", "CUDA_HOME="):
        assert advice in said


def test_a_build_for_one_card_has_nothing_for_others():
    named = nvcc.Archs.named
    assert [option[-5:] for option in named("90").options()] == ["sm_90", "te_90"]
    assert named("75").options(90) == []
    assert named("80; 90-virtual").options() == named("90-virtual,80,80").options()
    for wrong in ("", "90-ptx", "9.0", "-virtual"):
        with pytest.raises(SystemExit, match="GPUREDUCE_CUDA_ARCHS"):
            named(wrong)
