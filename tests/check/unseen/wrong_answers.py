"""Wrong answers to what the assignments ask beside `check`: "a1 softmax" and so on.

They were written from the text of the tasks alone.
"""

import copy
import functools
import math

import torch
from torch import nn

from mha_lib.grade import author
from tests.check.unseen.usual import programs
from tools import book, notebook

WRONG, wrong = programs()


@functools.cache
def cells_of(id):
    """What the code cells of a solved assignment say."""
    (path,) = (path for path in book.sources() if path.stem.startswith(f"{id}_"))
    return [x.source for x in notebook.read(path).cells if x.cell_type == "code"]


def given(id, *names):
    """What the notebook defines under these names."""
    found = author.execute(author.closure(cells_of(id), names), "what is given")
    return (found[name] for name in names)


strings, loss_of, induction_score, prices = given(
    "a6", "strings", "loss_of", "induction_score", "prices"
)


# --- Assignment 1 ---------------------------------------------------------------------


@wrong("a1 softmax")
def softmax_from_the_mean(x):
    """The mean is subtracted: a row of 1000 and 0 is still too large."""
    seen = x.isfinite()
    mean = x.where(seen, 0.0).sum(-1, keepdim=True)
    e = (x - mean / seen.sum(-1, keepdim=True).clamp(min=1)).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


@wrong("a1 softmax")
def softmax_of_clamped_scores(x):
    """1000 and 1001 are both 80."""
    e = x.clamp(max=80.0).exp()
    return (e / e.sum(-1, keepdim=True)).nan_to_num(0.0)


@wrong("a1 softmax")
def softmax_in_place(x):
    """The caller's scores are gone."""
    x -= x.amax(-1, keepdim=True).clamp(min=-1e30)
    e = x.exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


@wrong("a1 attention_in_loops")
def loops_of_python_numbers(q, k, v):
    """`math.exp` holds more than a float32, and not 1000."""
    rows = []
    for query in q:
        scores = [float((query * key).sum()) / len(query) ** 0.5 for key in k]
        e = [math.exp(score) for score in scores]
        rows.append(sum(x * value for x, value in zip(e, v)) / sum(e))
    return torch.stack(rows)


def gradients(f, x, of=lambda row: row.sum()):
    """Of each output, with respect to all inputs: (T, T, D)."""
    x = x.clone().requires_grad_()
    y = f(x)
    rows = [torch.autograd.grad(of(row), x, retain_graph=True)[0] for row in y]
    return torch.stack(rows)


@wrong("a1 influence")
def influence_of_the_first_feature(f, x):
    """Of each input."""
    return gradients(f, x)[..., 0] != 0


@wrong("a1 influence")
def influence_on_the_first_feature(f, x):
    """Of each output."""
    return (gradients(f, x, lambda row: row[0]) != 0).any(-1)


@wrong("a1 influence")
def influence_that_is_large(f, x):
    """What is below a thousandth is taken for rounding."""
    return (gradients(f, x).abs() > 1e-3).any(-1)


@wrong("a1 influence")
def influence_by_trying(f, x):
    """It adds 1 and looks: no gradient at all."""
    columns = []
    for s in range(len(x)):
        other = x.clone()
        other[s] += 1
        columns.append((f(other) != f(x)).any(-1))
    return torch.stack(columns, dim=1)


# --- Assignment 2 ---------------------------------------------------------------------


@wrong("a2 touched")
def touched_by_a_neighbour(split, s, T=6, E=6, H=3):
    """The token becomes a copy of the one before it; a text of one has none."""
    x = torch.arange(float(T * E)).view(1, T, E)
    other = x.clone()
    other[:, s] = x[:, s - 1]
    return (split(other, H) != split(x, H)).any(dim=-1)[0]


