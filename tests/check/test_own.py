"""A task of one's own: drawn, called by its driver, compared with its reference."""

import pytest
import torch

from mha_lib.check import (
    TASKS,
    check,
    diagnose,
    judged,
    own_task,
    property_names,
    register,
    registered,
)


def table(rows, columns):
    """A table of numbers, counted."""
    return torch.arange(float(rows * columns)).view(rows, columns)


def draw_table(generator):
    sizes = torch.randint(2, 9, (4,), generator=generator).tolist()
    return {
        "small": {"rows": sizes[0], "columns": sizes[1]},
        "large": {"rows": 10 * sizes[2], "columns": sizes[3]},
    }


class Counter:
    """A reference that is no function; its driver knows how to ask it."""

    def __init__(self, start=0):
        self.start = start

    def upto(self, n):
        return [self.start + i for i in range(n)]


def draw_counter(generator):
    return {"three": {"n": 3}, "five": {"n": 5}}


def call_counter(counter, n):
    import math

    return [math.floor(x) for x in counter(2).upto(n)]


@pytest.fixture
def both():
    """The two tasks are known, for one test."""
    tables = own_task("own.table", table, draw_table, title="a table")
    counters = own_task("own.counter", Counter, draw_counter, call_counter)
    with registered(tables, counters):
        yield


def test_what_is_right_is_said_to_be(both):
    report = check(
        lambda a, b: torch.arange(0.0, a * b).unflatten(0, (a, b)), "own.table"
    )
    assert report and repr(report) == "Right: a table."
    assert check(Counter, "own.counter")


