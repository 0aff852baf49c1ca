"""Kernels compiled for a card, by NVRTC and by nvcc, on any machine that has them."""

from __future__ import annotations

import collections
import os
import re
import struct
import sys
import time

import pytest

import gpureduce
from gpureduce.core import sources
from gpureduce.hardware import counters, machine_code, toolkit
from gpureduce.kernels import cubins, ladder, nvrtc
from user_kernels import INDEX_BUG, TREE, plain, some

TOOLS = [name for name, there in (("nvrtc", nvrtc.find()), ("nvcc", toolkit.find("nvcc"))) if there]
pytestmark = pytest.mark.skipif(not TOOLS, reason="neither NVRTC nor nvcc is here")
both = pytest.mark.parametrize("by", TOOLS)
KEPT = re.compile(r"LD|ST|ATOM|RED|BAR|SHFL|WARPSYNC|MEMBAR|UBLKCP|SYNCS")
needs_nvrtc = pytest.mark.skipif("nvrtc" not in TOOLS, reason="no NVRTC")
needs_toolkit = pytest.mark.skipif(not toolkit.headers(None), reason="no headers of the toolkit")


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def made(text, pair, by, arch=90, **how):
    k = gpureduce.kernel(text, **how)
    return cubins.cubin(k.source, k.signature, pair, arch, by)


# By the first compiler there is, of which another one needs other options, not other types.
@pytest.mark.parametrize("by", TOOLS[:1])
@pytest.mark.parametrize("pair", [("u32", "u32"), ("i8", "u64"), ("f32", "f64"), ("u64", "u64")])
def test_a_template_for_every_pair_of_types(by, pair):
    found = made(TREE, pair, by)
    code = found.path.read_bytes()
    assert code[:4] == b"\x7fELF" and struct.unpack_from("<H", code, 18) == (190,)  # EM_CUDA
    ((block, symbol),) = found.symbols
    assert block == 0 and symbol.startswith("_Z7my_rungIPK") and symbol in cubins.functions(code)


@both
@needs_toolkit
@pytest.mark.parametrize("pair", [("f16", "f32"), ("bf16", "f32")])
def test_halves(by, pair):
    assert ("6__half" in made(TREE, pair, by).symbols[0][1]) == (pair[0] == "f16")


@both
def test_a_kernel_for_each_block_size(by):
    found = made(gpureduce.source("unroll_full").text, ("f32", "f32"), by)
    assert [block for block, _ in found.symbols] == [32, 64, 128, 256, 512, 1024]
    assert all(f"Lj{block}E" in symbol for block, symbol in found.symbols)


@both
@pytest.mark.parametrize("arch", [75, 120])
def test_other_architectures(by, arch):
    assert made(INDEX_BUG, ("u32", "u32"), by, arch).symbols == ((0, "_Z7shiftedPKiPim"),)


@needs_nvrtc
@needs_toolkit
@pytest.mark.parametrize("name", some(ladder.LADDER, 4))
def test_every_rung_compiles_as_a_kernel_of_yours(name):
    text = gpureduce.source(name).text
    scratch = {"global_tree": "thread"}.get(name)
    assert made(text, ("f32", "f32"), "nvrtc", scratch=scratch).symbols[0][1].startswith("_Z")


@pytest.mark.skipif(not toolkit.find("nvcc"), reason="no nvcc")
@pytest.mark.skipif(not toolkit.find("nvdisasm"), reason="no nvdisasm")
@both
@pytest.mark.parametrize("name", ["interleaved_mod", "sequential", "warp_shfl", "tiles"])
def test_the_instructions_are_those_of_the_kernel_built_in(name, by, tmp_path):
    """Registers may differ, and how an address is computed; not what touches memory or waits."""
    found = made(gpureduce.source(name).text, ("f32", "f32"), by)
    nvdisasm = machine_code.find_tool("nvdisasm")
    own = machine_code._run([nvdisasm, "-c", "-gi", str(found.path)], tmp_path)
    own = machine_code.functions_of(own)[found.symbols[0][1]]
    listing = machine_code.functions_of(machine_code.disassembly(name, 90))
    built_in = next(code for symbol, code in listing.items() if f"{name}IPKff" in symbol)
    assert abs(len(own) - len(built_in)) <= 0.02 * len(built_in)
    waits, theirs = (
        collections.Counter(op for one in code if KEPT.match(op := counters.opcode_of(one.text)))
        for code in (own, built_in)
    )
    assert waits == theirs and sum(waits.values()) > 5


@both
@pytest.mark.skipif(not toolkit.find("nvdisasm"), reason="no nvdisasm")
def test_the_machine_code_has_the_lines_of_the_text(by):
    k, found = gpureduce.kernel(TREE), made(TREE, ("f32", "f32"), by)
    sources.add(k.file, k.text)
    code = machine_code.functions_of(machine_code.disassembled(found.path))
    places = {one.place for one in code[found.symbols[0][1]]} - {None}
    barriers = {place.line for place in places if place.text == "__syncthreads();"}
    assert barriers == {7, 11} and {place.file for place in places} == {"my_rung.cu"}


@both
def test_the_compilers_messages_have_the_users_lines(by):
    wrong = TREE.replace("threadIdx.x;", "threadIdx.w;")
    with pytest.raises(gpureduce.KernelError) as error:
        made(wrong, ("f32", "f32"), by)
    said = str(error.value)
    assert 'my_rung.cu:4: error: class "uint3" has no member "w"' in said
    assert "gpureduce_kernel" not in said and "/" not in said.replace("/=", "")
    with pytest.raises(gpureduce.KernelError) as error:
        made(TREE.replace("partial[0];", 'partial[0] + "a";'), ("f32", "f32"), by)
    assert "my_rung.cu:14: error:" in str(error.value)
    assert "gpureduce_kernel" not in str(error.value)
    with pytest.raises(gpureduce.KernelError) as error:
        made('#include "none.h"\n' + TREE, ("f32", "f32"), by)
    assert re.search(r"my_rung.cu:1:(10:)? fatal error: .*none.h", str(error.value))


