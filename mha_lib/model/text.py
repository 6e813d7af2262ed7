"""Text that is on every machine, and two ways to cut it into numbered tokens."""

import json
from collections.abc import Callable
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor

from mha_lib.model.files import write_whole

__all__ = [
    "UNKNOWN",
    "BytePairs",
    "Characters",
    "load_tokenizer",
    "read_text",
    "seed_of",
    "split_text",
    "windows",
]

UNKNOWN = "\N{REPLACEMENT CHARACTER}"
"""Token 0 of every tokenizer: what a character becomes that it has never seen."""

STRANGE = "\0"  # no text of ours has it
SHORTEST = 1000  # characters
STEPS_APART = 1_000_003  # of two seeds: no run is so long that it meets the next one's
# A word with the blank before it, digits, signs, blanks; as GPT-2 does, so that the
# last blank of an indentation goes to the word. JavaScript reads it the same way.
PIECES = r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\s]+|\s+(?!\S)|\s+"


def read_text(path: str | PathLike | None = None) -> str:
    """A file's text, or the Python manual's that comes with the interpreter.

    Args:
        path: a UTF-8 text file; None means the topics of ``help()``,
            ``pydoc_data.topics``, each paragraph once: some topics repeat others
            word for word, and what is learned would be tested again as new.

    Raises:
        ValueError: the file is missing, is no text in UTF-8 or is shorter than 1,000
            characters.

    Note:
        The topics change a little from one version of Python to the next.

    Example:
        >>> read_text()[:22]
        'The "assert" statement'
    """
    if path is None:
        from pydoc_data.topics import topics

        paragraphs = "\n\n".join(topics.values()).split("\n\n")
        return "\n\n".join(dict.fromkeys(paragraphs))
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the text must be UTF-8; {path} is not, at byte {error.start}"
        ) from None
    except OSError as error:
        raise ValueError(
            f"the text must be a file that can be read; {path}: {error.strerror}"
        ) from None
    if (at := text.find(STRANGE)) >= 0:
        raise ValueError(f"the text must be text; {path} has a NUL at character {at}")
    if len(text) < SHORTEST:
        raise ValueError(
            f"the text must have at least {SHORTEST:,} characters to learn from; "
            f"{path} has {len(text):,}"
        )
    return text


def split_text(text: str, share: float = 0.1) -> tuple[str, str]:
    """What is learned from, and the end of the text, which is kept for validation.

    Example:
        >>> split_text("0123456789")
        ('012345678', '9')
    """
    cut = round(len(text) * (1 - share))
    return text[:cut], text[cut:]


def windows(
    tokens: Tensor, batch: int, context: int, seed: int = 0
) -> Callable[[int], Tensor]:
    """The function step → (B, T + 1): pieces of a text, at places drawn by chance.

    What is drawn depends on seed and step alone, so a run can go on at any step.

    Args:
        tokens: (N,), the whole text.
        batch: B, how many pieces.
        context: T; a piece is one token longer: the last one is only predicted.
        seed: another one draws other places.

    Raises:
        ValueError: the text is shorter than a piece.

    Example:
        >>> batch_at = windows(torch.arange(100), batch=2, context=3)
        >>> batch_at(0).shape, bool((batch_at(7) == batch_at(7)).all())
        (torch.Size([2, 4]), True)
        >>> other = windows(torch.arange(100), batch=2, context=3, seed=1)
        >>> bool((other(7) == batch_at(7)).all())
        False
    """
    last = len(tokens) - context
    if last < 1:
        raise ValueError(
            f"the text must have at least {context + 1} tokens, one more than the "
            f"context; got {len(tokens)}"
        )
    steps = torch.arange(context + 1)

    def batch_at(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_of(seed, step))
        starts = torch.randint(last, (batch, 1), generator=generator)
        return tokens[(starts + steps).to(tokens.device)]

    return batch_at


def seed_of(seed: int, draw: int) -> int:
    """The seed of one draw of a run.

    It has 32 bits: of a longer one torch's generator reads the lowest alone.

    Example:
        >>> seed_of(0, 7), seed_of(1, 7)
        (7, 1000010)
    """
    return (seed * STEPS_APART + draw) % 2**32


