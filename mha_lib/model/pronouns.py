"""What does *it* mean? One layer of two heads, trained on sentences that we made.

"the animal did not cross the street because it was too tired": the animal was. With
"wide" it is the street. The first page of the book shows where the heads of `it` look.
Run as a module, it trains the reader anew and writes what `load_pronoun_reader` reads.
"""

from itertools import product
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.model.files import put, read_tensors, write_tensors
from mha_lib.styles import BatchedMHA

__all__ = [
    "PronounReader",
    "encode",
    "load_pronoun_reader",
    "sentences",
    "train_reader",
]

KEPT = Path(__file__).parent / "kept" / "pronouns.safetensors"
WORDS = """\
animal dog cat horse child boy girl king queen bird
street river road field bridge forest garden valley lake path
tired hungry sleepy scared lazy thirsty
wide deep narrow steep dark long"""
BEINGS, PLACES, OF_BEINGS, OF_PLACES = map(str.split, WORDS.splitlines())
FRAMES = [
    f"the {{being}} did not {x} the {{place}}" for x in ("cross", "leave", "enter")
]
FRAMES += [
    f"the {{place}} did not {x} the {{being}}" for x in ("tire", "please", "stop")
]
TAIL = " because it was too {ending}"
IT = 8  # its place in every sentence
NEVER = {  # (noun, ending) of which no sentence was learned from, one pair a noun
    (noun, endings[i % len(endings)])
    for nouns, endings in ((BEINGS, OF_BEINGS), (PLACES, OF_PLACES))
    for i, noun in enumerate(nouns)
}
VOCABULARY = sorted(
    {
        word
        for frame in FRAMES
        for word in (frame + TAIL).split()
        if not word.startswith("{")
    }.union(BEINGS, PLACES, OF_BEINGS, OF_PLACES)
)
EMBED_DIM, HEADS = 32, 2
STEPS, BATCH, PEAK, WARM_UP = 800, 128, 1e-2, 50


def sentences(learned: bool = True) -> list[tuple[list[str], str]]:
    """The words of each sentence, and the noun that its *it* means.

    Args:
        learned: those that the reader learns from; or else those whose noun and ending
            it has never met together.

    Example:
        >>> words, noun = sentences(learned=False)[0]
        >>> " ".join(words), noun
        ('the animal did not cross the street because it was too tired', 'animal')
        >>> len(sentences()), len(sentences(learned=False))
        (6000, 1200)
    """
    found = []
    for being, place, ending, frame in product(
        BEINGS, PLACES, OF_BEINGS + OF_PLACES, FRAMES
    ):
        noun = being if ending in OF_BEINGS else place
        if ((noun, ending) in NEVER) != learned:
            text = (frame + TAIL).format(being=being, place=place, ending=ending)
            found.append((text.split(), noun))
    return found


def encode(words: list[list[str]]) -> Tensor:
    """Sentences of T words as places in the vocabulary, (B, T).

    Raises:
        ValueError: a word that the reader does not know.
    """
    if unknown := {w for sentence in words for w in sentence} - set(VOCABULARY):
        raise ValueError(f"the reader knows {VOCABULARY}; got {sorted(unknown)}")
    return torch.tensor([[VOCABULARY.index(w) for w in s] for s in words])


class PronounReader(nn.Module):
    """votes = MultiHead(x_it, x, x) · Wᵀ with x = W[tokens]: one layer, asked by *it*.

    There are no places: the reader sees which words are there, and not their order.

    Example:
        >>> reader = PronounReader()
        >>> votes, weights = reader(encode([sentences()[0][0]]))
        >>> votes.shape == (1, len(VOCABULARY)), weights.shape == (1, HEADS, 12)
        (True, True)
    """

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(len(VOCABULARY), EMBED_DIM)
        self.mha = BatchedMHA(EMBED_DIM, HEADS)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (B, T) → votes (B, W) for the noun, and the row of *it*, (B, H, T)."""
        x = self.word(tokens)  # (B, T, E)
        output, weights = self.mha(x[:, IT : IT + 1], x, x)  # (B, 1, E), (B, H, 1, T)
        return output[:, 0] @ self.word.weight.T, weights[:, :, 0]


def train_reader(seed: int = 0) -> PronounReader:
    """A reader that has learned for 800 steps, in evaluation mode."""
    torch.manual_seed(seed)
    reader, chance = PronounReader(), torch.Generator().manual_seed(seed)
    words, nouns = zip(*sentences())
    tokens, answers = encode(words), encode([nouns])[0]
    optimizer = torch.optim.AdamW(reader.parameters(), lr=PEAK, weight_decay=1.0)
    for step in range(STEPS):
        rate = PEAK * min(1, (step + 1) / WARM_UP) * (1 - 0.9 * step / STEPS)
        optimizer.param_groups[0]["lr"] = rate
        batch = torch.randint(len(tokens), (BATCH,), generator=chance)
        loss = F.cross_entropy(reader(tokens[batch])[0], answers[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return reader.eval()


def load_pronoun_reader() -> PronounReader:
    """The reader that comes with the book, as `train_reader` left it.

    Example:
        >>> start = "the animal did not cross the street because it was too"
        >>> two = [f"{start} {ending}".split() for ending in ("tired", "wide")]
        >>> votes, _ = load_pronoun_reader()(encode(two))
        >>> [VOCABULARY[i] for i in votes.argmax(dim=-1)]
        ['animal', 'street']
    """
    reader, (tensors, _) = PronounReader(), read_tensors(KEPT)
    put(reader, tensors, KEPT)
    return reader.eval()


if __name__ == "__main__":
    write_tensors(KEPT, dict(train_reader().named_parameters()), {})