@both
@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        ('extern "C" ' + plain("out[0] = in[0];"), "f"),
        ("static " + plain("out[0] = in[0];"), "1f"),
        ("namespace {\n" + plain("out[0] = in[0];") + "}\n", "1f"),
        (plain("out[0] = 1;").replace(" f(", " of(") + plain("out[0] = in[0];"), "_Z1fPKfPfm"),
    ],
)
def test_symbols(by, text, symbol):
    found = made(text, ("f32", "f32"), by, name="f").symbols[0][1]
    assert symbol in found and "2of" not in found


@both
def test_a_header_of_its_own(by, tmp_path):
    (tmp_path / "mine.cuh").write_text("#define ONE_MORE 1\n")
    (tmp_path / "my.cu").write_text('#include "mine.cuh"\n' + plain("out[0] = in[0] + ONE_MORE;"))
    first = made(tmp_path / "my.cu", ("f32", "f32"), by)
    (tmp_path / "mine.cuh").write_text("#define ONE_MORE 2\n")
    assert made(tmp_path / "my.cu", ("f32", "f32"), by).path != first.path


@both
def test_headers_of_the_c_library(by):
    heads = "assert.h stdio.h stdlib.h string.h math.h stdint.h cstdint cmath type_traits utility"
    text = "".join(f"#include <{name}>\n" for name in heads.split())
    body = 'assert(n); uint64_t k = n; if (k > 9) printf("%d", int(k)); out[0] = sqrtf(in[0]);'
    assert made(text + plain(body), ("f32", "f32"), by).symbols


@needs_nvrtc
def test_nvrtc_is_quick():
    """0.1 to 0.2 s, of which half are the start of its process and the library's loading."""
    nvrtc.find()
    start = time.perf_counter()
    made(TREE, ("f32", "f32"), "nvrtc")
    first = time.perf_counter() - start
    start = time.perf_counter()
    made(TREE, ("f32", "f32"), "nvrtc")
    assert first < 1 and time.perf_counter() - start < first


def test_the_cache():
    first = made(TREE, ("f32", "f32"), None)
    stamp = first.path.stat().st_ino
    assert made(TREE, ("f32", "f32"), None) == first and first.path.stat().st_ino == stamp
    assert made(TREE, ("f32", "f32"), None, 75).path != first.path


def test_no_compiler_for_cards(monkeypatch):
    monkeypatch.setattr(toolkit, "find_library", lambda name: None)
    monkeypatch.setattr(toolkit, "find", lambda name: None)
    for by, wanted in ((None, "NVRTC or nvcc, and neither"), ("nvcc", "nvcc, which is not there")):
        with pytest.raises(RuntimeError, match=wanted) as error:
            made(TREE, ("f32", "f32"), by)
        assert "pip install 'gpureduce[nvrtc]'" in str(error.value)


@needs_nvrtc
def test_an_architecture_that_the_compiler_does_not_know():
    with pytest.raises(RuntimeError, match=r"compiles for the architectures .*, not for 999"):
        made(TREE, ("f32", "f32"), "nvrtc", 999)


@needs_nvrtc
def test_nvrtc_without_the_headers_of_the_toolkit(monkeypatch):
    monkeypatch.setattr(toolkit, "headers", lambda beside: [])
    assert made(TREE, ("f32", "f32"), "nvrtc").symbols
    with pytest.raises(RuntimeError, match="need the headers of the CUDA toolkit"):
        made(TREE, ("f16", "f32"), "nvrtc")


@pytest.mark.skipif("nvcc" not in TOOLS, reason="no nvcc")
def test_a_library_that_is_no_nvrtc(monkeypatch, tmp_path):
    (tmp_path / "libnvrtc.so").write_text("no library")
    monkeypatch.setenv("NVRTC", str(tmp_path / "libnvrtc.so"))
    assert nvrtc.find() is None
    assert made(TREE, ("f32", "f32"), None).symbols  # by nvcc
    monkeypatch.setenv("NVRTC", os.devnull)
    assert nvrtc.find() is None


def test_where_nvrtc_is_looked_for(monkeypatch, tmp_path):
    for name in ("NVRTC", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(toolkit, "USUAL_PLACE", str(tmp_path / "usual"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    assert toolkit.find_library("nvrtc") is None and toolkit.headers(None) == []
    files = [
        "other/libnvrtc.so.13", "site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "site/nvidia/cu13/lib/libnvrtc.so.13", "usual/lib64/libnvrtc.so", "home/lib/libnvrtc.so",
        "mine.so",
    ]  # fmt: skip
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path / 'other'}")
    for file in files:  # each place before the one above it
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
        if file.startswith("home"):
            monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
        elif file == "mine.so":
            monkeypatch.setenv("NVRTC", str(tmp_path / file))
        assert toolkit.find_library("nvrtc") == tmp_path / file
    (tmp_path / "site/nvidia/cu13/include").mkdir()
    (tmp_path / "site/nvidia/cu13/include/cuda_fp16.h").touch()
    wheel = tmp_path / "site/nvidia/cu13/lib/libnvrtc.so.13"
    assert toolkit.headers(wheel) == toolkit.headers(None)
    assert toolkit.headers(wheel)[0] == tmp_path / "site/nvidia/cu13/include"
