"""Call a submission with every probe; it is given back as it was."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict

import torch
from torch import Tensor, nn

from .driven import driven
from .find import one_for_all, places_of
from .load import ORDERS, holders_of
from .making import (
    axes_of,
    bound,
    construct,
    is_lazy,
    makes_layers,
    signature_of,
    unwrapped,
)
from .observe import altered, cast, outcome_of
from .unfinished import dots, unfinished
from .ways import LAYERS, Way, try_ways, ways_to_call
from .words import CHOSEN_DROPOUT, RAN_WITH, REORDERED, UNFINISHED, Advice, failure

NAMES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
CONFIG = re.compile(r".*(config|cfg|args|options|settings).*", re.I)


def run(
    submission: Callable | type | nn.Module,
    probes: list[dict],
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
) -> list[dict]:
    """Call the submission with every probe and note what comes back.

    Args:
        submission: a function, a class or a module, as its task says.
        probes: of one task, in their order. Their options: ``repeat`` (call twice),
            ``grad`` (note the gradients), ``dtype`` and ``device`` (cast first),
            ``train`` (in training mode, with ``dropout``, or as it is if that is None),
            ``no_grad`` (as `torch.no_grad`), ``same`` (one tensor for all inputs),
            ``strided`` (names of inputs that are no single block of memory),
            ``reloaded`` (it is called before it gets its numbers, too),
            ``held`` (then and now with the very same tensors),
            ``as_called`` (adapt nothing). Calls under ``before`` come first, with
            inputs of other sizes, and a class makes ``another`` layer.
        layers: where a module keeps its weights: ``{"q": "lin1", "k": …}`` with keys
            out of q, k, v, o, and such as qkv, kqv or kv, whose letters say in which
            order a fused matrix holds them; None finds them.
        num_heads: H of a module that does not say; None finds it.

    Returns:
        One outcome for each probe. Nothing that the submission does raises.
    """
    try:
        submission = unwrapped(submission)
    except Advice as advice:
        return [advice.outcome for _ in probes]
    runner = _Runner(submission, layers, num_heads)
    # Their warnings are no errors; random numbers come and go without a trace.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), with_gradients():
        warnings.simplefilter("ignore")
        outcomes = [runner.outcome(probe) for probe in probes]
        if advice := unfinished(submission, outcomes):
            return [advice.outcome for _ in probes]
        if outcomes and (where := dots(submission)):
            note = {"code": UNFINISHED, "line": where}
            outcomes[0]["notes"] = [*outcomes[0].get("notes", ()), note]
        return outcomes


@contextmanager
def with_gradients():
    """Whatever the notebook has switched off."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class _Runner:
    """One submission under several probes; remembers how it wants to be called."""

    def __init__(self, submission, layers, num_heads) -> None:
        self.submission, self.layers, self.num_heads = submission, layers, num_heads
        self.way: dict[bool, Way] = {}  # masked or not -> what worked
        self.places: dict[str, list[str]] = {}  # where a module keeps its weights
        self.ways: dict[str, bool | str | None] = {}  # and how: see `Holder`

    def outcome(self, probe: dict) -> dict:
        """What happened with one probe, however it ended."""
        torch.default_generator.manual_seed(0)
        options = probe["options"]
        try:
            with _prepared(self, probe) as (call, loadings, load, lacks):
                self.weights = getattr(load, "weights", {})
                outcomes = {}
                if options.get("reloaded"):  # what is made of its first numbers
                    reading = torch.set_grad_enabled(not options.get("no_grad"))
                    with reading, suppress(Exception):  # must not stay
                        call({k: _turned(x) for k, x in probe["inputs"].items()})
                asked = _held(call) if options.get("held") else call
                for loading in loadings:
                    if options.get("held"):
                        with suppress(Exception):
                            self._attempts(asked, probe)
                    load(loading)
                    outcomes[loading] = self._attempts(asked, probe)
        except Advice as advice:
            return advice.outcome
        except Skip as reason:
            return {"skipped": str(reason)}
        except (Exception, SystemExit) as error:  # whatever theirs raises
            return failure(error)
        outcome, *others = outcomes.values()
        if probe["options"].get("dropout", 0) is None and _chooses_dropout(self):
            outcome["notes"] = [*outcome.get("notes", ()), {"code": CHOSEN_DROPOUT}]
        if order := getattr(call, "order", None):
            note = {"code": REORDERED, "order": ", ".join(order)}
            outcome["notes"] = [*outcome.get("notes", ()), note]
        for name, lacking in lacks.items():
            if lacking:
                outcome[name] = outcome.get(name, type(lacking)()) + lacking
        if others:
            outcome["alternatives"] = dict(zip(loadings[1:], others))
        if options.get("device"):  # a shape says enough
            outcome.pop("outputs", None)
        return outcome

    def _attempts(self, call: Callable, probe: dict) -> dict:
        """The first way of calling that does not raise; the first error otherwise."""
        masked = "mask" in probe["inputs"]
        known = self.way.get(masked)
        if known == Way():  # as the task says: nothing else has to be made up
            ways = {known: lambda probe: probe["inputs"]}
        else:
            ways = ways_to_call(probe)
            if known and not probe["options"].get("as_called"):
                ways = {known: ways[known]}
        first = None
        for way, change in ways.items():
            earlier = [change(probe | other) for other in probe.get("before", ())]
            try:
                outcome = outcome_of(
                    call, change(probe), probe["options"], self.weights, earlier
                )
            except (Advice, Skip):
                raise
            except (Exception, SystemExit) as error:
                first = first or failure(error)
                continue
            if way.folded:
                lead = probe["inputs"]["q"].shape[:2]
                for part in ("outputs", "gradients"):
                    for key, x in outcome.get(part, {}).items():
                        if x.dim() and x.shape[0] == lead.numel():
                            outcome[part][key] = x.unflatten(0, lead)
            if first:
                note = {"code": RAN_WITH, **asdict(way), **first}
                outcome["notes"] = [*outcome.get("notes", ()), note]
            if not probe["options"].get("as_called"):
                self.way.setdefault(masked, way)
            return outcome
        return first