def test_probes_are_drawn_by_the_seed(both):
    first, again, other = (TASKS["own.table"].probes(seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {probe["call"] for probe in first} == {"own.table"}
    names = {"right: small", "right: large", "runs", "right"}
    assert names <= property_names("own.table")


def test_one_case_that_is_wrong_is_shown(both):
    found = diagnose(lambda a, b: table(a, b).clamp(max=17), "own.table")
    assert found.verdict == "unknown" and not found.properties["right: large"]
    assert found.properties["runs"] and not found.properties["right"]
    assert found.example.probe in ("small", "large")
    assert check(lambda a, b: table(a, b).clamp(max=17), "own.table").picture()


def test_numbers_lists_and_tensors_are_compared(both):
    class Late(Counter):
        def upto(self, n):
            return [*super().upto(n)[:-1], 99]

    report = check(Late, "own.counter")
    assert "output[2] is 99.000; 4.000 is right." in repr(report)
    assert report.picture() is None  # of two lists the words say enough

    class Real(Counter):
        def upto(self, n):
            return [float(x) for x in super().upto(n)]

    assert check(Real, "own.counter")  # whole numbers of another kind


def test_booleans_have_to_be_booleans():
    def even(x):
        return x % 2 == 0

    def draw_even(generator):
        return {"some": {"x": torch.randint(9, (3, 5), generator=generator)}}

    task = own_task("own.even", even, draw_even)
    with registered(task):
        assert check(even, "own.even")
        numbers = check(lambda x: even(x).int(), "own.even")
        assert "Your result holds torch.int32; torch.bool is right." in repr(numbers)
        found = diagnose(lambda x: ~even(x), "own.even")
        assert found.example.kind == "mask"


def test_what_does_not_answer_says_why_and_where(both):
    def broken(rows, columns):
        raise KeyError("no rows")

    found = diagnose(broken, "own.table")
    assert found.verdict == "failed" and found.properties == {"runs": False}
    assert "no rows" in found.error and 'raise KeyError("no rows")' in found.error
    said = repr(check(lambda rows, columns: ..., "own.table"))
    assert "must be returned" in said
    assert "Required: table(rows, columns): A table of numbers, counted." in said


def test_an_error_in_some_cases_is_wrong(both):
    def small_alone(rows, columns):
        if rows > 9:
            raise ValueError("too many")
        return table(rows, columns)

    found = diagnose(small_alone, "own.table")
    assert found.verdict == "unknown" and "too many" in found.error
    assert found.properties["right: small"] and not found.properties["right: large"]


def test_its_properties_are_those_that_are_judged(both):
    found = diagnose(lambda rows, columns: torch.zeros(rows, columns), "own.table")
    assert found.properties.keys() == property_names("own.table") == judged("own.table")
    with pytest.raises(ValueError, match="own.table may require .*; got gradients"):
        judged("own.table", ["gradients"])


def test_after_the_with_all_is_as_it_was_before():
    before = dict(TASKS)
    late = own_task("own.table", table, draw_table, title="later")
    with registered(own_task("own.table", table, draw_table)):
        with pytest.raises(KeyError), registered(late):
            assert TASKS["own.table"].title == "later"
            raise KeyError
        assert TASKS["own.table"].title == "own.table"
        register(own_task("own.other", table, draw_table))
    assert before == TASKS


def test_inputs_that_change_are_seen():
    def double(x):
        return 2 * x

    def in_place(x):
        return x.mul_(2)

    task = own_task("own.double", double, lambda g: {"ones": {"x": torch.ones(3)}})
    with registered(task):
        found = diagnose(in_place, "own.double")
        assert found.properties["right: ones"]
        assert not found.properties["inputs_unchanged"]
        assert found.verdict == "unmet"
        said = repr(check(in_place, "own.double"))
        assert "After the call x held other numbers." in said


def test_a_line_of_the_driver_is_not_called_theirs(both):
    found = diagnose(type("Nothing", (Counter,), {"upto": None}), "own.counter")
    assert "TypeError" in found.error and "your line" not in found.error


def test_a_reference_that_fails_and_a_taken_name_are_refused():
    def fails(rows, columns):
        raise RuntimeError("not today")

    with pytest.raises(ValueError, match="fails must answer 'small'; .*not today"):
        own_task("fails", fails, draw_table)
    with pytest.raises(ValueError, match="mha is a task of mha_lib"):
        own_task("mha", table, draw_table)
    with pytest.raises(ValueError, match="mha is a task of mha_lib"):
        register(TASKS["mha"])


# --- mistakes that a task knows -------------------------------------------------------


def plus_one(x):
    return x + 1


def draw_numbers(generator):
    x = torch.randn(3, 5, generator=generator)
    return {"drawn": {"x": x if generator.initial_seed() < 9 else 0 * x + 2}}


KNOWN = {  # where x is 2, the first two give the same
    "twice": (lambda x: 2 * x, "It is doubled."),
    "squared": (lambda x: x**2, "It is <squared>."),
    "in-place": (lambda x: x.add_(1), "What came in is changed."),
}


@pytest.fixture
def plus():
    task = own_task("own.plus", plus_one, draw_numbers, mistakes=KNOWN)
    with registered(task):
        yield "own.plus"


def test_a_mistake_that_the_task_knows_is_said_in_its_words(plus):
    report = check(lambda x: x + x, plus)
    assert report.diagnosis.mistakes == ["twice"] and not report
    lines = repr(report).splitlines()
    assert lines[:2] == ["One mistake in your own.plus.", "  It is doubled. [twice]"]
    explained = "This explains the one call that was tried"
    assert lines[-1] == f"  {explained}: mend it, then check again."
    assert "It is &lt;squared&gt;. [squared]" in check(torch.square, plus)._repr_html_()
    assert check(lambda x: 1 + x, plus)


def test_a_mistake_may_be_what_happens_to_the_inputs(plus):
    found = diagnose(lambda x: x.add_(1.0), plus)
    assert found.mistakes == ["in-place"] and found.properties["right: drawn"]
    found = diagnose(lambda x: x.mul_(2), plus)  # twice, and one more
    assert found.verdict == "unknown" and not found.properties["inputs_unchanged"]


def test_what_no_version_gives_is_told_where_it_is_wrong_and_what_to_do(plus):
    said = repr(check(lambda x: x + 2, plus)).splitlines()
    assert "in a way that has no name here" in said[0]
    assert "  It is wrong in every case: drawn." in said
    assert said[-2].startswith("  Next: call it yourself with the smallest case")
    assert said[-1] == "  Required: plus_one(x)"
    assert diagnose(lambda x: x / "2", plus).verdict == "failed"


def test_where_the_drawn_numbers_decide_nothing_both_are_said(plus):
    report = check(lambda x: x + x, plus, seed=9)
    assert report.diagnosis.candidates == [["twice"], ["squared"]]
    said = repr(report)
    assert "one of 2 ways" in said
    assert said.index("It is doubled.") < said.index("It is <squared>.")


def test_what_a_version_answers_is_computed_once_for_the_same_probes():
    asked = []

    def twice(x):
        asked.append(x.tolist())
        return 2 * x

    known = {"twice": (twice, "It is doubled.")}
    with registered(own_task("own.plus", plus_one, draw_numbers, mistakes=known)):
        asked.clear()  # the task has tried its cases
        for seed, times in ((3, 1), (3, 1), (4, 2)):
            found = diagnose(lambda x: x + x, "own.plus", seed=seed)
            assert (found.mistakes, len(asked)) == (["twice"], times)
    assert asked[0] != asked[1]


def test_a_version_that_answers_in_some_cases_alone_is_not_given_for_others():
    def fails_later(x):
        if x[0, 0] == 2:
            raise ValueError("two")
        return 3 * x

    known = {"later": (fails_later, "It fails at 2.")}
    task = own_task("own.later", plus_one, draw_numbers, mistakes=known)
    with registered(task):
        assert diagnose(lambda x: 3 * x, "own.later").mistakes == ["later"]
        assert diagnose(lambda x: 3 * x, "own.later", seed=9).verdict == "unknown"


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"same": lambda x: 1 + x}, "tell the reference and same apart; .* seed 0"),
        (
            {"one": lambda x: 2 * x, "other": lambda x: x + x},
            "must tell one and other apart",
        ),
        ({"none": lambda x: x.nothing}, "none of own.refused must answer 'drawn'"),
    ],
)
def test_mistakes_that_cannot_be_told_are_refused(versions, message):
    known = {name: (version, "A sentence.") for name, version in versions.items()}
    with pytest.raises(ValueError, match=message):
        own_task("own.refused", plus_one, draw_numbers, mistakes=known)


