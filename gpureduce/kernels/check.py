"""`gpureduce.check`: tries a kernel of yours, looks for races, and compares it with the ladder."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from gpureduce.core import devices, dtypes, registry
from gpureduce.core.checks import named_keywords, whole
from gpureduce.core.devices import Device
from gpureduce.kernels import conditions, cubins, ladder, on_card, options, process
from gpureduce.kernels.check_on_card import CardResult
from gpureduce.kernels.conditions import Condition, Domain
from gpureduce.kernels.kernel import Kernel, kernel
from gpureduce.kernels.trials import Case, Failure
from gpureduce.kernels.types import Pair
from gpureduce.kernels.verdict import Verdict
from gpureduce.kernels.worker import Job

_QUIET_S = 5.0  # without a word from the process for kernels: the kernel hangs
_CARD_QUIET_S = 20.0  # the same on a card, where all rungs are timed in turns
_CARD_S = 60.0  # for each dtype
_NO_CASE = Case(0, 0, 0, "", "", "")  # before the first sum


def subjects_of(
    chosen: Kernel, wanted: Sequence[str]
) -> tuple[list[tuple[Any, ...]], list[str], list[Pair]]:
    """The combinations to try: dtype, element type, accumulator and finish.

    Also the dtypes of the sums, and the pairs of types to compile.
    """
    subjects, results, pairs = [], [], []
    for name in wanted:
        source = dtypes.named(name)
        result = dtypes.in_itself(source, chosen.pair)
        pairs += chosen.pairs(source, result)
        conversion = dtypes.convert_for(source, result, chosen.pair)
        subjects.append((name, conversion.load, conversion.acc))
        results.append(conversion.result.name)
    finish = registry.finish_number("host" if chosen.finishes == ("host",) else None)
    return [(*subject, finish) for subject in subjects], results, list(dict.fromkeys(pairs))


def _chosen(
    given: Kernel | str | os.PathLike[str], name: str | None, where: dict[str, Any],
    operation: str | None,
) -> Kernel:  # fmt: skip
    """The kernel, with the options that say where it is to be right."""
    if not isinstance(given, Kernel):
        return kernel(given, name, operation=operation, **where)
    if operation not in (None, own := given.options.get("operation", "sum")):
        what = "running sums" if own == "cumsum" else "sums"
        raise ValueError(f"{given.name} was made for {what}: pass operation to kernel(...)")
    if name not in (None, given.name):
        raise ValueError(f"the kernel's name is {given.name}, not {name}: leave name out")
    return dataclasses.replace(given, options=given.options | options.checked_options(where))


def _wanted(chosen: Kernel, dtype: npt.DTypeLike | Sequence[str] | None) -> list[str]:
    if dtype is None:
        own = chosen.signature.pair
        launched = [*chosen.signature.launched] or ["int32", "float32"]
        return [chosen.dtypes[0]] if own else launched
    several: Any = dtype if isinstance(dtype, (list, tuple)) else [dtype]
    names = [dtypes.name_of(dtypes.named(one)) for one in several]
    if not names:
        raise ValueError("dtype must name at least one dtype, not an empty list")
    for name in names:
        if name not in chosen.dtypes:
            raise TypeError(f"{chosen.name} takes {', '.join(chosen.dtypes)}, not {name!r}")
    return names


def _card(wanted: str | None) -> Device | None:
    """The card to try a kernel on; None for none."""
    if wanted is None and devices.named_backend() == "emulator":
        return None
    found = devices.devices()[0] if wanted is None else devices.choose_device(wanted)
    return found if found.backend == "cuda" else None


def _checked_on_card(
    verdict: Verdict,
    chosen: Kernel,
    card: Device,
    pairs: list[Pair],
    what: tuple[list[tuple[Any, ...]], list[str], int, Domain],
    wanted: str | None,
) -> Verdict:
    """The verdict with its part on a card."""
    try:
        for pair in pairs:  # the compiler's errors come from here
            cubins.cubin(chosen.source, chosen.signature, pair, on_card.architecture(card))
    except RuntimeError as error:
        if wanted is not None:
            raise
        return dataclasses.replace(verdict, card=CardResult(card.name, why_not=str(error)))
    there = on_card.OnCard(chosen, card.id, tuple(pairs))
    limits = dataclasses.replace(chosen.limits, seconds=_CARD_S * len(what[0]))
    module = "gpureduce.kernels.check_on_card"
    job = Job(module, "examine", there, (*what, card.id), {}, limits, _CARD_QUIET_S)
    outcome = process.run(job)
    if outcome.error is not None:
        raise outcome.error
    told, failures = outcome.told, _failures(outcome)
    dtype, times = told.get("times", [("", ())])[0]
    right = outcome.result is True
    result = CardResult(card.name, sum(told.get("tried", [])), dtype, times, right=right)
    return dataclasses.replace(
        verdict,
        card=result,
        condition=None if failures else verdict.condition,
        failures=(*verdict.failures, *failures),
    )


def _examined(job: Job, where: Domain) -> process.Outcome:
    """The outcome of an examination; without the blocks for which the kernel hangs or crashes.

    If it is right for the others, they are its condition. Otherwise the first outcome counts.
    """
    outcome = process.run(job)
    if outcome.ended and "counts" in outcome.told.get("stage", []):  # right or wrong is known
        outcome.told["no counts"] = [outcome.ended]
        outcome.ended = ""
    if not outcome.ended or "case" not in outcome.told:
        return outcome
    last = outcome.told["case"][-1]
    narrowed = conditions.without(where, last.block)
    may_be_slow = "took more than" in outcome.ended and not last.block & (last.block - 1)
    if narrowed is None or may_be_slow:  # how long it takes is no condition
        return outcome
    arguments = (*job.arguments[:3], narrowed, *job.arguments[4:])
    again = process.run(dataclasses.replace(job, arguments=arguments))
    told = again.told
    condition, reasons, wrong = told.get("condition", [(narrowed.condition, {}, ())])[0]
    if again.ended or not ((again.result and "races" not in told) or "condition" in told):
        return outcome
    reasons = {**reasons, "blocks": _failures(outcome)[-1]}
    told.pop("where", None)
    told["condition"] = [(condition, reasons, tuple({last.block, *wrong}))]
    return again


def _may_be_others(chosen: Kernel, outcome: process.Outcome) -> bool:
    """Whether other elements per thread than those that the text shows may make it right."""
    if outcome.ended or outcome.error is not None or outcome.result:
        return False
    return (
        chosen.options["elements"] != "many"
        and (chosen.scans or chosen.options.get("alone") != "yes")
        and outcome.told.keys().isdisjoint(("condition", "other"))
    )


def _with_other_elements(
    chosen: Kernel, job: Job, before: process.Outcome
) -> tuple[Kernel, process.Outcome]:
    """The kernel and the outcome with elements per thread that make it right; else as before."""
    others = [chosen.with_elements(count) for count in options.PER_THREAD]
    rows = [
        (dataclasses.replace(job.kernel, traits=other.traits), other.domain) for other in others
    ]
    probe = dataclasses.replace(job, function="first_right", arguments=(job.arguments[0], rows))
    at = process.run(probe).result
    if at is None or at < 0 or others[at].options == chosen.options:
        return chosen, before
    job = dataclasses.replace(
        job, kernel=rows[at][0], arguments=(*job.arguments[:3], rows[at][1], *job.arguments[4:])
    )
    outcome = _examined(job, rows[at][1])
    told = outcome.told
    if not outcome.result and "condition" not in told:
        return chosen, before
    said = f"each thread adds {others[at].options['elements']} elements: elements= says so"
    told["remarks"] = [(said, *told.get("remarks", [()])[0])]
    return others[at], outcome


def _failures(outcome: process.Outcome) -> list[Failure]:
    """The failures of a job; the last one is the end of its process, if that was no result."""
    last = outcome.told.get("case", [_NO_CASE])[-1]
    ended = [Failure(last, fault=outcome.ended, ended=True)] if outcome.ended else []
    return [*outcome.told.get("failure", []), *ended]


@named_keywords
def check(
    kernel_or_text: Kernel | str | os.PathLike[str],
    dtype: npt.DTypeLike | Sequence[str] | None = None,
    *,
    hint: bool = True,
    seed: int = 0,
    device: str | None = None,
    name: str | None = None,
    blocks: int | str | Sequence[int] | None = None,
    sizes: int | str | Sequence[int] | None = None,
    operation: str | None = None,
    assume: str = "",
) -> Verdict:
    """Tell whether a kernel that you write is right, whether it races, and what slows it down.

    The kernel runs on the emulator, and then on a card if there is one, in a process of its own
    with limits (`Limits`). These parts follow each other:

    1. Its sums, for sizes around every border, prime sizes, blocks of 32 to 1024 threads, several
       grids, and four orders of threads. The elements are all different, so that one that is left
       out or added twice shows. Integers wrap around, floats cancel, and one is nan. Sums of floats
       are held against the bound of `error_bound` for any order of additions, or are exact.
    2. Races, and barriers that only part of a block reaches, as `races` finds them.
    3. Its counts beside those of the nearest rung of the ladder, and its place there, as counted.
    4. On a card: its sums there, the time of 2**26 elements, and its place on the ladder by time.
    5. A hint at what to try next, if nothing was found.

    Parameters
    ----------
    kernel_or_text
        A `Kernel`, or what `kernel` takes.
    dtype
        The dtype of the elements, or a list of several. By default int32 and float32, each added up
        in itself, or the kernel's own, or those of its launches in the text.
    hint
        False leaves the hint out.
    seed
        Draws some of the sizes: with another seed, a kernel is tried for others.
    device
        The card, as ``"cuda:1"``. By default the first one, if there is one and a compiler for it.
        ``"emulator"`` tries no card.
    name
        The kernel's name, if there are several in the text.
    blocks, sizes
        Where the kernel is to be right, as in `kernel`.
    operation
        ``"cumsum"`` for a kernel that makes running sums, as in `kernel`. Each entry is judged: the
        first wrong one is named. Such kernels are tried on the emulator alone.
    assume
        A condition under which it may be right, in the words of `Verdict.condition`, as in
        ``"powers_of_two full_blocks lockstep"``. A kernel that is right under it passes.

    Returns
    -------
    Verdict
        True if nothing was found. ``print`` shows it; a notebook shows it with pictures.

    Raises
    ------
    KernelError
        The text has no kernel that gpureduce can launch, or the compiler refuses it.
    RuntimeError
        There is no C++ compiler, or none for the card that `device` names.

    Examples
    --------
    >>> import gpureduce
    >>> verdict = gpureduce.check('''
    ... template <typename In, typename Acc> __global__ void mine(In in, Acc *out, size_t n)
    ... {
    ...     size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    ...     if (i + 1 < n)
    ...         atomicAdd(out, Acc(in[i]));
    ... }
    ... ''')
    >>> bool(verdict), verdict.failures[0].case.n, verdict.failures[0].elements
    (False, 1, 'element 0 was left out')
    """
    start = time.perf_counter()
    card = _card(device)
    seed, assumed = whole("seed", seed, 0, 2**64 - 1), conditions.parsed(assume)
    chosen = _chosen(kernel_or_text, name, {"blocks": blocks, "sizes": sizes}, operation)
    chosen, fewer = chosen.with_fewer_elements()
    process.start()  # while the compiler runs, the process for kernels gets ready
    subjects, results, pairs = subjects_of(chosen, _wanted(chosen, dtype))
    loaded = chosen.loaded(pairs, may_be_obsolete=True)
    compiled = time.perf_counter()
    limits = chosen.limits.times(3 * len(subjects))
    job = Job(
        "gpureduce.kernels.examination",
        "examine",
        loaded,
        (subjects, results, seed, chosen.domain, chosen.source.for_the_emulator()),
        {},
        limits,
        _QUIET_S,
    )
    outcome = _examined(job, chosen.domain)
    if _may_be_others(chosen, outcome):
        chosen, outcome = _with_other_elements(chosen, job, outcome)
    if isinstance(outcome.error, MemoryError):
        raise MemoryError(
            f"the check of {chosen.name} for {len(subjects)} dtypes needs more than "
            f"limits.memory_bytes={limits.memory_bytes}: check fewer dtypes at once, or give "
            "kernel(..., limits=gpureduce.Limits(memory_bytes=...)) more"
        ) from outcome.error
    if outcome.error is not None:
        raise outcome.error
    verdict = _verdict(chosen, [subject[0] for subject in subjects], outcome, (hint, assumed))
    if fewer:
        verdict = dataclasses.replace(verdict, remarks=(fewer, *verdict.remarks))
    runs = not any(failure.fault for failure in verdict.failures) and not chosen.obsolete
    runs = runs and not chosen.scans
    if card is not None and runs and not (verdict.condition and verdict.condition.lockstep):
        where = verdict.domain.under(verdict.condition)
        verdict = _checked_on_card(
            verdict, chosen, card, pairs, (subjects, results, seed, where), device
        )
    return dataclasses.replace(
        verdict, compile_s=compiled - start, seconds=time.perf_counter() - start
    )


def _numbers(chosen: Kernel) -> list[str]:
    """The template's numbers that the kernel was tried with, in a sentence."""
    named = " and ".join(f"{name} = {value}" for name, value in chosen.signature.constants)
    return [f"it was tried with {named}"] if named else []