def _held(call: Callable) -> Callable:
    """The call, which gets its first tensors again where the numbers are the same."""
    first: dict[str, object] = {}

    def again(inputs: dict) -> object:
        for name, x in inputs.items():
            old = first.setdefault(name, x)
            if isinstance(x, Tensor) and x.dtype == old.dtype and torch.equal(x, old):
                inputs = inputs | {name: old}
        return call(inputs)

    return again


def _turned(x: object) -> object:
    """The sequences in another order; a copy."""
    return x.flip(0) if isinstance(x, Tensor) else x


def _chooses_dropout(runner: _Runner) -> bool:
    """Whether a dropout may be a choice: an argument, or of a layer made before."""
    if not makes_layers(runner.submission):
        return True
    asked = signature_of(runner.submission).parameters.values()
    return any(
        "drop" in x.name.lower() or x.name == "p" or CONFIG.fullmatch(x.name)
        for x in asked
    )


class Skip(Exception):
    """The probe does not apply to this submission."""


def _weight(submission: nn.Module, name: str) -> Tensor | None:
    """Of the layer that the submission has under this name."""
    return getattr(getattr(submission, name, None), "weight", None)


@contextmanager
def _prepared(runner: _Runner, probe: dict):
    """The call, ways to load the weights, the loader and which biases do not exist."""
    submission, task = runner.submission, probe["call"]
    if "driver" in probe:  # a task of one's own says itself how it is called
        yield driven(submission, probe["driver"]), [""], lambda loading: None, {}
        return
    if makes_layers(submission):
        runner.ways = runner.ways or axes_of(submission, probe)
        submission = construct(submission, probe)
        if "another" in probe:  # what a class keeps, it keeps for all its layers
            with suppress(Exception):
                construct(runner.submission, probe | probe["another"])
    if not callable(submission):
        kind = type(submission).__name__
        raise Advice("not-callable", got=kind)
    weights = probe["weights"]
    if weights is not None:
        weights = {k: cast(x, probe["options"]) for k, x in weights.items()}
    if not isinstance(submission, nn.Module):
        if probe["options"].get("train"):
            raise Skip("a function has no training mode")
        extra = () if weights is None else (weights, probe["sizes"]["H"])
        call = bound(submission, task, extra)
        lacks: dict[str, list] = {}
        before = {k: x.clone() for k, x in (weights or {}).items()}
        yield call, [""], lambda loading: None, lacks
        if not probe["options"].get("device"):
            lacks |= altered(before, weights or {})  # they are inputs, too
        return
    if is_lazy(submission):
        if submission is runner.submission:
            raise Advice("lazy")
        wanted = (x for x in probe["inputs"].values() if isinstance(x, Tensor))
        submission.to(next(wanted).dtype)
        try_ways(bound(submission.forward, task, (), submission), probe)
    with as_it_was(submission):
        p = probe["options"].get("dropout", 0.5)
        dropping = drops(submission)
        if makes_layers(runner.submission):
            asked = signature_of(runner.submission).parameters
            dropping |= any("drop" in name.lower() for name in asked)
        if probe["options"].get("train") and p and not dropping:
            raise Skip("the module has no dropout")
        if p is not None:
            set_dropout(submission, p)
        submission.train(bool(probe["options"].get("train")))
        wanted = next(x for x in probe["inputs"].values() if isinstance(x, Tensor))
        dtype = getattr(torch, probe["options"].get("dtype", ""), wanted.dtype)
        submission.to(probe["options"].get("device", wanted.device), dtype)
        call = bound(submission.forward, task, (), submission)
        if weights is None or task not in LAYERS:
            yield call, [""], lambda loading: None, {}
            return
        if not runner.places:
            runner.places = places_of(submission, runner.layers, call, probe)
        holders = holders_of(submission, runner.places, runner.ways)

        def load(loading: str) -> None:
            try:
                for holder in holders:
                    holder.load(weights, probe["sizes"], loading)
            except Advice as advice:
                raise one_for_all(submission) or advice from None
            submission.load_state_dict(submission.state_dict())  # whoever waits for it
            submission.train(submission.training)

        load.weights = {f"W_{h.parts}": h.slots[0].leaf for h in holders}
        load.weights |= {f"b_{h.parts}": h.biases[0] for h in holders if h.biases}
        has = {role for holder in holders if holder.biases for role in holder.parts}
        known = {id(x) for h in holders for x in h.biases}
        known |= {id(slot.leaf) for h in holders for slot in h.slots}
        lacks = {
            "fused": next((holder.parts for holder in holders if holder.fused), ""),
            "beside": [  # what it learns in no projection
                name
                for name, x in submission.named_parameters()
                if id(x) not in known and ".parametrizations." not in f".{name}"
            ],
            "missing": [f"b_{role}" for role in "qkvo" if role not in has],
            "unnamed": [
                name
                for role, name in NAMES.items()
                if (kept := load.weights.get(f"W_{role}")) is None
                or kept is not _weight(submission, name)
            ],
        }
        loadings = [""]
        if any(holder.fused for holder in holders):
            loadings += ORDERS
        if any(holder.either_way for holder in holders):
            loadings.append("transposed")
        yield call, loadings, load, lacks


