"""Kernels of users: their heads, the compiler's messages, and sum, explain and races of them."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gpureduce
from cases import run_python
from gpureduce.kernels import compiler_process, compiling, signature
from user_kernels import TREE, plain

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
DTYPES = ("bool", "int8", "uint16", "int32", "uint32", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_of_every_dtype(dtype):
    k = gpureduce.kernel(TREE)
    array = (np.arange(1000) % 2).astype(dtype)
    value, timing = gpureduce.sum(array, k)
    assert value == array.sum(dtype=np.float64) and value.dtype == array.sum().dtype
    assert timing.strategy == "my_rung" and timing.backend == "emulator"
    assert timing.block == 256 and timing.grid == 4 and timing.launches == 2


def test_the_launch_is_the_callers():
    k = gpureduce.kernel(TREE)
    result = gpureduce.sum(np.ones(1000), k, block=96, finish="host")
    assert (result.timing.block, result.timing.grid, result.timing.launches) == (96, 11, 1)
    with pytest.raises(ValueError, match="multiple of 32"):
        gpureduce.sum(np.ones(9), k, block=33)
    with pytest.raises(ValueError, match="is a GPU kernel: device must be 'cuda' or 'emulator'"):
        gpureduce.sum(np.ones(9), k, device="cpu")
    with pytest.raises(ValueError, match="device must be None, 'cpu', 'cuda'"):
        gpureduce.sum(np.ones(9), k, device=np.zeros(2))
    with pytest.raises(ValueError, match="this one is in host memory"):
        gpureduce.sum(np.ones(9), k, device="emulator", stream=1)
    with pytest.raises(TypeError, match="sums whole arrays"):
        gpureduce.sum(np.ones((3, 3)), k, axis=0)


def test_the_order_of_threads_is_the_callers():
    text = plain("out[0] = blockIdx.x * blockDim.x + threadIdx.x;")  # the last one to write
    k, ones = gpureduce.kernel(text), np.ones(64, np.float32)
    assert gpureduce.sum(ones, k, block=32)[0] == 63
    with gpureduce.emulator.schedule("reverse"):
        assert gpureduce.sum(ones, k, block=32)[0] == 0


def test_kernels_as_values():
    k = gpureduce.kernel(TREE)
    assert pickle.loads(pickle.dumps(k)) == k and {k: 1}[gpureduce.kernel(TREE)] == 1
    with pytest.raises(TypeError, match="takes a kernel's text or a path"):
        gpureduce.kernel(3)
    with pytest.raises(TypeError, match=r"limits must be gpureduce.Limits\(seconds=...\), not 3"):
        gpureduce.kernel(TREE, limits=3)
    with pytest.raises(TypeError, match="strategy cannot be a kernel of your own here"):
        gpureduce.integrate("sine", strategy=k)


def test_error_bound_of_a_sum():
    values = np.random.default_rng(1).random(5000).astype(np.float32)
    result = gpureduce.sum(values, gpureduce.kernel(TREE))
    exact = math.fsum(values.tolist())
    bound = gpureduce.error_bound(result, exact)
    assert abs(float(result) - exact) <= bound < 5000 * 2**-23 * exact


def test_explain_counts_what_a_rung_of_the_same_text_does():
    text = gpureduce.source("interleaved_idx").text
    own = gpureduce.explain(gpureduce.kernel(text), n=5000)
    ours = gpureduce.explain("interleaved_idx", n=5000)
    assert own.counters == ours.counters and own.total == ours.total
    assert own.worst_line.text == ours.worst_line.text
    assert own.worst_line.line == ours.worst_line.line
    both = gpureduce.explain(gpureduce.kernel(text), "sequential", n=5000)
    assert both.fell[0].name == "shared_load_conflicts"


def test_counts_and_races_are_of_the_kernels_own_dtype():
    body = "if (!threadIdx.x) atomicAdd(out, in[blockIdx.x]);"
    k = gpureduce.kernel(plain(body, "double", "double"))
    both = gpureduce.explain("sequential", k, n=1024)
    assert both.before.dtype == both.after.dtype == "float64" == gpureduce.races(k).dtype
    assert "float64 added up in float64" in str(both)
    for ask in (gpureduce.explain, gpureduce.races):
        with pytest.raises(TypeError, match="pass an array of float64, not of int32"):
            ask(k, dtype="int32")
    floats = gpureduce.kernel(plain(body))
    with pytest.raises(TypeError, match="pass an array of float32, not of float64"):
        gpureduce.explain(k, floats, n=1024)


def test_two_kernels_of_one_name_are_numbered():
    text = plain("if (!threadIdx.x) atomicAdd(out, in[blockIdx.x]);")
    both = gpureduce.explain(gpureduce.kernel(text), gpureduce.kernel(text + "//"), n=1024)
    assert str(both).startswith("f (1) → f (2): ")


def test_races_of_a_kernel_of_yours():
    found = gpureduce.races(gpureduce.kernel(TREE))
    assert not found
    with pytest.raises(ValueError, match="my_rung has no race to show"):
        found.svg()
    wrong = gpureduce.kernel(gpureduce.source("missing_barrier").text)
    found, ours = gpureduce.races(wrong), gpureduce.races("missing_barrier")
    assert [race.missing for race in found.races] == [race.missing for race in ours.races]
    assert found.races[0].sides[0].place.text == ours.races[0].sides[0].place.text
    assert "<svg" in found.svg()


def test_static_shared_memory_is_shared_memory():
    text = """__global__ void f(const float *in, float *out, size_t n)
{
    __shared__ float a[1024];
    a[threadIdx.x] = threadIdx.x < n ? in[threadIdx.x] : 0;
    __syncthreads();
    out[blockIdx.x] = a[2 * threadIdx.x % 64] + a[0];
}
"""
    k = gpureduce.kernel(text)
    counted = gpureduce.explain(k, n=64, block=64, dtype="float32")
    assert counted.counters["shared_store_instructions"] == 2
    assert counted.counters["shared_load_conflicts"] == 2  # a stride of two words, for each warp
    assert counted.counters["global_load_requests"] == 2
    race = gpureduce.races(
        gpureduce.kernel(text.replace("    __syncthreads();\n", "")), n=64, block=64
    )
    assert any(r.address.startswith("a[") for r in race.races)
    offsets = {int(r.address[2:-1]) for r in race.races if r.address.startswith("a[")}
    assert offsets <= set(range(64))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x;\n", "there is no kernel in the text"),
        ("void q(const float *in, float *out, size_t n)", "there is no kernel in the text"),
        ("__global__ void f(float *out) {}", "f has no parameter for the sums"),
        ("__global__ void f(int n) {}", "f has no parameter for the elements"),
        (
            "__global__ void f(const float *in, float *out, int n, float scale) {}",
            "gpureduce cannot fill in the parameter 'float scale' of f",
        ),
        (
            "__global__ void f(const float *a, const float *b, float *out, int n) { *out = *a; }",
            "gpureduce cannot fill in the parameter 'const float * b' of f",
        ),
        ("__global__ void f(const float *in, int *out, size_t n) {}", "cannot hold such sums"),
        ("__global__ void f(const Foo *in, Foo *out, size_t n) {}", "elements of type Foo"),
        (TREE + TREE.replace("my_rung", "two"), "name one of my_rung, two"),
        (plain("f<<<1, 2>>>(in, out, n);"), "line 2 launches a kernel"),
        (plain("__shared__ int a = 0; out[0] = a;"), "line 2 initializes a __shared__ variable"),
        (
            plain("extern __shared__ float s; out[0] = s;"),
            "line 2: declare extern __shared__ memory",
        ),
        (
            "__global__ void f(const float *in, float *out, size_t n) { store(out, in[n - 1]); }",
            "it is unclear whether f",
        ),
        ("// gpureduce: elements=9\n" + TREE, "elements must be one of 1, 2, 3, 4"),
        ("// gpureduce: speed=3\n" + TREE, "no option 'speed'"),
    ],
)
def test_a_head_that_cannot_be(text, message):
    with pytest.raises(gpureduce.KernelError) as error:
        gpureduce.kernel(text)
    assert message in str(error.value)


def test_options_by_argument_comment_and_text():
    assert gpureduce.kernel(TREE).options["elements"] == "1"
    commented = gpureduce.kernel("// gpureduce: elements=2 shared=warp\n" + TREE)
    assert commented.options["elements"] == "2" and commented.options["shared"] == "warp"
    given = gpureduce.kernel("// gpureduce: elements=2\n" + TREE, elements="many", finishes=True)
    assert given.options["elements"] == "many" and given.options["finishes"] == "yes"


@pytest.mark.parametrize(
    ("body", "finishes"),
    [
        ("out[0] = in[0];", "yes"),
        ("out[ 0 ] = in[ 0 ];", "yes"),
        ("*out = in[0];", "yes"),
        ("out[ blockIdx.x ] = in[0];", "no"),
        ("if (n == 1) out[ 0 ] = 0; else out[blockIdx.x] = in[0];", "no"),
    ],
)
def test_where_the_sums_go_is_guessed(body, finishes):
    text = plain(body).replace("finishes=yes", "")
    assert gpureduce.kernel(text).options["finishes"] == finishes


@pytest.mark.parametrize(
    ("index", "elements"),
    [
        ("i += gridDim.x * blockDim.x", "many"),
        ("i += blockDim.x * gridDim.x", "many"),
        ("i += size_t(gridDim.x) * blockDim.x", "many"),
        ("i += blockDim.x * size_t(gridDim.x)", "many"),
        ("i += (size_t)gridDim.x * blockDim.x", "many"),
        ("i += blockDim.x * (size_t)gridDim.x", "many"),
        ("i += gridDim.x", "many"),
        ("i = n / gridDim.x", "many"),
        ("i = blockIdx.x * (blockDim.x * 2)", "2"),
        ("i = size_t(blockIdx.x) * blockDim.x * 2", "2"),
        ("i = blockIdx.x * blockDim.x; last = gridDim.x - 1", "1"),
    ],
)
def test_the_elements_per_thread_are_guessed(index, elements):
    k = gpureduce.kernel(plain(f"size_t i = 0, last = 0; {index}; out[0] = in[i + last];"))
    assert k.options["elements"] == elements


def test_messages_of_the_compiler_have_the_users_lines():
    k = gpureduce.kernel(TREE.replace("unsigned tid = threadIdx.x;", "unsigned tid = threadIdx.w;"))
    with pytest.raises(gpureduce.KernelError) as error:
        gpureduce.sum(np.ones(3), k)
    said = str(error.value)
    assert "my_rung.cu:4:" in said and "‘w’" in said
    assert "gpureduce_kernel" not in said and "tmp" not in said and ".cpp" not in said


def test_an_error_in_a_header_of_ours_names_what_is_wrong():
    with pytest.raises(gpureduce.KernelError) as error:
        gpureduce.sum(
            np.ones(3, np.float32),
            gpureduce.kernel(plain("char c = 1; out[0] = __shfl_down_sync(~0u, c, 1);")),
        )
    assert "CUDA shuffles 4 and 8 bytes" in str(error.value)
    assert "f.cu" in str(error.value) and "gpureduce_kernel" not in str(error.value)


@pytest.mark.parametrize(
    ("head", "call", "name"),
    [("", "cudaMalloc(0, 0)", "cudaMalloc"), ("__device__ void g(int);\n", "g(1)", "g")],
)
def test_a_function_that_is_nowhere_is_named(head, call, name):
    k = gpureduce.kernel(head + plain(f"{call}; out[0] = in[0];"))
    with pytest.raises(gpureduce.KernelError) as error:
        gpureduce.sum(np.ones(3, np.float32), k)
    assert f"f.cu: there is no function {name} that a kernel can call" in str(error.value)


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        RuntimeError, match=r"'no-such-compiler', which is not there: install g\+\+"
    ):
        gpureduce.sum(np.ones(3), gpureduce.kernel(TREE))
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    compiling._compiler.cache_clear()
    with pytest.raises(RuntimeError, match="there is no C\\+\\+ compiler here: install g\\+\\+"):
        gpureduce.sum(np.ones(3), gpureduce.kernel(TREE))
    compiling._compiler.cache_clear()


def test_a_file_and_its_own_header(tmp_path):
    (tmp_path / "mine.cuh").write_text("#define ONE_MORE 1\n")
    text = '#include "mine.cuh"\n' + plain("out[0] = in[0] + ONE_MORE;")
    (tmp_path / "my.cu").write_text(text)
    k = gpureduce.kernel(tmp_path / "my.cu")
    assert k.file == "my.cu"
    assert gpureduce.sum(np.ones(1, np.float32), k, block=32)[0] == 2
    (tmp_path / "mine.cuh").write_text("#define ONE_MORE 2\n")  # the cache sees the header
    assert gpureduce.sum(np.ones(1, np.float32), k, block=32)[0] == 3


def test_a_header_that_cannot_be_is_told_by_the_compiler(tmp_path):
    for name in ("n" * 5000, "nowhere.h", "."):
        (tmp_path / "my.cu").write_text(f'#include "{name}"\n' + TREE)
        with pytest.raises(gpureduce.KernelError, match=r"my.cu:1:\d+: fatal error"):
            gpureduce.sum(np.ones(1, np.float32), gpureduce.kernel(tmp_path / "my.cu"))


def test_a_relative_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert gpureduce.sum(np.ones(9), gpureduce.kernel(TREE)).value == 9
    assert (tmp_path / "cache" / "gpureduce").is_dir()


def test_any_letters_in_any_locale(tmp_path):
    """Files are written in UTF-8, also where the locale knows ASCII alone."""
    text = "// \u03bc\u2192\n" + TREE
    (tmp_path / "my.cu").write_text(text, "utf-8")
    code = f"import gpureduce; k = gpureduce.kernel({str(tmp_path / 'my.cu')!r}); "
    code += "print(gpureduce.sum([1.0, 2.0], k).value)"
    words = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    words["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    assert run_python(code, **words) == "3.0\n"
    with pytest.raises(gpureduce.KernelError, match="which UTF-8 cannot hold"):
        gpureduce.kernel("// \udc80\n" + TREE)


def test_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    k = gpureduce.kernel(TREE)
    gpureduce.sum(np.ones(9), k)
    kept = {path: path.stat().st_ino for path in tmp_path.rglob("*.so")}
    assert len(kept) == 2  # for the plain and for the traced emulator
    heads = {path: path.stat().st_ino for path in tmp_path.rglob("*.gch")}
    assert len(heads) == (0 if compiling.compiler().is_clang else 2)
    gpureduce.sum(np.ones(9), k)
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*.so")} == kept
    gpureduce.sum(np.ones(9), gpureduce.kernel(TREE.replace("512", "1024")))
    assert len(list(tmp_path.rglob("*.so"))) == 4
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*.gch")} == heads
    for path in heads:
        path.write_bytes(b"of another compiler")
    assert gpureduce.sum(np.ones(9), gpureduce.kernel(f"// other\n{TREE}")).value == 9
    assert not [p for p in tmp_path.rglob("*") if p.suffix in (".o", ".cpp")]


def test_a_spoiled_file_of_the_cache_is_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    k = gpureduce.kernel(TREE)
    gpureduce.sum(np.ones(9), k)
    for path in tmp_path.rglob("*.so"):
        whole = path.read_bytes()
        half = whole[: len(whole) // 2]
        for content in (b"", half, half + bytes(len(half))):  # the half ends a process by SIGBUS
            path.unlink()  # it may be mapped
            path.write_bytes(content)
            assert gpureduce.sum(np.ones(9), gpureduce.kernel(TREE)).value == 9
            assert path.stat().st_size == len(whole)


def test_a_spoiled_header_of_the_cache_is_written_again(tmp_path, monkeypatch):
    """The error was one of the user's kernel."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compiling.header_folder()
    header = folder / "emulator/include/device.h"
    whole = header.read_text()
    for spoil in (
        lambda: header.write_text(whole[: len(whole) // 2]),
        lambda: header.write_bytes(b"\xff" * 99),
        header.unlink,
        lambda: shutil.rmtree(header.parent),
        lambda: shutil.rmtree(folder),
    ):
        spoil()
        assert compiling.header_folder() == folder and header.read_text() == whole
    header.write_text("")
    assert gpureduce.sum(np.ones(9), gpureduce.kernel(TREE)).value == 9
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == [folder.name]


def test_a_cache_for_one_process_is_removed_at_its_end(tmp_path):
    (tmp_path / "gpureduce").write_text("in the way of the folder")
    code = "import gpureduce, os, tempfile; from gpureduce.kernels import compiling; "
    code += "folder = compiling.cache_folder(); print(folder); child = os.fork() or os._exit(0); "
    code += "os.waitpid(child, 0); assert folder.is_dir()"
    said = run_python(code, XDG_CACHE_HOME=str(tmp_path), TMPDIR=str(tmp_path))
    assert Path(said.strip()).parent == tmp_path and not Path(said.strip()).exists()


def test_the_headers_come_with_the_package(tmp_path, monkeypatch):
    """Nothing of the checkout is read, and the package has the headers of the checkout."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    files = compiling.recipe()["files"]
    folder = compiling.header_folder()
    assert folder.is_relative_to(tmp_path)
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*.h")} <= set(files)
    root = Path(__file__).resolve().parents[2]
    for name, text in files.items():
        homes = [root / folder / name for folder in ("csrc", "gpureduce/include")]
        found = [home.read_text() for home in homes if home.exists()]
        assert not (root / "csrc").exists() or found == [text], f"{name}: build again"


def test_what_a_kernel_prints_is_printed(capsys):
    gpureduce.sum(
        np.ones(3, np.float32), gpureduce.kernel(plain('printf("%d\\n", int(n));')), block=32
    )
    assert capsys.readouterr().out == "3\n" * 32


def test_wrong_dtypes():
    k = gpureduce.kernel(plain("out[0] = in[0];"))
    assert k.dtypes == ("float32",)
    with pytest.raises(
        TypeError, match="f sums f32 in f32: pass an array of float32, not of float64"
    ):
        gpureduce.sum(np.ones(3), k)
    with pytest.raises(TypeError, match="float32"):
        gpureduce.check(k, "int32")
    with pytest.raises(TypeError, match="strategy cannot be a kernel of your own here"):
        gpureduce.source(k)


def test_several_threads_of_the_host():
    k, found = gpureduce.kernel(TREE), []

    def add(n):
        found.append(float(gpureduce.sum(np.ones(n), k).value) == n)

    threads = [threading.Thread(target=add, args=(n,)) for n in (10, 100, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 3


def test_a_child_process_of_the_user():
    run_python(
        "import os, numpy as np, gpureduce, sys\n"
        f"k = gpureduce.kernel({TREE!r})\n"
        "assert gpureduce.sum(np.ones(9), k)[0] == 9\n"
        "child = os.fork()\n"
        "assert gpureduce.sum(np.ones(99), k)[0] == 99\n"
        "sys.exit(0) if not child else None\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert gpureduce.sum(np.ones(9), k)[0] == 9\n"
    )


@pytest.mark.parametrize(
    "head",
    [
        "__device__ inline float one() { return 1; }",
        "static inline __host__ __device__ float one() { return 1; }",
        "__forceinline__ __device__ float one() { return 1; }",
        "__device__ __forceinline__ inline float one() { /* inline */ return 1; }",
    ],
)
def test_device_functions(head):
    k = gpureduce.kernel(head + plain("out[0] = one(); // inline"))
    assert gpureduce.sum(np.ones(1, np.float32), k, block=32)[0] == 1


@pytest.mark.parametrize(
    "head",
    [
        "template <typename T> __global__ void f(const T *__restrict__ in, T *out, size_t n)",
        "template <typename T, typename A> __global__ void f(const T *in, A *out, size_t n)",
        "template <class T, class A> __global__ void f(A *out, T in[], int n)",
        'extern "C" __global__ void f(const float in[], float* out, unsigned n)',
        "__global__ void __launch_bounds__(1024, 1) f(const float *in, float *out, int n)",
        "__global__\nvoid\nf(float *in,\n  float *out,\n  const size_t n)",
        "template <unsigned block> __global__ void f(const float *in, float *out, size_t n)",
    ],
)
def test_heads(head):
    k = gpureduce.kernel(f"// one sum\n{head} {{ out[0] = in[0] + in[n - 1]; }}", finishes=True)
    assert k.signature.named("out") == "out" and k.name == "f"
    array = np.array([1, 5, 7], np.float32)
    assert gpureduce.sum(array, k, block=64)[0] == 8


LONG = 30_000
LONG_TEXTS = {
    "gaps before a kernel": "extern" + " " * LONG + "x;\n" + plain("out[0] = in[0];"),
    "a name": plain("out[0] = in[0];").replace("size_t n", "size_t " + "n" * LONG),
    "gaps in a stride": plain("gridDim.x" + " " * LONG + "; out[0] = in[0];"),
    "gaps in an atomic": plain("atomicAdd(" + " " * LONG + "; out[0] = in[0];"),
}
# Patterns were tried from each of many places, to the end of the text: this took minutes.
REPEATED = ["/*", '\\"', "extern __shared__ a ", "int a, ", "gridDim", "__device__ inline ",
            "template <"]  # fmt: skip
HEAD = "template <typename In, typename Acc> __global__ void f(In "
LONG_TEXTS |= {
    words: HEAD + words * (LONG // len(words)) + "in, Acc *out, size_t n)\n{ out[0] = in[0]; }\n"
    for words in REPEATED
}


@pytest.mark.parametrize("text", LONG_TEXTS.values(), ids=LONG_TEXTS)
def test_long_texts_are_read_once(text):
    refused = [gpureduce.KernelError] if text.startswith(HEAD) else []
    start = time.perf_counter()
    with contextlib.suppress(*refused):
        gpureduce.kernel(text)
    assert time.perf_counter() - start < 20  # less than 1


def test_empty_lines_of_a_file_are_read_once(tmp_path):
    start = time.perf_counter()
    assert compiling.Source("\n" * LONG, "my.cu", str(tmp_path)).included() == []
    assert time.perf_counter() - start < 30


def test_a_text_has_a_size():
    with pytest.raises(gpureduce.KernelError, match="at most 1048576"):
        gpureduce.kernel("\n" * 2**21)


def test_marks_that_are_not_closed():
    plain = signature.without_comments
    assert plain("a 1'000 b // c") == "a 1'000 b     "
    assert plain('a "b\nc /* d') == "a   \nc     "
    assert plain("a 'b' c") == "a     c"


def test_a_compiler_that_does_not_end_leaves_no_file_open(tmp_path):
    """The other compiler has ended by then: its pipe is closed, too."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(gpureduce.KernelError, match=r"took more than 0\.2 s and was ended"):
        compiler_process.run([["sleep", "60"], ["true"]], tmp_path, 0.2)
    assert set(os.listdir("/proc/self/fd")) == before
