"""Grades: the rules, the specs, and the assignments with the solutions that must lose points."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import gpureduce
from gpureduce.classroom import assignments
from gpureduce.cli.main import main
from gpureduce.kernels import process
from user_kernels import ONE_BLOCK, TREE, some

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no compiler")
ASSIGNMENTS = Path(__file__).resolve().parents[2] / "notebooks" / "assignments"
NAMES = sorted(path.name for path in ASSIGNMENTS.iterdir()) if ASSIGNMENTS.exists() else []
FILES = sorted(path.relative_to(ASSIGNMENTS) for path in ASSIGNMENTS.rglob("*.cu"))
WRONG = [path for path in FILES if "wrong" in path.parts]


def test_there_are_assignments():
    assert len(NAMES) == 10 and len(WRONG) >= 45
    for name in NAMES:  # each can be wrong in at least three ways
        assert sum(path.parts[0] == name for path in WRONG) >= 3


@pytest.mark.parametrize("path", some(FILES, 54), ids=str)
def test_an_assignment(path):
    """The reference gets all points and the start file none. A wrong solution loses some."""
    one = assignments.find(str(ASSIGNMENTS / path.parts[0]))
    points, problem = assignments.checked_file(one, path.relative_to(path.parts[0]).as_posix())
    assert not problem and points.endswith(" of 10"), (points, problem)
    assert path.name not in ("start.cu",) or points == "0 of 10"


RULES = {
    "lines <= 15": True,
    "lines < 15": False,
    "use __syncthreads": True,
    "forbid __syncthreads": False,
    "block_barriers <= 12 per block": True,
    "block_barriers < 10 per block": False,
    "global_load_sectors <= 1.05 times the least": True,
    "global_load_sectors < 1 times the least": False,
    "shared_load_conflicts == 0": True,
    "atomics > 0": False,
    "busiest_warp_requests == 1": True,
    "busiest_warp_requests > 1": False,
}


def test_rules():
    require = [{"rule": rule, "points": 5} for rule in RULES]
    grade = gpureduce.grade(TREE, {**ONE_BLOCK, "require": require})
    assert {row.rule: row.holds for row in grade.rows} == RULES, str(grade)
    assert grade.points == 5.0 * sum(RULES.values())
    assert all(bool(row.why) is not row.holds for row in grade.rows)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "has no rule"),
        (
            {"rules": []},
            "spec may have title, kernel, dtypes, launch, blocks, sizes, assume, n, hints, require",
        ),
        ({"require": [{"rule": "fast"}]}, "has the rule 'fast'; a rule is one of"),
        ({"require": [{"rule": "speed <= 3"}]}, "a rule is one of"),
        ({"require": [{"rule": "atomics <= 2 times the least"}]}, "no least is known in"),
        ({"require": [{"rule": "right", "points": -1}]}, "points are a number from 0"),
        ({"require": [{"points": 3}]}, "it has rule, points, says, given"),
        ({"require": [{"rule": "block_barrier <= 3"}]}, "did you mean block_barriers?"),
        ({"require": [{"rule": "right"}], "dtypes": ["complex64"]}, "not 'complex64'"),
        ({"require": [{"rule": "right"}], "dtypes": []}, "at least one dtype"),
        ({"require": [{"rule": "right"}], "launch": 5}, "launch must have options"),
        ({"require": [{"rule": "right"}], "launch": {"alone": "maybe"}}, "one of yes, no"),
        ({"require": [{"rule": "right"}], "launch": {"speed": 3}}, "no option 'speed'"),
        ({"require": [{"rule": "right"}], "n": 0}, "n must be from 1"),
        ({"require": [{"rule": "right"}], "hints": "no"}, "hints must be true or false"),
        ({"require": [{"rule": "right"}], "kernel": "a b"}, "kernel must be the name"),
        ({"require": [{"rule": "right", "given": 1}]}, "given must be true or false"),
        ({"require": [{"rule": "right assuming luck"}]}, "'right assuming luck': a condition has"),
        *(
            (spec, "the spec")
            for spec in (
                {"require": 5},
                {"require": "right"},
                {"require": [5]},
                {"require": [[1]]},
                {"require": [{5: 5}]},
                {"require": [{"rule": "right", "points": 10**400}]},
                {"require": [{"rule": "right", "points": float("nan")}]},
                {"require": [{"rule": "right", "points": float("inf")}]},
                {"require": [{"rule": "right"}], "dtypes": 5},
                {"require": [{"rule": "right"}], "dtypes": "float32"},
                {"require": [{"rule": "right"}], "dtypes": [5]},
                {"require": [{"rule": "right"}], "dtypes": ["float33"]},
            )
        ),
    ],
)
def test_a_spec_that_cannot_be(spec, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        gpureduce.grade(TREE, spec)


@pytest.mark.parametrize(
    ("seed", "error"), [("abc", TypeError), (1.5, TypeError), (-1, ValueError)]
)
def test_a_seed_that_cannot_be(seed, error):
    with pytest.raises(error, match="seed must be"):
        gpureduce.grade(TREE, {"require": [{"rule": "right"}]}, seed=seed)


def test_a_spec_fixes_the_launch():
    """Whatever the text or the caller asks for; the row says so."""
    spec = {**ONE_BLOCK, "require": [{"rule": "right"}]}
    fixed = {**spec, "launch": {"finishes": False, "alone": False}}
    text = (ASSIGNMENTS / "first_tree" / "wrong" / "one_warp_alone.cu").read_text()
    assert gpureduce.grade(text, spec).points == 1
    (row,) = gpureduce.grade(text, fixed).rows
    assert not row.holds and row.why.endswith(
        "The spec launches it with finishes=no, alone=no; its text shows finishes=yes, alone=yes."
    )
    assert gpureduce.grade(TREE, fixed).points == 1


def test_counts_hold_for_a_second_size_and_block():
    spec = {**ONE_BLOCK, "require": [{"rule": "atomics == 0"}]}
    special = TREE.replace(
        "    unsigned tid", "    if (n != 65536 && n > 20000 && n < 2 << 17)\n"
        "        atomicAdd(&out[blockIdx.x], Acc(0));\n    unsigned tid",
    )  # fmt: skip
    reasons = {gpureduce.grade(special, spec, seed=seed).rows[0].why for seed in (0, 1)}
    assert len(reasons) == 2 and all("block = " in why for why in reasons), reasons


def test_a_sum_that_is_wrong_for_the_counted_size():
    text = (ASSIGNMENTS / "no_conflicts" / "wrong" / "wrong_for_the_counted_size.cu").read_text()
    rules = [{"rule": "right"}, {"rule": "atomics == 0"}]
    grade = gpureduce.grade(text, {"dtypes": ["int32"], "blocks": "256", "require": rules})
    assert grade.points == 0 and "Wrong for n = 65536, block = 256" in grade.rows[0].why


def test_files_that_are_no_specs(tmp_path):
    (tmp_path / "spec.toml").write_text("title = ")
    with pytest.raises(ValueError, match="is not valid TOML"):
        gpureduce.grade(TREE, tmp_path / "spec.toml")
    with pytest.raises(FileNotFoundError):
        gpureduce.grade(TREE, tmp_path / "none.toml")


def test_forms_of_a_grade(tmp_path, capsys):
    spec = {"title": "T", "require": [{"rule": "right", "points": 2}, {"rule": "use foo"}],
            **ONE_BLOCK}  # fmt: skip
    grade = gpureduce.grade(TREE, spec)
    assert float(grade) == 2 and grade.most == 3 and "T: 2 of 3 points" in str(grade)
    told = json.loads(grade.to_json())
    assert told["points"] == 2 and told["rules"][1]["why"] == "foo is not there"
    assert repr(grade) == str(grade)
    page = grade._repr_html_()
    assert "T: 2 of 3 points" in page and page.count("<tr>") == 3 and "foo is not there" in page
    tests = grade.gradescope()["tests"]
    assert [(t["score"], t["max_score"], t["status"]) for t in tests] == [
        (2, 2, "passed"),
        (0, 1, "failed"),
    ]
    (tmp_path / "spec.toml").write_text(
        'dtypes = ["int32"]\nblocks = "64"\n[[require]]\nrule = "right"\npoints = 4\n'
    )
    (tmp_path / "my.cu").write_text(TREE)
    paths = [str(tmp_path / "spec.toml"), str(tmp_path / "my.cu")]
    assert main(["grade", *paths, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 4
    assert main(["grade", *paths, "--gradescope", "--seed", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["tests"][0]["score"] == 4
    for forms in (["--rule", "1", "--json"], ["--gradescope", "--json"]):
        assert main(["grade", *paths, *forms]) == 2
        said = capsys.readouterr().err
        assert "are different outputs" in said and all(f in said for f in forms if f[0] == "-")


def test_reasons_are_printed_in_full():
    wrong = TREE.replace("i < n ?", "i + 1 < n ?")
    shown = str(gpureduce.grade(wrong, {"require": [{"rule": "right"}], **ONE_BLOCK}))
    table, _, below = shown.partition("right:\n")
    assert ":" not in table.splitlines()[-2] and "the sum is" in below and "left out" in below


def test_a_reason_of_several_rules_is_printed_once():
    rules = [{"rule": "right"}, {"rule": "no races"}]
    shown = str(gpureduce.grade(TREE.replace("unsigned", "unsinged", 1), {"require": rules}))
    assert shown.count("the compiler refuses") == 1 and shown.count("not judged") == 2, shown


def test_files_that_do_not_end_or_are_nested_too_deeply(tmp_path):
    deep = tmp_path / "deep.toml"
    deep.write_text("x = " + "[" * 50_000)
    for path in (deep, Path("/dev/zero")):
        with pytest.raises(ValueError, match=rf"{path} is not valid TOML: it (has more|is nested)"):
            gpureduce.grade(TREE, path)
    with pytest.raises(gpureduce.KernelError, match="/dev/zero cannot be read as a kernel"):
        gpureduce.kernel(Path("/dev/zero"))


def test_what_a_task_needs_is_said_once():
    spec = {"dtypes": ["int32", "float32"], "require": [{"rule": "compiles"}, {"rule": "right"}]}
    spec["blocks"] = "64"
    text = TREE.replace("template <typename In, typename Acc> ", "")
    text = text.replace("(In in, Acc *", "(const int *in, int *").replace("Acc", "int")
    said = str(gpureduce.grade(text, spec))
    assert said.count("the task needs float32, too: begin with template <typename In,") == 1
    assert gpureduce.grade(text, spec)._repr_html_().count("the task needs float32") == 1
    both = TREE + text.replace("my_rung", "two")
    assert gpureduce.grade(both, spec, name="my_rung").points == 2


def test_one_of_several_kernels_is_graded(tmp_path, capsys):
    (tmp_path / "my.cu").write_text(TREE + TREE.replace("my_rung", "two"))
    (tmp_path / "spec.toml").write_text(
        'dtypes = ["int32"]\nblocks = "64"\n[[require]]\nrule = "compiles"\n'
    )
    file, spec = str(tmp_path / "my.cu"), str(tmp_path / "spec.toml")
    for words in ([f"{file}:two"], [file, "--name", "two"]):
        assert main(["grade", spec, *words]) == 0 and "1 of 1 points" in capsys.readouterr().out
    assert main(["grade", spec, f"{file}:two", "--name", "my_rung"]) == 2
    assert main(["check", f"{file}:no", "--device", "emulator"]) == 2
    assert "there is no kernel 'no'" in capsys.readouterr().err


def test_given_rules_earn_only_beside_another_one():
    rules = [{"rule": "compiles", "given": True}, {"rule": "no races", "given": True}]
    rules += [{"rule": "right assuming powers_of_two"}, {"rule": "right"}, {"rule": "lines <= 99"}]
    spec = {"dtypes": ["int32"], "blocks": "64,96,128", "require": rules}
    start = TREE.replace("for (", "for (; false;) for (")
    halving = TREE.replace("stride = 512", "stride = blockDim.x / 2").replace(
        " && tid + stride < blockDim.x", ""
    )
    expected = {
        start: "given given fails fails not judged",
        halving: "holds holds holds fails not judged",
        TREE: "holds holds holds holds holds",
        TREE.replace("Acc sum", "sum").replace("tid;", "tic;"):
            "fails not judged not judged not judged not judged",
    }  # fmt: skip
    for text, states in expected.items():
        grade = gpureduce.grade(text, spec)
        assert " ".join(row.state for row in grade.rows) == states, str(grade)
        assert grade.points == states.count("holds")
    shown = str(gpureduce.grade(start, spec))
    assert shown.count("for the same reason") == 1 and shown.count("They earn points once") == 1


def test_the_dtypes_are_the_kernels_own():
    text = TREE.replace("template <typename In, typename Acc> ", "")
    text = text.replace("(In in, Acc *", "(const float *in, float *").replace("Acc", "float")
    for own in ({}, {"dtypes": "own"}):
        spec = {"require": [{"rule": "right"}, {"rule": "atomics == 0"}], "blocks": "64", **own}
        grade = gpureduce.grade(text, spec)
        assert grade.points == 2 and grade.verdict.dtypes == ("float32",)


@pytest.mark.parametrize(
    ("old", "new"),
    some([("        __syncthreads();\n", ""), ("stride = 512", "stride = blockDim.x / 2"),
          ("__syncthreads();\n    for", "if (tid < 5) __syncthreads();\n    for")], 3),
)  # fmt: skip
def test_without_hints_nothing_says_what_to_mend(old, new):
    spec = {"dtypes": ["int32"], "require": [{"rule": "right"}, {"rule": "no races"}]}
    text = TREE.replace(old, new)
    remedies = re.compile(
        r"(?i)missing|put a|start at the next|mend|lift this|take it|to try next|--assume"
    )
    for hints in (True, False):
        grade = gpureduce.grade(text, {**spec, "hints": hints})
        shown = f"{grade}\n{grade.verdict}\n{grade.verdict._repr_html_()}"
        assert bool(remedies.search(shown)) is hints, shown
        assert grade.points < 2


def test_a_count_that_gets_no_processor_has_more_time(monkeypatch):
    """As a quiet launch has: a right kernel lost these points on a busy machine."""
    jobs, run = [], process.run
    monkeypatch.setattr(process, "run", lambda job: jobs.append(job) or run(job))
    spec = {**ONE_BLOCK, "require": [{"rule": "atomics == 0"}]}
    assert gpureduce.grade(TREE, spec).points == 1
    (count,) = (job for job in jobs if job.function == "count_cases")
    assert count.limits.seconds == 4 * count.quiet_s == 80


def test_a_rule_has_an_exit_status(tmp_path, capsys):
    rules = '[[require]]\nrule = "right"\n[[require]]\nrule = "use foo"\n'
    (tmp_path / "spec.toml").write_text(f'dtypes = ["int32"]\nblocks = "64"\n{rules}')
    (tmp_path / "my.cu").write_text(TREE)
    words = ["grade", str(tmp_path / "spec.toml"), str(tmp_path / "my.cu"), "--rule"]
    assert main([*words, "1"]) == 0
    with pytest.raises(SystemExit, match="1"):
        main([*words, "2"])
    assert main([*words, "3"]) == 2 and "--rule must be from 1 to 2" in capsys.readouterr().err


@pytest.mark.parametrize("where", some(["blocks=powers_of_two", "blocks=256 sizes=full_blocks"], 2))
def test_no_comment_says_where_a_kernel_is_to_be_right(where):
    """That is for the spec to say: `check` tries a kernel there alone."""
    text = TREE.replace("stride = 512", "stride = blockDim.x / 2")
    text = text.replace(" && tid + stride < blockDim.x", "")
    spec = {"dtypes": ["int32"], "require": [{"rule": "right"}]}
    grade = gpureduce.grade(f"// gpureduce: {where}\n{text}", spec)
    assert grade.points == 0 and "The spec launches it with blocks=any" in grade.rows[0].why
    assert gpureduce.grade(text, {**spec, "blocks": "powers_of_two"}).points == 1
    wrong = gpureduce.grade(TREE.replace("i < n ?", "i + 1 < n ?"), {**spec, "blocks": "256"})
    assert "The spec" not in wrong.rows[0].why, "its text says nothing about blocks"
    shown = wrong._repr_html_()
    assert shown.count("Wrong for n") == 1, "a reason that opens does not repeat its first line"


def test_a_kernel_without_n_is_for_a_spec_with_sizes():
    """It is right where n fills its blocks, and no other n is tried."""
    text = TREE.replace(", size_t n)", ")").replace("i < n ? Acc(in[i]) : Acc(0)", "Acc(in[i])")
    spec = {**ONE_BLOCK, "require": [{"rule": "right"}, {"rule": "lines <= 99"}]}
    grade = gpureduce.grade(text, spec)
    assert grade.points == 0 and "needs a parameter for the number of elements" in grade.notes[0]
    for where in ({"sizes": "full_blocks"}, {"assume": "full_blocks"}):
        assert gpureduce.grade(text, {**spec, **where}).points == 2
