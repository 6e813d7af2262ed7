"""An error names a mistake where torch raised it, by its message alone."""

from concurrent.futures import Future

import pytest
import torch

from mha_lib.check import TASKS, beside, check, diagnose
from mha_lib.check.beside.words import failure


def size_mismatch(q, k, v, mask=None):
    return q @ k @ v  # all of the same dtype, on the same device


def asserts(q, k, v, mask=None):
    assert q.shape == v.shape, "q and v need to have the same dtype"
    return q


def raises(q, k, v, mask=None):
    raise RuntimeError("Expected all tensors to be on the same device")


def raises_from_torchs(q, k, v, mask=None):
    try:
        return q.double() @ k.mT
    except RuntimeError as error:
        raise RuntimeError("they need the same dtype") from error


def helper_raises(q, k, v, mask=None):
    return torch.func.vmap(raises, in_dims=(0, 0, 0))(q, k, v)


def dot(q, k, v, mask=None):
    return torch.dot(q.flatten(), k.flatten())


def echoes(q, k, v, mask=None):
    return float("the same dtype")


def standard_library_raises(q, k, v, mask=None):
    waiting = Future()
    waiting.set_exception(RuntimeError("the same dtype"))
    return waiting.result()


class NotMade(torch.nn.Module):
    def __init__(self, embed_dim, num_heads):
        raise RuntimeError("the same dtype")


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "submission",
    [
        *(size_mismatch, asserts, raises, raises_from_torchs, helper_raises, dot),
        *(echoes, standard_library_raises, NotMade),
    ],
)
def test_no_word_of_a_submission_names_a_mistake(submission):
    found = diagnose(submission, "mha" if submission is NotMade else "attention")
    assert (found.mistakes, found.advice, found.raised) == ([], [], [])
    assert found.verdict in ("failed", "unknown") and found.error


def other_dtype(q, k, v, mask=None):
    return q.double() @ k.mT


def other_dtype_again(q, k, v, mask=None):
    try:
        return q.double() @ k.mT
    except RuntimeError:
        print("the shapes", q.shape, k.shape)
        raise


def other_device(q, k, v, mask=None):
    return torch.cat([q, k.to("meta")], -2)


@pytest.mark.parametrize(
    ("submission", "mistake"),
    [
        (other_dtype, "constant-dtype"),
        (other_dtype_again, "constant-dtype"),
        (other_device, "constant-device"),
    ],
)
def test_a_message_of_torch_names_a_mistake(submission, mistake):
    found = diagnose(submission, "attention")
    assert (found.verdict, found.mistakes) == ("named", [mistake])
    assert found.confidence == "what your code raised shows this mistake"


def half_filled(q, k, v, mask=None):
    scores = q @ k.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return (scores / q.shape[-1] ** 0.5).softmax(-1) @ v


def test_where_an_error_shows_one_of_two_mistakes_the_numbers_show_the_other():
    found = diagnose(half_filled, "attention", dtype=torch.float16)
    assert (found.verdict, found.mistakes) == ("named", ["fill-overflows-half"])
    assert found.confidence == "what your code raised shows this mistake"
    found = diagnose(
        lambda q, k, v, mask=None: half_filled(q * q.shape[-1] ** 0.5, k, v, mask),
        "attention",
        dtype=torch.float16,
    )
    assert (found.verdict, found.mistakes) == (
        "stacked",
        ["no-scale", "fill-overflows-half"],
    )
    words = "what your code raised shows fill-overflows-half, and where it answered "
    assert found.confidence == words + "the others were seen"


def needs_square(q, k, v, mask=None):
    bias = torch.zeros(q.shape[-2], q.shape[-2])
    scores = q @ k.mT / q.shape[-1] ** 0.5 + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def test_what_fails_by_its_sizes_alone_is_shown_by_what_it_raised():
    found = diagnose(needs_square, "attention")
    assert (found.verdict, found.mistakes) == ("named", ["needs-equal-sizes"])
    assert found.confidence == "what your code raised shows this mistake"


def test_an_error_does_not_explain_answers_that_nothing_explains():
    def strange(q, k, v, mask=None):
        return torch.sin(q @ k.mT) @ (v if mask is None else v.double())

    found = diagnose(strange, "attention")
    assert (found.verdict, found.raised) == ("unknown", ["constant-dtype"])
    assert found.confidence.startswith("no mistake that check knows")


# --- as data ------------------------------------------------------------------------


@pytest.mark.long
def test_message_line_and_who_raised_it_are_kept_apart():
    def first(submission):
        (outcome,) = beside.run(submission, TASKS["attention"].probes(0)[:1])
        return outcome

    theirs = first(other_dtype)
    assert (
        theirs["error"] == "RuntimeError: expected scalar type Double but found Float"
    )
    number = other_dtype.__code__.co_firstlineno + 1
    assert theirs["line"] == f"{number}: return q.double() @ k.mT"
    assert theirs["raised_by"] == "torch"
    assert first(asserts).keys() == {"error", "line"}
    assert first(lambda q: q).keys() == {"error"}
    report = check(other_dtype, "attention")
    said = report.diagnosis.error
    assert said == f"{theirs['error']} (your line {theirs['line']})"
    assert said in repr(report)


def test_an_error_of_a_line_that_nobody_has_is_told_by_its_number():
    space = {}
    exec(compile("\n\ndef f(): raise KeyError", "cell 1", "exec"), space)
    with pytest.raises(KeyError) as caught:
        space["f"]()
    frames = caught.value.__traceback__.tb_next
    assert failure(caught.value.with_traceback(frames)) == {
        "error": "KeyError",
        "line": "3",
    }


def test_an_error_that_was_never_raised_has_no_line():
    assert failure(RuntimeError("here")) == {"error": "RuntimeError: here"}
