"""From what a submission answered to what is wrong with it: data in, data out.

`conclude` never runs code of a submission, and never guesses. A mistake is named if it
reproduces every answer; where several do, all are given; else there are properties
that hold and others that fail, and what the probe that shows the map reveals.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from mha_lib.check import training
from mha_lib.check.beside import ORDERS, RAN_WITH, UNFINISHED
from mha_lib.check.by_size import BY_SIZE, told_by_size
from mha_lib.check.catalogue import GIVEN, MISTAKES, SPLITS, WEIGHTED
from mha_lib.check.contract import (
    Faults,
    adaptations,
    faults,
    judged,
    single_precision,
)
from mha_lib.check.example import Example, example_of, revealed
from mha_lib.check.explained import (
    ALL_TIERS,
    compared_alone,
    searched,
    where_it_answers,
    worthwhile,
)
from mha_lib.check.failures import failed_at, in_full, of_error, of_ones, of_sizes
from mha_lib.check.properties import properties_of
from mha_lib.check.reference import Route, compute
from mha_lib.check.search import Case, names
from mha_lib.check.seen import SPECIAL, Loading, Seen, shape_fits
from mha_lib.check.tasks import TASKS
from mha_lib.check.unnamed import made_otherwise, of_masks, one_of, tokens_as_heads
from mha_lib.check.words import CONFIDENCE, Fact, in_words

__all__ = ["Diagnosis", "conclude"]

FITS_A_SQUARE = {"mask-transposed", "scores-transposed"}  # and nothing else


@dataclass
class Diagnosis:
    """What is known about a submission.

    Attributes:
        task: its name.
        verdict: right, unmet, named, stacked, ambiguous, unknown, failed or
            unfinished. Right is what all that is judged holds for; unmet, what answers
            right wherever it was called in its own way, and lacks something that the
            task asks for; unfinished, what still holds `...` or the like, or takes no
            mask and is right without one.
        mistakes: names in the catalogue; the first is to be mended first.
        candidates: if ambiguous, the sets of names between which nothing decides.
        evidence: what was seen.
        policy: choices that are no mistakes, such as what an empty row becomes.
        properties: what holds (True) and what does not.
        unmet: what the task asks for and the submission does not do.
        advice: names of what does no harm here: with the dtype and the device used, or
            because both ways are common.
        error: why there is no answer, or the first error, in words.
        example: one place where theirs is wrong.
        raised: those of ``mistakes`` that an error showed, and no comparison.
        advised: whether ``error`` says what to do about it.
    """

    task: str
    verdict: str
    mistakes: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    evidence: list[Fact | str] = field(default_factory=list)
    policy: dict[str, Fact | str] = field(default_factory=dict)
    properties: dict[str, bool] = field(default_factory=dict)
    unmet: list[Fact] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    error: str | None = None
    example: Example | None = None
    raised: list[str] = field(default_factory=list)
    advised: bool = False

    @property
    def confidence(self) -> str:
        """What the verdict rests on."""
        if not self.raised or self.verdict not in ("named", "stacked"):
            return CONFIDENCE[self.verdict]
        words = CONFIDENCE[f"{self.verdict} by an error"]
        return words.format(raised=", ".join(self.raised))

    def to_dict(self) -> dict:
        """All but the tensors, ready for JSON: facts and the example in words."""
        return {
            "task": self.task,
            "verdict": self.verdict,
            "mistakes": list(self.mistakes),
            "candidates": [list(names) for names in self.candidates],
            "confidence": self.confidence,
            "evidence": [in_words(fact) for fact in self.evidence],
            "policy": {key: in_words(fact) for key, fact in self.policy.items()},
            "properties": dict(self.properties),
            "unmet": [in_words(fact) for fact in self.unmet],
            "advice": list(self.advice),
            "error": self.error,
            "example": None if self.example is None else self.example.words,
        }


def conclude(
    task: str,
    probes: list[dict],
    outcomes: list[dict],
    search: bool = True,
    requires: Iterable[str] = (),
) -> Diagnosis:
    """Compare and diagnose.

    Args:
        task: its name.
        probes: as they were sent.
        outcomes: as `mha_lib.check.beside.run` returned them.
        search: whether to look for a name of what is wrong, which may take long.
        requires: as for `mha_lib.check.check`.

    Returns:
        The diagnosis. It depends on nothing but the arguments.
    """
    if TASKS[task].conclude:  # one that is not ours
        return TASKS[task].conclude(probes, outcomes)
    asked, requires = judged(task, requires), set(requires)
    pairs = list(zip(probes, outcomes))
    compared = [
        (p, o)
        for p, o in pairs
        if "skipped" not in o and not SPECIAL & p["options"].keys()
    ]
    errors = [(p, o) for p, o in compared if "error" in o]
    probe, first = errors[0] if errors else ({}, {})
    found = Diagnosis(task, "failed")
    if first:
        found.error, found.advised = in_full(first, probe["sizes"])
    if first.get("code") == UNFINISHED:
        found.verdict, found.properties = UNFINISHED, {"runs": False}
        return found
    given_away = of_error(first)
    if len(errors) == len(compared):
        found.mistakes, found.raised = given_away, list(given_away)
        found.verdict = "named" if found.mistakes else "failed"
        found.properties = {"runs": False}
        return found

    seen = Seen(task, pairs, compared)
    explanations, loading = [], Loading()
    if not seen.varies:
        tiers = worthwhile(seen) if search and errors else ALL_TIERS
        explanations, loading = (
            searched(seen, tiers) if search else compared_alone(seen)
        )
    if len(explanations) > 1 and len(names(explanations[0].route)) > 2:
        explanations = []  # far-fetched
    cases = seen.cases(loading)
    simpler = [] if seen.varies else where_it_answers(task, cases, explanations, search)
    of_torch = first.get("raised_by") == "torch"  # not an index, say
    guessed = of_sizes(cases) if simpler and of_torch else []
    if simpler and FITS_A_SQUARE & set(names(simpler[0].route)):
        guessed = []  # the one mistake is why it fails
    otherwise = training.right_otherwise(seen, loading, cases)
    if not seen.varies and otherwise:  # what is named would be wrong there, too
        simpler, explanations, guessed = [], [], []
        found.evidence.append(otherwise)
    found.raised = given_away or guessed
    if simpler:
        found.mistakes = list(found.raised)
        explanations = simpler
    _verdict(found, seen, explanations, cases)
    if seen.task in GIVEN and any(seen.maps):  # whoever returns them does so always
        asked |= {"weights_gradients"} | (set() if all(seen.maps) else {"weights"})
    if not seen.chosen_dropout and task in WEIGHTED:
        asked |= {"no_dropout"}
    adapted = adaptations(seen)
    lacks = faults(seen, loading, found.verdict == "right")
    dropout = _beside_the_numbers(
        found, seen, explanations, cases, loading, given_away, lacks, requires
    )
    broken = {masked: facts.keys() & asked for masked, facts in adapted.items()}
    found.properties = properties_of(seen, cases, lacks, broken, dropout)
    for facts in adapted.values():
        found.properties |= dict.fromkeys(facts, False)
        for name, fact in facts.items():
            if name in asked:
                lacks[name] = fact
    _judge(found, asked, requires, lacks)
    if found.verdict == "right" and lacks.get("mask_for_all"):
        found.policy["one mask"] = Fact("no-mask-for-all")
    if found.verdict not in ("right", "unmet") and explanations:
        found.example = example_of(cases, explanations[0])
    elif found.verdict == "unknown":
        found.example = example_of(cases, None)
        explained = {"cut-otherwise", "hidden-unmasked", *SPLITS}
        known = any(x.code in explained for x in found.evidence)
        told = any(x.code in BY_SIZE for x in found.evidence)
        if not (seen.varies or known or told):
            found.evidence += revealed(seen, loading)
    return found


def _judge(
    found: Diagnosis, asked: set[str], requires: set[str], lacks: Faults
) -> None:
    """Right is what all that is asked holds for."""
    holds = found.properties
    lost = {name for name in asked - {"right"} if not holds.get(name, True)}
    lost |= requires - holds.keys() - {"right"}
    sound = found.verdict == "right"
    if sound and lost:
        found.verdict = "unmet"
    said: list[Fact] = []
    unseen = {"weights": Fact("weights")}
    facts = {
        name: lacks.get(name) or unseen.get(name) or Fact("not-seen", {"name": name})
        for name in sorted(lost)
    }
    cuts = {name for name, x in MISTAKES.items() if {"split", "merge"} & {*x.stages}}
    for name, fact in sorted(facts.items(), key=lambda x: x[1].code != RAN_WITH):
        if name == "strided" and cuts & {*found.mistakes}:
            continue  # torch would advise a reshape, and the line is to be another
        # Where other numbers are wrong, those of a probe of conduct show nothing.
        shows = sound or fact.code == RAN_WITH or "error" in fact.values
        shows |= fact.code == "no-gradient" and found.verdict != "failed"
        told = (
            fact.values.get("anyway")
            or "error" in fact.values
            and any(
                str(failed_at(fact)) in str(text)
                for text in (found.error, *map(failed_at, said))
            )
        )
        if (
            shows
            and not told
            and fact not in said
            and (name in lacks or name in requires)
        ):
            said.append(fact)
    found.unmet = said
    rows = found.policy.get("empty rows")
    if isinstance(rows, Fact) and {"weights", "zeros_for_empty_rows"} & lost:
        del found.policy["empty rows"]  # it is told as a fault
    if "biases" in requires:
        found.policy.pop("biases", None)  # it is a fault then
    holds["right"] = found.verdict == "right"


def _verdict(found: Diagnosis, seen: Seen, explanations: list, cases: list) -> None:
    """Verdict and mistakes, as far as the numbers tell them."""
    if seen.remembers:
        found.verdict = "unknown"
        found.evidence.append(Fact("it-remembers"))
        return
    if seen.makes_layers:
        found.verdict = "unknown"
        found.evidence.append(Fact("it-makes-layers"))
        return
    if seen.varies:
        found.verdict, found.mistakes = "named", ["dropout-in-eval"]
        found.evidence.append(Fact("it-varies"))
        return
    if not explanations:
        found.verdict = "unknown"
        told = made_otherwise(seen, cases)
        if not told and (limits := told_by_size(cases)):
            told = [limits]
        found.evidence += told
        wrong = sorted((x for x in cases if not shape_fits(x)), key=_by_chance)
        if wrong and not told:
            some = any(case.right for case in cases)
            found.verdict = "unknown" if some else "failed"
            right, got = compute(wrong[0].problem), tuple(wrong[0].output.shape)
            required = tuple(right["output"].shape)
            shapes = {"required": required, "got": got, "axes": TASKS[seen.task].shape}
            shapes["sizes"] = wrong[0].problem.sizes
            if not (found.error and _by_chance(wrong[0])):
                found.error = in_words(Fact("wrong-shape", shapes))
            if tokens_as_heads(wrong):
                found.evidence.append(Fact("tokens-as-heads"))
            if "weights" in right and got == tuple(right["weights"].shape):
                found.evidence.append(Fact("weights-came-first"))
        return
    if len(explanations) == 1 and (one := one_of(explanations[0].route)):
        found.verdict = "unknown"
        found.evidence.append(one)
        return
    if len(explanations) > 1:
        found.verdict = "ambiguous"
        found.candidates = [list(names(e.route)) for e in explanations]
        return
    explanation = explanations[0]
    found.mistakes = [*names(explanation.route), *found.mistakes]
    if not found.mistakes and found.error and explanation.masks:
        found.verdict = UNFINISHED if seen.takes_no_mask else "unmet"
        elsewhere = Fact("right-elsewhere", {"ones": of_ones(cases)})
        found.evidence.append(told_by_size(cases) or elsewhere)
        return
    if found.mistakes:
        found.verdict = "named" if len(found.mistakes) == 1 else "stacked"
        judged = [c for c in cases if explanation.masks or not c.problem.masked]
        counts = {
            "count": sum(case.output is not None for case in judged),
            "all": len(cases),
            "mistakes": len(found.mistakes),
        }
        if turned := _turned(explanation.route):
            found.evidence.append(Fact("turned", {"matrices": turned}))
        found.evidence += _constant(explanation.route)
        found.evidence.append(Fact("reproduced", counts))
    else:
        found.verdict = "right"
    if not explanation.masks:
        if found.mistakes:
            found.evidence.append(Fact("masks-later"))
        else:
            found.verdict = "unknown"
            found.evidence.append(told_by_size(cases) or of_masks(seen.task, cases))
    elif len(explanation.policies) < 2 and seen.task in WEIGHTED:
        found.policy["empty rows"] = (*explanation.policies, "other")[0]


def _by_chance(case: Case) -> bool:
    """Whether axes that do not belong together fit, as one of them has the size 1."""
    return 1 in map(case.problem.sizes.get, "TS")


def _turned(route: Route) -> list[str]:
    """The matrices that act as their transposes."""
    parts = {x.stage for x in route if "weights-not-transposed" in x.names}
    qkv = [f"W_{role}" for role in "qkv" if "project" in parts]
    return qkv + ["W_o"] * ("out" in parts)


def _constant(route: Route) -> list[Fact]:
    """By which number the scores are divided, whatever D is."""
    found = (x.do(None, None)[0] for x in route if "scale-hard-coded" in x.names)
    return [Fact("divided-by", {"number": 1 / factor}) for factor in found]


def _order(name: str, parts: str) -> Fact:
    """How the rows of a fused matrix lie, which are not role by role."""
    usual = [str(len(parts)), "H", "D"]
    lie = [usual[axis] for axis in ORDERS[name]]
    both = {"axes": f"[{', '.join(lie)}]", "usual": f"[{', '.join(usual)}]"}
    return Fact("rows-otherwise", {"order": name, **both})


def _beside_the_numbers(
    found: Diagnosis,
    seen: Seen,
    explanations: list,
    cases: list,
    loading: Loading,
    given_away: list[str],
    lacks: Faults,
    requires: set[str],
) -> bool | None:
    """Mistakes and policies that no stage of the reference shows.

    Returns:
        Whether dropout is right; None where it was not judged.
    """
    extra = []
    dropout = False if "dropout-in-eval" in found.mistakes else None
    if seen.changed:
        extra.append("inputs-changed")
        found.evidence.append(Fact("inputs-changed", {"inputs": seen.changed}))
    if seen.numbers:
        extra.append("mask-not-boolean")
    if seen.dtype is not None and seen.dtypes != {seen.dtype}:
        extra.append("wrong-output-dtype")
        went = sorted(str(dtype) for dtype in seen.dtypes - {seen.dtype})
        dtypes = {"came": str(seen.dtype), "went": went}
        found.evidence.append(Fact("other-dtype", dtypes))
    if found.verdict in ("right", "named", "stacked") and explanations:
        explained = explanations[0]
        wrong, flat = training.returned_weights(seen, explained, cases)
        if wrong and training.is_no_consequence(explained, cases):
            extra.append("weights-returned-wrong")
            found.evidence += training.returned_instead(explained, cases)
        if flat:
            found.policy["weights"] = Fact(flat)
        policy = "" if found.mistakes else found.policy.get("empty rows", "")
        beside = training.empty_rows(seen, policy, cases) if policy else ""
        if any(seen.maps) and not seen.no_pair:
            fault = training.weights_fault(seen, wrong, flat)
            if beside == "NaN" and not fault:
                fault = Fact("weights", {"empty": True})
            lacks["weights"] = fault
        if beside:
            values = {"output": policy, "weights": beside}
            found.policy["empty rows"] = Fact("empty-rows", values)
        if seen.task in WEIGHTED and not names(explained.route):
            zeros = "zeros" in explained.policies
            values = {"beside": beside} if zeros and beside else {}
            fact = (
                None if zeros and not beside else Fact("zeros_for_empty_rows", values)
            )
            lacks["zeros_for_empty_rows"] = fact
        if not names(explained.route):
            wrong, known = training.dropout(seen, loading)
            if "dropout" not in requires and lacks.get("no_dropout", True) is None:
                # As it was made nothing drops; what p is for, nobody asked.
                wrong, known = (
                    ([], None) if wrong == ["dropout-on-output"] else (wrong, known)
                )
            if wrong == ["dropout-unused"] and "no_dropout" in requires:
                found.advice += wrong  # that nothing drops is what the task asks for
                wrong, known = [], None
            extra += wrong
            found.evidence += [Fact("other-dropout")] if known is False else []
            dropout = known and not wrong
            found.advice += training.returned_after_dropout(seen, loading)
    extra += given_away
    for name in ("half", "device"):
        _, outcome = seen.probe(name) or (None, {})
        advice = of_error(outcome)
        cast = outcome.get("outputs", {}).get("output")
        if cast is not None and cast.dtype != torch.float16 and not extra:
            advice = ["constant-dtype"]
        found.advice += [mistake for mistake in advice if mistake not in extra]
    if extra:
        found.mistakes += [n for n in extra if n not in found.mistakes]
        if found.verdict in ("right", "named", "stacked"):
            found.verdict = "named" if len(found.mistakes) == 1 else "stacked"
        elif found.verdict == "failed":
            found.verdict = "named"
    if seen.dots and found.verdict != "right":
        found.evidence.insert(0, Fact("dots-left", {"where": seen.dots}))
    if seen.missing:
        found.policy["biases"] = Fact("no-biases", {"names": seen.missing})
    if found.verdict in ("right", "unmet"):
        if seen.beside and "projection_names" not in requires:
            found.policy["beside"] = Fact("more-learned", {"names": seen.beside})
        if single_precision(seen, loading):
            found.policy["digits"] = Fact("digits-of-float32")
        if loading.name in ORDERS:
            found.policy["order"] = _order(loading.name, seen.fused)
    return dropout