@contextmanager
def as_it_was(module: nn.Module):
    """Give the module back with its own numbers, mode and dropout."""
    attributes = [(child, dict(vars(child))) for child in module.modules()]
    copies: dict[int, Tensor] = {}  # a tensor used twice stays one tensor
    for child, _ in attributes:
        for kind, make in (("_parameters", nn.Parameter), ("_buffers", Tensor.clone)):
            tensors = vars(child)[kind]
            vars(child)[kind] = {
                name: None
                if x is None
                else copies.setdefault(id(x), make(x.detach().clone()))
                for name, x in tensors.items()
            }
    try:
        yield
    finally:
        for child, old in attributes:
            vars(child).clear()
            vars(child).update(old)


def drops(module: nn.Module) -> bool:
    """Whether any dropout of the module, as it was made, is above 0."""
    return any(getattr(owner, name) > 0 for owner, name in _dropouts(module))


def set_dropout(module: nn.Module, p: float) -> None:
    """Every dropout of the module to p."""
    for owner, name in _dropouts(module):
        setattr(owner, name, p)


def _dropouts(module: nn.Module) -> Iterator[tuple[nn.Module, str]]:
    """Where a probability of dropout is kept: the module and the attribute."""
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            yield child, "p"
        for name, value in vars(child).items():
            if "drop" in name.lower() and type(value) is float:
                yield child, name