class _Tokens:
    """Pieces of text, each of which has its place as its number."""

    tokens: list[str]

    @property
    def size(self) -> int:
        """W, how many different tokens there are."""
        return len(self.tokens)

    def decode(self, numbers: list[int]) -> str:
        """The text that these tokens make."""
        return "".join(self.tokens[number] for number in numbers)


class Characters(_Tokens):
    """A token is a character.

    Args:
        tokens: all of them, `UNKNOWN` first; :meth:`of` collects them from a text.

    Example:
        >>> letters = Characters.of("to be or not to be")
        >>> letters.encode("bee"), letters.decode([2, 3, 3]), letters.size
        ([2, 3, 3], 'bee', 8)
    """

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = list(tokens)
        self._numbers = {token: number for number, token in enumerate(self.tokens)}

    @classmethod
    def of(cls, text: str) -> "Characters":
        """The characters of a text, sorted."""
        return cls([UNKNOWN, *sorted({*text} - {UNKNOWN})])

    def encode(self, text: str) -> list[int]:
        """The number of each character."""
        return [self._numbers.get(character, 0) for character in text]

    def save(self, path: str | PathLike) -> None:
        """Write a file that `load_tokenizer` reads."""
        content = json.dumps({"characters": self.tokens[1:]}, ensure_ascii=False)
        write_whole(Path(path), content.encode())


class BytePairs(_Tokens):
    """A token is a character or a frequent sequence of some, within a word.

    Begin with characters; again and again make one token of the two that stand side by
    side most often, until there are W.

    Args:
        tokenizer: of the library ``tokenizers``; :meth:`of` makes one from a text.

    Raises:
        ValueError: its tokens are not numbered from 0 on.

    Example:
        >>> pairs = BytePairs.of("the cat sat on the mat; " * 9, size=18)
        >>> [pairs.tokens[number] for number in pairs.encode("the mat sat on")]
        ['the', ' m', 'at', ' ', 's', 'at', ' ', 'o', 'n']
        >>> pairs.decode(pairs.encode("the hat"))
        'the hat'

    Source:
        Sennrich, Haddow and Birch (2016), section 3.2.
    """

    def __init__(self, tokenizer) -> None:
        numbers = tokenizer.get_vocab()
        self.tokens = sorted(numbers, key=numbers.get)
        if sorted(numbers.values()) != list(range(len(numbers))):
            raise ValueError(f"tokens must have the numbers 0 to {len(numbers) - 1}")
        self._tokenizer = tokenizer

    @classmethod
    def of(cls, text: str, size: int = 512) -> "BytePairs":
        """Learn at most ``size`` tokens from a text."""
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

        least = len({*text, UNKNOWN})
        if size < least:
            raise ValueError(
                f"size, the number of pairs, must be at least {least}, as many "
                f"characters as the text has and one more; got {size}"
            )
        tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
        options = {"vocab_size": size, "special_tokens": [UNKNOWN]}
        trainer = trainers.BpeTrainer(show_progress=False, **options)
        tokenizer.train_from_iterator([text], trainer)
        return cls(tokenizer)

    def encode(self, text: str) -> list[int]:
        """The numbers of the tokens that a text is cut into."""
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return self._tokenizer.encode(whole).ids  # half a character is UNKNOWN

    def save(self, path: str | PathLike) -> None:
        """Write a file that `load_tokenizer` reads, the library's own format."""
        write_whole(Path(path), self._tokenizer.to_str().encode())


def load_tokenizer(path: str | PathLike) -> Characters | BytePairs:
    """Read what ``save`` wrote.

    Raises:
        ValueError: the file is missing or something else.
    """
    try:
        content = json.loads(Path(path).read_text("utf-8"))
        if "characters" in content:
            characters = content["characters"]
            single = (isinstance(x, str) and len(x) == 1 for x in characters)
            if not isinstance(characters, list) or not all(single):
                raise ValueError("characters must be a list of single ones")
            return Characters([UNKNOWN, *characters])
        from tokenizers import Tokenizer

        made = BytePairs(Tokenizer.from_str(json.dumps(content)))
        if made.decode(made.encode(STRANGE)) not in (UNKNOWN, STRANGE):
            raise ValueError(f"what it does not know must be {UNKNOWN}")
        return made
    except (ImportError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises Exception itself, or panics
        raise ValueError(
            f"a tokenizer must be a file that save() wrote; {path}: {error}"
        ) from None
