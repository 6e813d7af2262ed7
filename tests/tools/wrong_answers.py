"""Wrong answers to the assignments' own tasks, and what an assignment asks and answers.

A row changes the solution of one question, as a student might have it wrong.
"""

import functools

from mha_lib.check import LANGUAGE
from mha_lib.grade import author
from mha_lib.grade.assignments import from_notebook
from tools import book, notebook

# What the examples of Assignment 6 have to see, though no input of the grader does.
SEEN = {
    "a6 prices, a list of lists": ("return rises", "return rises.tolist()"),
    "a6 find_induction_head, layer 1 alone": (
        "score.argmax().item(), H)",
        "score[1].argmax().item() + H, H)",
    ),
}
UNSEEN = {  # the grader sees them: D is another, and it looks at the maps
    "a6 silenced, D of the example",
    "a6 silenced, its map too",
}
TRAINED = {"a5 model"}  # right only after its training, which the grader runs
WRONG = {
    "a1 softmax, no maximum": ("e = (x - largest).exp()", "e = x.exp()"),
    "a1 softmax, one maximum for all": (
        "x.amax(dim=-1, keepdim=True)",
        "x.amax().nan_to_num(neginf=0.0)",
    ),
    "a1 softmax, NaN on empty rows": (".clamp(min=torch.finfo(x.dtype).min)", ""),
    "a1 softmax, first axis": ("x.amax(dim=-1, keepdim=True)", "x.amax(0, True)"),
    "a1 softmax, single precision": (
        "e = (x - largest).exp()",
        "e = (x.float() - largest.float()).exp()",
    ),
    "a1 softmax, answered in float32": (
        "return e / e.sum(dim=-1, keepdim=True).clamp(min=1)",
        "return (e / e.sum(dim=-1, keepdim=True).clamp(min=1)).float()",
    ),
    "a1 attention_in_loops, answered in float32": (
        "return torch.stack(rows)",
        "return torch.stack(rows).float()",
    ),
    "a1 attention_in_loops, single precision": (
        "torch.stack(scores)",
        "torch.tensor([float(score) for score in scores])",
    ),
    "a1 attention_in_loops, no maximum": (
        "softmax(torch.stack(scores))",
        "torch.stack(scores).exp() / torch.stack(scores).exp().sum()",
    ),
    "a1 attention_in_loops, no root": ("/ len(key) ** 0.5 for", "for"),
    "a1 attention_in_loops, root of S": ("len(key) ** 0.5", "len(k) ** 0.5"),
    "a1 attention_in_loops, D of the example": ("len(key) ** 0.5", "2"),
    "a1 influence, columns": ("return torch.stack(rows)", "return torch.stack(rows).T"),
    "a1 influence, sums": (
        "(gradient != 0).any(dim=-1)",
        "gradient.sum(-1).abs() > 1e-9",
    ),
    "a1 influence, positive alone": ("(gradient != 0)", "(gradient > 0)"),
    "a1 influence, all": ("(gradient != 0).any", "(gradient == gradient).any"),
    "a2 attention_per_head, interleaved": (
        "slice(h * D, (h + 1) * D)",
        "slice(h, None, num_heads)",
    ),
    "a2 attention_per_head, a buffer of float32": (
        "return torch.cat(contexts, dim=-1)",
        "return torch.empty(q.shape).copy_(torch.cat(contexts, dim=-1))",
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
    "a2 touched, turned round": (
        "other[:, s] += 100",
        "other[:, s] = x[:, s].flip(-1)",
    ),
    "a2 touched, set to 0": ("other[:, s] += 100", "other[:, s] = 0"),
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
    "a3 order_of, one neighbour": ("if not moved[1:].any()", "if not moved[1, 0]"),
    "a3 order_of, the last token": ("other[0, 0] += 1.0", "other[-1, -1] += 1.0"),
    "a5 next_token_loss, padding counts": ("[targets != padding]", ""),
    "a5 next_token_loss, always 0": ("targets != padding", "targets != 0"),
    "a5 next_token_loss, not shifted": ("tokens[:, 1:]", "tokens[:, :-1]"),
    "a5 next_token_loss, a sum": (".mean()", ".sum()"),
    "a5 next_token_loss, no graph": (".mean()", ".mean().detach()"),
    "a5 next_token_loss, ln of a softmax": (
        "log_softmax(dim=-1)",
        "softmax(dim=-1).log()",
    ),
    "a5 bigram, padding counts": ("if after != PADDING", "if True"),
    "a5 bigram, columns": ("counts[before, after]", "counts[after, before]"),
    "a5 bigram, once": ("+= 1", "= 2"),
    "a5 bigram, from 0": ("torch.ones(size, size)", "1e-9 + torch.zeros(size, size)"),
    "a5 bigram, no logarithm": (").log()", ")"),
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
    "a5 Block, a ReLU": ("nn.GELU()", "nn.ReLU()"),
    "a5 Block, mlp alone": ("return x + self.mlp", "return self.mlp"),
    "a5 LanguageModel, no places": (" + self.place(torch.arange(T))", ""),
    "a5 LanguageModel, no mask": ("x = block(x, mask)", "x = block(x, None)"),
    "a5 LanguageModel, one block": ("in self.blocks:", "in self.blocks[:1]:"),
    "a5 LanguageModel, no last norm": ("self.output(self.norm(x))", "self.output(x)"),
    "a5 LanguageModel, not tied": ("self.output.weight = self.word.weight", "pass"),
    "a5 LanguageModel, a softmax": (
        "self.output(self.norm(x))",
        "self.output(self.norm(x)).softmax(dim=-1)",
    ),
    "a5 training_step, slopes add up": ("optimizer.zero_grad()", "pass"),
    "a5 training_step, no step": ("optimizer.step()", "pass"),
    "a5 training_step, no clipping": (
        "nn.utils.clip_grad_norm_(model.parameters(), clip)",
        "pass",
    ),
    "a5 training_step, one rate": ('group["lr"] = rate_of(step)', "pass"),
    "a5 training_step, mode of before": ("model.train()", "pass"),
    "a5 training_step, word 0 as padding": (", padding=-1", ""),
    "a5 training_step, the graph": ("loss.item()", "loss"),
    "a5 model, not trained": ("LanguageModel(*sizes)", "LanguageModel(*sizes)"),
    "a5 model, guesses": (
        "LanguageModel(*sizes)",
        "nn.Embedding(len(words), len(words))",
    ),
    "a5 model, counts pairs": (
        "LanguageModel(*sizes)",
        "nn.Embedding.from_pretrained(bigram(train, len(words)))",
    ),
    "a5 generate, the most likely": (
        "torch.multinomial(logits.softmax(dim=-1), 1)",
        "logits.argmax(dim=-1, keepdim=True)",
    ),
    "a5 generate, the first place": (")[:, -1] /", ")[:, 0] /"),
    "a5 generate, no temperature": (" / temperature", ""),
    "a5 generate, top-k left out": ("if top_k is not None", "if False"),
    "a5 generate, all that was read": ("tokens[:, -context:]", "tokens"),
    "a5 generate, mode of writing": ("model.train(before)", "pass"),
    "a5 looks_at, all pairs": (
        "weights[rows, :, query, key].mean(dim=0)",
        "weights[:, :, query, key].mean(dim=(0, 2))",
    ),
    "a5 looks_at, turned": ("query, key]", "key, query]"),
    "a5 looks_at, of the heads": (".mean(dim=0)", ".mean(dim=1)"),
    "a5 looks_at, answered in float32": (".mean(dim=0)", ".mean(dim=0).float()"),
    "a5 looks_at, one number": (".mean(dim=0)", ".mean()"),
    "a5 looks_at, a sum": (".mean(dim=0)", ".sum(dim=0)"),
    "a5 honest_loss, the words left": ("tokens[:, :t]", "tokens[:, t:]"),
    "a5 honest_loss, the first place": ("[:, -1])", "[:, 0])"),
    "a5 honest_loss, one word more": ("tokens[:, :t]", "tokens[:, : t + 1]"),
    "a5 honest_loss, a word alone": ("tokens[:, :t]", "tokens[:, t - 1 : t]"),
    "a5 honest_loss, all words": (
        "model(tokens[:, :t])[:, -1]",
        "model(tokens)[:, t - 1]",
    ),
    "a6 induction_map, the letter itself": ("[s + 1 for", "[s for"),
    "a6 induction_map, the last one alone": ("or [t]", "or [t]; places = places[-1:]"),
    "a6 induction_map, not shared": ("1 / len(places)", "1"),
    "a6 induction_map, new ones at the start": ("or [t]", "or [0]"),
    "a6 induction_map, later ones too": ("in range(t)", "in range(len(tokens) - 1)"),
    "a6 induction_map, columns": ("return weights", "return weights.T"),
    "a6 previous_token_score, the next one": ("diagonal(-1, ", "diagonal(1, "),
    "a6 previous_token_score, itself": ("diagonal(-1, ", "diagonal(0, "),
    "a6 previous_token_score, of the texts": ("dim=(0, 2)", "dim=(1, 2)"),
    "a6 previous_token_score, one number": ("dim=(0, 2)", "dim=(0, 1, 2)"),
    "a6 previous_token_score, over all places": (
        "weights.diagonal(-1, -2, -1).mean(dim=(0, 2))",
        "weights.diagonal(-1, -2, -1).mean(0).sum(-1) / weights.shape[-1]",
    ),
    "a6 induction_score, at the letter": ("equal.roll(1, dims=-1)", "equal"),
    "a6 induction_score, before the letter": ("roll(1,", "roll(-1,"),
    "a6 induction_score, new ones count": (
        "equal.any(dim=-1).sum()",
        "equal.any(dim=-1).numel()",
    ),
    "a6 induction_score, a token is its own": (".tril(-1)", ".tril()"),
    "a6 induction_score, a mean of means": (
        "found.sum(dim=(0, 2)) / equal.any(dim=-1).sum()",
        "(found.sum(-1) / equal.any(-1).sum(-1, keepdim=True)).mean(0)",
    ),
    "a6 induction_score, of the texts": (
        "found.sum(dim=(0, 2))",
        "found.sum(dim=(1, 2))",
    ),
    "a6 silenced, rows": (
        "weight[:, head * D : (head + 1) * D]",
        "weight[head * D : (head + 1) * D]",
    ),
    "a6 silenced, its map too": (
        "    return new",
        "        new.k_proj.weight[head * D : (head + 1) * D] = 0\n    return new",
    ),
    "a6 silenced, in place": ("copy.deepcopy(layer)", "layer"),
    "a6 silenced, interleaved": (
        "head * D : (head + 1) * D",
        "head :: new.num_heads",
    ),
    "a6 induction_map, no letter twice in a row": (
        "in range(t) if",
        "in range(t - 1) if",
    ),
    "a6 induction_score, no letter twice in a row": (
        ".roll(1, dims=-1)[:, None]  # (B, 1, t",
        ".roll(1, dims=-1).tril(-1)[:, None]  # (B, 1, t",
    ),
    "a6 silenced, D of the example": (
        "new.out_proj.in_features // new.num_heads",
        "3 + 0 * new.num_heads",
    ),
    "a6 silenced, D is H": (
        "new.out_proj.in_features // new.num_heads",
        "new.num_heads",
    ),
    "a6 silenced, a shallow copy": ("copy.deepcopy(layer)", "copy.copy(layer)"),
    "a6 silenced, the output bias": (
        "return new",
        "new.out_proj.bias.data.zero_(); return new",
    ),
    "a6 silenced, values without their bias": (
        "new.out_proj.weight[:, head * D : (head + 1) * D]",
        "new.v_proj.weight[head * D : (head + 1) * D]",
    ),
    "a6 prices, the losses": (" - whole", ""),
    "a6 prices, falls": (
        "loss_without([(layer, head)]) - whole",
        "whole - loss_without([(layer, head)])",
    ),
    "a6 prices, all heads before it": (
        "loss_without([(layer, head)])",
        "loss_without([(layer, h) for h in range(head + 1)])",
    ),
    "a6 prices, one after the other": (
        "rises[layer, head] = loss_without([(layer, head)]) - whole",
        "gone = [(n // num_heads, n % num_heads) for n in range(\n                "
        "layer * num_heads + head + 1)]\n            "
        "rises[layer, head] = loss_without(gone) - loss_without(gone[:-1])",
    ),
    "a6 prices, of the first layer": (
        "loss_without([(layer, head)])",
        "loss_without([(0, head)])",
    ),
    "a6 prices, columns": ("return rises", "return rises.T"),
    "a6 votes, all heads": ("slice(head * D, (head + 1) * D)", "slice(None)"),
    "a6 votes, the first head": ("slice(head * D, (head + 1) * D)", "slice(D)"),
    "a6 votes, columns of the values": (
        "layer.v_proj.weight[part].T",
        "layer.v_proj.weight[:, part]",
    ),
    "a6 votes, rows of the output": (
        "layer.out_proj.weight[:, part].T",
        "layer.out_proj.weight[part]",
    ),
    "a6 votes, turned": ("return added @ output.T", "return output @ added.T"),
    "a6 votes, votes of the letters": ("added @ output.T", "added @ letter.T"),
    "a6 find_induction_head, no price": (" | (rise < 0.1)", ""),
    "a6 find_induction_head, the dearest": ("score.argmax()", "rise.argmax()"),
    "a6 find_induction_head, mean of the lengths": (
        "amin(dim=0)\n    rise = torch.stack(rises).amin(dim=0)",
        "mean(dim=0)\n    rise = torch.stack(rises).mean(dim=0)",
    ),
    "a6 find_induction_head, the dearest of those left": (
        "return divmod(score",
        "return divmod((rise * (score > 0))",
    ),
    "a6 find_induction_head, one length": ("(5, 7, 9, 11)", "(9,)"),
    "a6 find_induction_head, its best length": (
        "amin(dim=0)\n    rise = torch.stack(rises).amin(dim=0)",
        "amax(dim=0)\n    rise = torch.stack(rises).amax(dim=0)",
    ),
    "a6 find_induction_head, the price of the best alone": (
        "    score[(score < 0.4) | (rise < 0.1)] = 0\n    if score.max() == 0:\n",
        "    if score.max() < 0.4 or rise.flatten()[score.argmax()] < 0.1:\n",
    ),
    "a6 find_induction_head, head first": (", H)\n", ", H)[::-1]\n"),
    "a6 find_induction_head, sixteen letters": ("length, letters)", "length)"),
    "a6 find_induction_head, always one": ("return None", "return 1, 0"),
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
        or old in cell and any(f"{line} ".startswith(f"{name} = ")
                               for line in cell.split("\n"))
    )  # fmt: skip
    cells[place] = cells[place].replace(old, new, 1)
    return author.execute(author.closure(cells, [name]), "an answer")[name]


@functools.cache
def tasks(id):
    return {q.name: q.task for q in from_notebook(source(id)).questions}


def own(id):
    """The tasks of an assignment that are its own, or those of a language model."""
    return {
        name: task
        for name, task in tasks(id).items()
        if task.startswith(id) or task in LANGUAGE
    }
