"""Wrong answers to the assignments' own tasks: each loses its points, in one place.

A row changes the solution of one question, as a student might have it wrong.
"""

import functools

import pytest

from mha_lib.check import diagnose
from mha_lib.grade import author
from mha_lib.grade.assignments import from_notebook
from tools import book, notebook

WRONG = {
    "a1 softmax, no maximum": ("e = (x - largest).exp()", "e = x.exp()"),
    "a1 softmax, one maximum for all": (
        "x.amax(dim=-1, keepdim=True)",
        "x.amax().nan_to_num(neginf=0.0)",
    ),
    "a1 softmax, NaN on empty rows": (".clamp(min=torch.finfo(x.dtype).min)", ""),
    "a1 softmax, first axis": ("x.amax(dim=-1, keepdim=True)", "x.amax(0, True)"),
    "a1 attention_in_loops, no root": ("/ len(key) ** 0.5 for", "for"),
    "a1 attention_in_loops, root of S": ("len(key) ** 0.5", "len(k) ** 0.5"),
    "a1 attention_in_loops, D of the example": ("len(key) ** 0.5", "2"),
    "a1 influence, columns": ("return torch.stack(rows)", "return torch.stack(rows).T"),
    "a1 influence, sums": (
        "(gradient != 0).any(dim=-1)",
        "gradient.sum(-1).abs() > 1e-9",
    ),
    "a1 influence, all": ("(gradient != 0).any", "(gradient == gradient).any"),
    "a2 attention_per_head, interleaved": (
        "slice(h * D, (h + 1) * D)",
        "slice(h, None, num_heads)",
    ),
    "a2 attention_per_head, D = 4": (
        "slice(h * D, (h + 1) * D)",
        "slice(4*h, 4*h + 4)",
    ),
    "a2 attention_per_head, wide values": (
        "contexts.append(attention(*parts)[0])",
        "contexts.append(attention(q, k, v)[0][..., columns])",
    ),
    "a2 touched, place of the example": (
        "return (split(other, H) != split(x, H)).any(dim=-1)[0]",
        "return torch.arange(T).eq(s).expand(H, T)",
    ),
    "a2 touched, in place": ("other = x.clone()", "other, before = x, split(x, H)"),
    "a2 touched, all features": (".any(dim=-1)[0]", ".all(dim=-1)[0]"),
    "a2 number_of_parameters, no biases": ("4 * (E * E + E)", "4 * E * E"),
    "a2 number_of_parameters, of E = 12": ("4 * (E * E + E)", "624"),
    "a2 reordered, inverse": ("blocks[order]", "blocks[torch.tensor(order).argsort()]"),
    "a2 reordered, no biases": ("layer.bias.copy_(layer.bias[moved])", "pass"),
    "a2 reordered, rows of out_proj": (
        "new.out_proj.weight[:, moved]",
        "new.out_proj.weight[moved]",
    ),
    "a2 reordered, the old one too": ("copy.deepcopy(mha)", "mha"),
    "a3 pool": ('pool = "bte->be"', 'pool = "bte->bt"'),
    "a3 linear, the other way round": ("bti,oi->bto", "bti,io->bto"),
    "a3 scores_of": ("bhtd,bhsd->bhts", "bhtd,bhsd->bhst"),
    "a3 context_of": ("bhts,bhsd->bthd", "bhts,bhsd->bhtd"),
    "a3 own_scores": ("bhtt->bht", "bhts->bht"),
    "a3 penalty": ("h,ts->hts", "h,ts->tsh"),
    "a3 order_of, always the same": ("if not moved[1:].any()", "if True"),
    "a3 order_of, the last token": ("other[0, 0] += 1.0", "other[-1, -1] += 1.0"),
    "a5 next_word_loss, padding counts": (", ignore_index=PADDING", ""),
    "a5 next_word_loss, not shifted": (
        "tokens[:, 1:].flatten()",
        "tokens[:, :-1].flatten()",
    ),
    "a5 next_word_loss, a sum": (
        "ignore_index=PADDING)",
        "ignore_index=PADDING, reduction='sum')",
    ),
    "a5 bigram, padding counts": ("if after != PADDING", "if True"),
    "a5 bigram, columns": ("counts[before, after]", "counts[after, before]"),
    "a5 Block, no norm": ("h = self.norm1(x)", "h = x"),
    "a5 Block, no residual": (
        "x = x + self.attention(h, h, h, mask)[0]",
        "x = self.attention(h, h, h, mask)[0]",
    ),
    "a5 Block, no mask": ("self.attention(h, h, h, mask)", "self.attention(h, h, h)"),
    "a5 Block, the norms exchanged": (
        "self.mlp(self.norm2(x))",
        "self.mlp(self.norm1(x))",
    ),
    "a5 LanguageModel, no places": (" + self.place(torch.arange(T))", ""),
    "a5 LanguageModel, a mask of its own": ("self.mask_of(T, T)", "causal_mask(T, T)"),
    "a5 LanguageModel, one block": ("in self.blocks:", "in self.blocks[:1]:"),
    "a5 LanguageModel, no last norm": ("self.read(self.norm(x))", "self.read(x)"),
    "a5 fit, slopes add up": ("optimizer.zero_grad()", "pass"),
    "a5 fit, no step": ("optimizer.step()", "pass"),
    "a5 generate, the most likely": (
        "torch.multinomial(logits.softmax(dim=-1), 1)",
        "logits.argmax(dim=-1, keepdim=True)",
    ),
    "a5 generate, the first place": (
        "model(tokens)[:, -1]\n        drawn",
        "model(tokens)[:, 0]\n        drawn",
    ),
    "a5 generate, no softmax": (
        "logits.softmax(dim=-1), 1",
        "logits.clamp(min=0) + 1, 1",
    ),
    "a5 honest_loss, all words": (
        "model(tokens[:, :t])[:, -1]",
        "model(tokens)[:, t - 1]",
    ),
}


@functools.cache
def source(id):
    (path,) = (path for path in book.sources() if path.stem.startswith(f"{id}_"))
    return notebook.read(path)


def answer(id, name, old="", new=""):
    """What a notebook defines under a name, with one change in its definition."""
    cells = [c.source for c in source(id).cells if c.cell_type == "code"]
    place = next(
        n for n, cell in enumerate(cells)
        if old in cell and f"def {name}(" in cell
        or f"class {name}(" in cell and old in cell
        or cell.startswith("pool =") and old in cell
    )  # fmt: skip
    cells[place] = cells[place].replace(old, new, 1)
    return author.execute(author.closure(cells, [name]), "an answer")[name]


@functools.cache
def tasks(id):
    return {q.name: q.task for q in from_notebook(source(id)).questions}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_is_not_right(case):
    id, name = case.partition(",")[0].split()
    found = diagnose(answer(id, name, *WRONG[case]), tasks(id)[name], seed=11)
    assert found.verdict in ("unknown", "failed"), case
    assert not found.properties.get("right")


def test_every_task_of_the_assignments_has_a_wrong_answer():
    ours = {f"{id} {name}" for id in ("a1", "a2", "a3", "a5")
            for name, task in tasks(id).items() if task.startswith(id)}  # fmt: skip
    assert ours == {case.partition(",")[0] for case in WRONG}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("id", ["a1", "a2", "a3", "a5"])
def test_solutions_are_right_for_every_seed(id, seed):
    for name, task in tasks(id).items():
        if task.startswith(id):
            assert diagnose(answer(id, name), task, seed=seed).verdict == "right", name
