"""Limits of processors and memory that a container sets, read from files as Linux writes them."""

from __future__ import annotations

import subprocess

import pytest

from cases import CSRC, NATIVE, build_c, needs_c

pytestmark = needs_c
UNLIMITED = 2**64 - 1


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("control_groups") / "control_groups"
    return build_c(path, [CSRC / "threads/control_group.c", NATIVE / "control_groups.c"])


@pytest.fixture
def limits(program, tmp_path):
    """The limits of the group of a path, with the given files below the mount."""

    def read(membership: str, files: dict[str, str]) -> tuple[int, int]:
        (tmp_path / "cgroup").write_text(membership)
        mount = tmp_path / "mount"
        mount.mkdir()
        for name, text in files.items():
            (mount / name).parent.mkdir(parents=True, exist_ok=True)
            (mount / name).write_text(text)
        command = [program, tmp_path / "cgroup", mount]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        processors, memory = map(int, said.split())
        return processors, memory

    return read


@pytest.mark.parametrize("groups", ["", "4:memory:/a\n1:cpu:/a\n", "0::/\n"])
def test_no_group_a_group_of_version_1_and_the_root_have_no_limits(limits, groups):
    assert limits(groups, {"a/cpu.max": "100000 100000\n"}) == (0, UNLIMITED)


@pytest.mark.parametrize(
    ("text", "processors"),
    [
        ("max 100000\n", 0), ("200000 100000\n", 2), ("250000 100000\n", 3), ("1000 100000\n", 1),
        ("0 100000\n", 1), ("100000\n", 0), ("", 0), ("18446744073709551615 1\n", 0),
    ],
)  # fmt: skip
def test_a_quota_is_rounded_up_to_whole_processors(limits, text, processors):
    assert limits("0::/a\n", {"a/cpu.max": text})[0] == processors


def test_the_least_limit_of_the_group_and_those_above_it(limits):
    files = {
        "a/cpu.max": "200000 100000\n", "a/b/cpu.max": "max 100000\n", "a/b/c/cpu.max": "900 100\n",
        "a/memory.max": "max\n", "a/b/memory.max": "7340032\n", "a/b/c/memory.max": "9437184\n",
    }  # fmt: skip
    assert limits("1:name=systemd:/\n0::/a/b/c\n", files) == (2, 7 << 20)


def test_the_root_of_a_container_whose_path_is_the_hosts(limits):
    files = {"cpu.max": "300000 100000\n", "memory.max": "1048576\n"}
    assert limits("0::/docker/0123\n", files) == (3, 1 << 20)