def _verdict(
    chosen: Kernel, wanted: list[str], outcome: process.Outcome, how: tuple[bool, Condition]
) -> Verdict:
    told = outcome.told
    cases = told.get("case", [])
    found = told.get("races", [None])[0]
    compared = told.get("counts", [None])[0]
    failures = _failures(outcome)
    wants_hint, assumed = how
    condition, reasons, wrong = told.get("condition", [(None, {}, ())])[0]
    right = not failures and found is None
    tip = ladder.hint(compared, chosen.traits) if compared and wants_hint and right else None
    return Verdict(
        name=chosen.name,
        file=chosen.file,
        options=chosen.options,
        dtypes=tuple(wanted),
        tried=sum(1 for case in cases if case.numbers != "races"),
        failures=tuple(failures),
        looked=tuple(told.get("looked", [[]])[0]),
        races=found,
        comparison=compared,
        not_counted=told.get("no counts", [""])[0],
        hint=tip,
        condition=condition,
        reasons=reasons,
        excluded=wrong,
        assumed=assumed,
        domain=told.get("where", [chosen.domain])[0],
        takes_n=chosen.signature.takes_n,
        other=told.get("other", [""])[0],
        obsolete=chosen.obsolete,
        remarks=(*_numbers(chosen), *told.get("remarks", [()])[0]),
        code=chosen.signature.code,
        printed=outcome.printed,
        printed_bytes=outcome.printed_bytes,
    )