@wrong("a2 reordered")
def reordered_in_single_precision(mha, order):
    """The copy is filled from new tensors, which are of float32."""
    new, E = copy.deepcopy(mha), mha.out_proj.weight.shape[0]
    moved = torch.arange(E).view(mha.num_heads, -1)[order].flatten()
    for layer in (new.q_proj, new.k_proj, new.v_proj):
        layer.weight = nn.Parameter(layer.weight.data.float()[moved])
        layer.bias = nn.Parameter(layer.bias.data.float()[moved])
    new.out_proj.weight = nn.Parameter(new.out_proj.weight.data.float()[:, moved])
    return new


@wrong("a2 reordered")
def reordered_that_shares(mha, order):
    """What does not move is not copied: who trains the copy trains both."""
    new, E = copy.deepcopy(mha), mha.out_proj.weight.shape[0]
    moved = torch.arange(E).view(mha.num_heads, -1)[order].flatten()
    with torch.no_grad():
        for layer in (new.q_proj, new.k_proj, new.v_proj):
            layer.weight.copy_(layer.weight[moved])
            layer.bias.copy_(layer.bias[moved])
        new.out_proj.weight.copy_(new.out_proj.weight[:, moved])
    new.out_proj.bias = mha.out_proj.bias
    return new


# --- Assignment 3 ---------------------------------------------------------------------


@wrong("a3 order_of")
@torch.no_grad()
def order_of_what_moves_much(f, embed_dim):
    """What moves by less than a hundredth is taken for rounding."""
    x = torch.randn(3, 4, embed_dim)
    other = x.clone()
    other[0, 0] += 1.0
    moved = ((f(other) - f(x)).abs() > 1e-2).any(-1)
    return "batch first" if not moved[1:].any() else "sequence first"


# --- Assignment 5 ---------------------------------------------------------------------


@wrong("a5 honest_loss")
@torch.no_grad()
def honest_loss_by_rows(model, tokens):
    """The mean of each row first: a short row counts as much as a long one."""
    costs = []
    for row in tokens:
        row = row[row != 0][None]
        steps = [
            model(row[:, :t])[0, -1].log_softmax(-1)[row[0, t]]
            for t in range(1, row.shape[1])
        ]
        if steps:
            costs.append(-sum(steps) / len(steps))
    return float(sum(costs) / len(costs))


# --- Assignment 6 ---------------------------------------------------------------------


@wrong("a6 induction_map")
def map_without_letter_0(tokens):
    """Letter 0 is taken for padding."""
    T = len(tokens)
    weights = torch.zeros(T, T)
    for t in range(T):
        places = [s + 1 for s in range(t) if tokens[s] == tokens[t] and tokens[t]]
        weights[t, places or [t]] = 1 / len(places or [t])
    return weights


@wrong("a6 induction_score")
def score_of_the_latest(weights, tokens):
    """Of several earlier places the last one counts alone."""
    total = torch.zeros(weights.shape[1])
    count = 0
    for w, text in zip(weights, tokens.tolist()):
        for t in range(1, len(text)):
            earlier = [s for s in range(t) if text[s] == text[t]]
            if earlier:
                total += w[:, t, earlier[-1] + 1]
                count += 1
    return total / count


@wrong("a6 votes")
def votes_with_biases(letter, layer, head, output):
    """The bias of the values votes, too."""
    D = letter.shape[1] // layer.num_heads
    part = slice(head * D, (head + 1) * D)
    added = layer.v_proj(letter)[:, part] @ layer.out_proj.weight[:, part].T
    return added @ output.T


def found(run, letters, least=0.4, price=0.1, ranked=lambda scores: scores.amin(0)):
    """A finder of which something may be otherwise."""
    scores, rises = [], []
    for length in (5, 7, 9, 11):
        tokens = strings(64, length, letters)

        def loss_without(heads, tokens=tokens, length=length):
            return loss_of(lambda x: run(x, heads), tokens, length)

        maps = run(tokens[:, :-1])[1]
        H = maps.shape[2]
        scores.append(torch.stack([induction_score(w, tokens[:, :-1]) for w in maps]))
        rises.append(prices(loss_without, len(maps), H))
    scores, rise = torch.stack(scores), torch.stack(rises).amin(0)
    out = (scores.amin(0) < least) | (rise < price)
    rank = ranked(scores).masked_fill(out, -1.0)
    return divmod(int(rank.argmax()), H) if rank.max() > 0 else None


