"""The runner: turns, contenders that fail, and the clocks."""

from __future__ import annotations

import pytest

from gpureduce.bench import clocks, runner
from gpureduce.bench.runner import Contender, Group, Latest, Turns, in_turns, measure, one_by_one


class Fake(Contender):
    """Takes as long as it says, and notes its runs in a list that all share."""

    def __init__(self, name, us, seen, **more):
        def timed(repeats):
            seen.append((name, repeats))
            return [us] * repeats

        super().__init__(name, timed, lambda: us, more, may_fail=True)


@pytest.mark.parametrize(
    ("names", "turns", "runs"),
    [
        ("ab", Turns(7, 3), "a3 b3 a2 b2 a2 b2"),
        ("ab", Turns(2, 3), "a1 b1 a1 b1"),
        ("ab", Turns(7, 1), "a7 b7"),
        ("a", Turns(7, 3), "a7"),  # nobody to alternate with
        ("ab", one_by_one(2), "a1 b1 a1 b1 a1 b1"),  # the first of each warms up
    ],
)
def test_contenders_alternate(names, turns, runs):
    seen = []
    found = in_turns([Fake(name, 2.0, seen) for name in names], turns)
    assert " ".join(f"{name}{n}" for name, n in seen) == runs
    assert found == [[2.0] * turns.repeats] * len(names)


def test_emulated_contenders_take_one_turn():
    seen = []
    in_turns([Fake(name, 1.0, seen, source="emulator") for name in "ab"], Turns(7))
    assert seen == [("a", 7), ("b", 7)]


def test_slow_calls_are_repeated_less_often():
    seen = []
    ms = {"quick": 1.0, "slow": 90.0, "very slow": 5000.0}
    found = in_turns([Fake(name, 1e3 * t, seen) for name, t in ms.items()], one_by_one(11))
    assert [len(times) for times in found] == [11, 3, 1]
    assert [sum(name == one for one, _ in seen) for name in ms] == [12, 4, 2]


def test_a_call_of_a_second_runs_once(monkeypatch):
    """When it is checked."""
    now, seen = 0.0, []
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now)

    def slow():
        nonlocal now
        now += 2.0

    quick, peer = Fake("exact", 1.0, seen), Fake("peer", 2e6, seen)
    peer.value = slow
    group = Group("a case", {}, lambda: [peer, quick], one_by_one(3), lambda *_: None)
    times = {row["strategy"]: (row["repeats"], row["median_us"]) for row in measure([group])}
    assert times == {"exact": (3, 1.0), "peer": (1, 2e6)}
    assert seen == [("exact", 1)] * 4


def test_rows_and_contenders_that_fail(monkeypatch):
    def fail():
        raise RuntimeError("no such thing\nfor these")

    seen, checked, told = [], [], []
    monkeypatch.setattr(runner.libraries, "free", lambda: seen.append("free"))
    ours, other, peer = Fake("exact", 1.0, seen), Fake("other", 3.0, seen), Fake("peer", 2.0, seen)
    peer.value = fail
    group = Group(
        "a case", {"n": 5}, lambda: [ours, peer, other], Turns(2, 1),
        lambda *found: checked.append(found), lambda one: {"more": one.strategy},
    )  # fmt: skip
    rows = list(measure([group], lambda *what: told.append(what)))
    assert rows == [
        {"n": 5, "strategy": "peer", "failed": "RuntimeError: no such thing"},
        *({"n": 5, "strategy": name, "repeats": 2, "median_us": us, "low_us": us, "high_us": us,
           "more": name} for name, us in (("exact", 1.0), ("other", 3.0))),
    ]  # fmt: skip
    assert checked == [("exact", 1.0), ("other", 3.0)] and seen[-1] == "free"
    assert told == [(0, 1, "a case"), (1, 1, "")]
    peer.may_fail = False
    with pytest.raises(RuntimeError, match="no such thing"):
        list(measure([group]))


def test_the_latest_array_is_freed_before_the_next():
    seen = []
    kept = Latest(lambda *key: seen.append((key, kept._value)) or [key])
    assert kept(1, "a") is kept(1, "a") and kept(2, "a") == [(2, "a")]
    assert seen == [((1, "a"), None), ((2, "a"), None)]


def test_calls_are_timed_when_they_are_warm(monkeypatch):
    """The first calls are slow, until threads are awake. Long calls are repeated less often."""
    now = 0
    made = []
    monkeypatch.setattr(clocks.time, "perf_counter_ns", lambda: now)

    def call():
        nonlocal now
        made.append(now)
        now += 100_000 if len(made) <= 15 else 10_000

    assert clocks.of_calls(call)(3) == [10, 10, 10]  # after 15 + 50 calls
    made = [0] * 15
    assert clocks.of_calls(call)(2) == [10, 10] and len(made) == 15 + 3 * 200

    def long_call():
        nonlocal now
        made.append(now)
        now += 3_000_000

    made.clear()
    assert clocks.of_calls(long_call)(2) == [3000, 3000] and len(made) == 4


def test_short_sums_of_a_thread_are_repeated_with_their_data_in_the_cache(monkeypatch):
    now, made = 0.0, []
    monkeypatch.setattr(clocks.time, "thread_time", lambda: now)

    def call():
        nonlocal now
        made.append(now)
        now += 1e-6

    assert clocks.of_thread(call, 4)(2) == pytest.approx([1.0, 1.0]) and len(made) == 10
    assert clocks.of_thread(call, 1)(3) == pytest.approx([1.0] * 3) and len(made) == 13


class Torch:
    """The calls of PyTorch that times on a card are taken by, in their order."""

    def __init__(self):
        self.seen, self.cuda, self.uint8 = [], self, "uint8"

    def empty(self, n, dtype, device):
        return self

    def zero_(self):
        self.seen.append("flush")

    def synchronize(self):
        self.seen.append("wait")

    def _sleep(self, cycles):
        self.seen.append("sleep")

    def Event(self, enable_timing):
        return self

    def record(self):
        self.seen.append("event")

    def elapsed_time(self, end):
        return 1.5


def test_a_card_is_timed_by_events_behind_a_flush():
    torch = Torch()
    card = clocks.OnCard(torch)
    assert card.by_events(lambda: torch.seen.append("call"))(2) == [1500.0] * 2
    assert torch.seen == ["flush", "sleep", "event", "call", "event", "wait"] * 2
    torch.seen.clear()
    (us,) = card.by_clock(lambda: torch.seen.append("call"))(1)
    assert us > 0 and torch.seen == ["flush", "wait", "call"]
