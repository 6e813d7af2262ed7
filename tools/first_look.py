"""Draw the book's first picture: where the two heads of *it* look, for two endings.

`python -m tools.first_look` writes `book/pictures/first_look.html`, which stands on the
first page, from the weights that `mha_lib.model.pronouns` keeps. It needs no script:
two radio buttons, and `book.css` lets the arcs swing. `tools.pictures` takes stills.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch

from mha_lib.model.pronouns import IT, VOCABULARY, encode, load_pronoun_reader
from tools import book

PAGE = book.ROOT / "book" / "pictures" / "first_look.html"
START = "The animal did not cross the street because it was too"
ENDINGS = "tired", "wide"
FAINT = 0.05  # a weight below it is not drawn
LETTER, BLANK = 9.1, 11.5  # pixels, as wide as the widest of usual fonts at 17 pixels
LINE = 21  # pixels from word to word where they stand below each other


@dataclass(frozen=True)
class Look:
    """What the layer does with one ending."""

    words: list[str]
    weights: list[list[float]]  # (H, T), the row of *it* in each head
    noun: str
    sure: float


def looks() -> list[Look]:
    """One for each ending, from the weights that are kept."""
    sentences = [[*START.split(), ending] for ending in ENDINGS]
    known = [[word.lower() for word in words] for words in sentences]
    with torch.no_grad():
        votes, weights = load_pronoun_reader()(encode(known))
    sure, nouns = votes.softmax(dim=-1).max(dim=-1)
    return [
        Look(words, rows.tolist(), VOCABULARY[noun], p.item())
        for words, rows, noun, p in zip(sentences, weights, nouns, sure)
    ]


# --- where things stand -----------------------------------------------------------


def across(words: list[str]) -> list[float]:
    """The middle of each word of a line."""
    wide = [len(word) * LETTER for word in words]
    ends = [0.0]
    for one in wide:
        ends.append(ends[-1] + one + BLANK)
    return [(a + b - BLANK) / 2 for a, b in pairwise(ends)]


def swell(reach: float, upright: bool) -> float:
    """How far an arc of this reach swings out."""
    return (
        min(112.0, 20 + 0.62 * abs(reach))
        if upright
        else min(84.0, 20 + 0.3 * abs(reach))
    )


def arc(head: int, key: int, places: list[float], upright: bool) -> str:
    """The `transform` of an arc of size 1 that leads from *it* to a key."""
    side = -1 if head == 0 else 1  # of the words: left or above, right or below
    reach = places[key] - places[IT]
    out = side * swell(reach, upright)
    if upright:
        return (
            f"translate({side * 36}px,{places[IT]:.0f}px) scale({out:.0f},{reach:.0f})"
        )
    return f"translate({places[IT]:.0f}px,{side * 15}px) scale({reach:.0f},{out:.0f})"


def arcs(found: list[Look], places: list[float], upright: bool) -> list[str]:
    """For each head the largest weight, then the next: each swings as a whole."""
    shape = "M0,0C1.33,0.1 1.33,0.9 0,1" if upright else "M0,0C0.1,1.33 0.9,1.33 1,0"
    drawn = []
    for head in range(len(found[0].weights)):
        ranked = [
            sorted(enumerate(look.weights[head]), key=lambda x: -x[1]) for look in found
        ]
        for pair in zip(*ranked):  # the same rank under both endings
            if all(weight < FAINT for _, weight in pair):
                break
            style = ";".join(
                f"--go-{i}:{arc(head, key, places, upright)};"
                f"--wide-{i}:{1 + 7 * weight if weight >= FAINT else 0:.1f}px"
                for i, (key, weight) in enumerate(pair)
            )
            drawn.append(f'<path class="look-{head}" d="{shape}" style="{style}"/>')
    return drawn


def drawing(found: list[Look], upright: bool) -> str:
    """The words with the arcs of both heads; of the last word each ending is there."""
    words = [look.words for look in found]
    longest = [max(pair, key=len) for pair in zip(*words)]
    places = [LINE * i for i in range(len(longest))] if upright else across(longest)
    box = (
        f"-175 -16 350 {LINE * len(longest) + 8}"
        if upright
        else (f"-8 -92 {across([*longest, ''])[-1] + 8:.0f} 198")
    )
    texts = []
    for i, (place, *both) in enumerate(zip(places, *words)):
        for ending, word in enumerate(dict.fromkeys(both)):
            kind = (
                "look-it"
                if i == IT
                else f"ending-{ending}"
                if both[0] != both[1]
                else ""
            )
            where = f'y="{place:.0f}"' if upright else f'x="{place:.0f}"'
            texts.append(f'<text class="{kind}" {where} dy=".32em">{word}</text>')
    return (
        f'<svg class="{"upright" if upright else "flat"}" viewBox="{box}" '
        f'aria-hidden="true">{"".join(arcs(found, places, upright) + texts)}</svg>'
    )


# --- the page ---------------------------------------------------------------------


def told(found: list[Look]) -> str:
    """What is seen, in words, for each ending."""
    said = []
    for i, look in enumerate(found):
        heads = []
        for head, row in enumerate(look.weights):
            weight, word = max(zip(row, look.words))
            name = "head" if heads else "Head"
            heads.append(
                f'<b class="look-{head}">{name} {head}</b> looks at <em>{word}</em> '
                f"({weight:.2f})"
            )
        said.append(
            f'<p class="ending-{i}">{", ".join(heads)}. So <em>it</em> is '
            f"<strong>the {look.noun}</strong>.</p>"
        )
    return "\n".join(said)


def switch() -> str:
    """Two radio buttons before all else, so that a style sheet can follow them."""
    return "\n".join(
        f'<input type="radio" name="first-look" id="first-look-{i}"'
        f"{' checked' if i == 0 else ''}>"
        for i in range(len(ENDINGS))
    )


def page() -> str:
    found = looks()
    labels = " ".join(
        f'<label for="first-look-{i}">{ending}</label>'
        for i, ending in enumerate(ENDINGS)
    )
    return f"""<!-- made by `python -m tools.first_look` -->
<div class="first-look" role="radiogroup" aria-label="How the sentence ends">
{switch()}
<p class="first-look-ask">What does <em>it</em> mean? Change the last word: {labels}</p>
{drawing(found, upright=False)}
{drawing(found, upright=True)}
<div role="status">
{told(found)}
</div>
</div>
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(book.ROOT))