def test_cases_have_to_tell_mistakes_apart_with_every_seed_that_is_tried():
    def draw_rarely(generator):
        return {"drawn": {"x": torch.ones(3) * (generator.initial_seed() != 2)}}

    known = {"twice": (lambda x: 2 * x + 1, "It is doubled.")}
    with pytest.raises(ValueError, match="got the same answers with seed 2"):
        own_task("own.rarely", plus_one, draw_rarely, mistakes=known)


def square(n):
    return torch.eye(n)


def draw_square(generator):
    return {"a square": {"n": 3}}


def test_a_picture_says_what_rows_and_columns_are_if_it_is_told():
    plain = own_task("own.square", square, draw_square)
    told = own_task("own.told", square, draw_square, axes=("letter", "vote"))
    with registered(plain, told):
        reports = [check(lambda n: torch.ones(n, n), x.name) for x in (plain, told)]
        texts = [report._repr_html_() for report in reports]
    assert "The output. A star marks" in texts[0]
    assert "a row for each letter, a column for each vote" in texts[1]


def test_numbers_too_small_for_nine_digits_are_told_with_powers_of_ten():
    def charge(n):
        return 1.602e-19 * n

    def draw(generator):
        return {"three": {"n": torch.tensor([3.0])}}

    with registered(own_task("own.charge", charge, draw)):
        said = repr(check(lambda n: 2e-19 * n, "own.charge"))
    assert "output[0] is 6e-19; 4.806e-19 is right" in said


def test_an_author_says_what_a_wrong_answer_is_in_words():
    def words(yours, right):
        return f"You found {yours.sum():g}; right: {right.sum():g}."

    with registered(own_task("own.said", square, draw_square, words=words)):
        wrong = check(lambda n: torch.ones(n, n), "own.said")
        other = check(lambda n: torch.ones(n), "own.said")
    assert "You found 9; right: 3." in str(wrong)
    assert "has the shape (3,); (3, 3) is right" in str(other)