@wrong("a6 find_induction_head")
def finder_that_wants_more(run, letters):
    """0.6, where 0.4 is asked for."""
    return found(run, letters, least=0.6)


@wrong("a6 find_induction_head")
def finder_of_any_price(run, letters):
    """Whatever costs anything counts."""
    return found(run, letters, price=1e-4)


@wrong("a6 find_induction_head")
def finder_by_the_mean(run, letters):
    """Of those left, the one with the highest mean over the lengths."""
    return found(run, letters, ranked=lambda scores: scores.mean(0))


# --- the fifth round ------------------------------------------------------------------

FIFTH, wrong = programs()


@wrong("a1 softmax")
def softmax_along_the_second(x):
    """Axis 1 is the last one of a table."""
    e = (x - x.amax(-1, keepdim=True).clamp(min=-1e30)).exp()
    total = e.sum(1 if x.dim() > 1 else 0, keepdim=True)
    return (e / total).nan_to_num(0.0)


@wrong("a5 bigram")
def bigram_of_one_text(tokens, size):
    """All rows one behind the other: the last word of a row meets the next row."""
    text = tokens.flatten()
    counts = torch.ones(size, size)
    for before, after in zip(text, text[1:]):
        if after != 0:
            counts[before, after] += 1
    return (counts / counts.sum(dim=1, keepdim=True)).log()


@wrong("a5 bigram")
def bigram_of_what_is_there(tokens, size):
    """As many words as the tokens show."""
    size = int(tokens.max()) + 1
    counts = torch.ones(size, size)
    for row in tokens:
        for before, after in zip(row, row[1:]):
            if after != 0:
                counts[before, after] += 1
    return (counts / counts.sum(dim=1, keepdim=True)).log()


@wrong("a5 looks_at")
def look_of_the_mean_map(weights, query, key):
    """First the mean over the texts, then all places of all texts."""
    return weights.mean(dim=0)[:, query, key].mean(dim=-1)


@wrong("a5 honest_loss")
@torch.no_grad()
def honest_loss_of_eight(model, tokens):
    """Eight rows are enough."""
    tokens = tokens[:8]
    costs = []
    for t in range(1, tokens.shape[1]):
        ln_p = model(tokens[:, :t])[:, -1].log_softmax(-1)
        real = tokens[:, t] != 0
        costs.append(-ln_p[torch.arange(len(tokens)), tokens[:, t]][real])
    return torch.cat(costs).mean().item()


@wrong("a6 find_induction_head")
def finder_of_the_first(run, letters):
    """The first head that is good enough."""
    return found(run, letters, ranked=lambda scores: (scores.amin(0) > 0.4).float())


@wrong("a6 find_induction_head")
def finder_of_all_places(run, letters):
    """The loss of the first block counts, too, where nothing can be known."""
    scores, rises = [], []
    for length in (5, 7, 9, 11):
        tokens = strings(64, length, letters)

        def loss_without(heads, tokens=tokens):
            return loss_of(lambda x: run(x, heads), tokens, 0)

        maps = run(tokens[:, :-1])[1]
        H = maps.shape[2]
        scores.append(torch.stack([induction_score(w, tokens[:, :-1]) for w in maps]))
        rises.append(prices(loss_without, len(maps), H))
    score, rise = torch.stack(scores).amin(0), torch.stack(rises).amin(0)
    score[(score < 0.4) | (rise < 0.1)] = 0
    return divmod(int(score.argmax()), H) if score.max() > 0 else None
