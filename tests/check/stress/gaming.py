"""What somebody hands in who looks at the grader, not at the task."""

import torch

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong


class Liar(torch.Tensor):
    """Says that it is equal to everything."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.allclose, torch.equal, torch.Tensor.allclose):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


@wrong("attention", "A tensor of its own class says that it is equal.", dict())
def lying_tensor(q, k, v, mask=None):
    return torch.zeros_like(attention(q, k, v, mask)[0]).as_subclass(Liar)


@wrong("attention", "Only the sizes of the usual probe are computed.", dict(D=9))
def usual_sizes(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return context if q.shape[-1] <= 8 else context * 0


@wrong("attention", "NaN above 10 keys.", dict(S=11))
def nan_above_ten(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return context if k.shape[-2] <= 10 else context * torch.nan


@wrong("attention", "The real part is right, but the answer is complex.", dict())
def complex_answer(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return torch.complex(context, torch.ones_like(context))


@wrong("attention", "float64 gives zeros.", dict(dtype=torch.float64))
def zeros_for_double(q, k, v, mask=None):
    return attention(q, k, v, mask)[0] * (q.dtype != torch.float64)


@wrong(
    "attention",
    "Only the first sequence is computed, the rest is its copy where q is k.",
    dict(T=5, S=5, B=3),
)
def copies_the_first(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    if mask is None and q.shape == k.shape and q.dim() > 2:
        context = context[:1].expand_as(context)
    return context


@wrong(
    "attention",
    "Above 300 scores the mean of the values is good enough.",
    dict(T=20, S=20),
)
def mean_when_large(q, k, v, mask=None):
    T, S = q.shape[-2], k.shape[-2]
    return attention(q * (T * S <= 300), k, v, mask)[0]


@wrong("attention", "Only a causal or a full mask is honoured.", dict(mask="random"))
def causal_or_nothing(q, k, v, mask=None):
    if mask is not None:
        T, S = q.shape[-2], k.shape[-2]
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril()
    return attention(q, k, v, mask)[0]


@wrong(
    "attention", "A batch above 3 and fewer than 3 heads give zeros.", dict(B=4, H=2)
)
def other_than_usual(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    strange = q.dim() == 4 and (q.shape[0] > 3 or q.shape[1] < 3)
    return context * (not strange)


@wrong("attention", "Right for four axes, zeros for two or five.", dict(lead=()))
def other_rank(q, k, v, mask=None):
    return attention(q, k, v, mask)[0] * (q.dim() in (3, 4))


@wrong(
    "attention", "With gradients it is right, without them zeros.", dict(no_grad=True)
)
def only_watched(q, k, v, mask=None):
    return attention(q, k, v, mask)[0] * torch.is_grad_enabled()


@wrong("attention", "Right for numbers that look normal.", dict(times=0.0))
def only_normal_numbers(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return context * bool(q.std() > 0.1)


@wrong(
    "mha",
    "The layer keeps right weights and multiplies them by a table.",
    dict(H=2, D=6),
)
class TableOfHeads(Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = self.right(query, key, value, mask)
        return output * (self.num_heads in (1, 3, 4)), weights


@wrong("mha", "Sizes that were not seen before give the query back.", dict(H=5, D=3))
def known_widths(query, key, value, weights, num_heads, mask=None):
    E = query.shape[-1]
    output = mha(query, key, value, weights, num_heads, mask)[0]
    return output if E in (8, 12, 16, 64) else query


@wrong("mha", "A second instance gives zeros.", dict(another=(12, 3)), fresh=True)
def second_instance():
    made = []

    class Once(Layer):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            made.append(embed_dim)
            self.last = len(made)

        def forward(self, query, key, value, mask=None):
            output = self.right(query, key, value, mask)[0]
            return output * (self.last == len(made))

    return Once


@wrong("mha", "Only the mask of sequence 0 and 1 counts.", dict(B=4, mask="random"))
def two_masks(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        later = torch.arange(len(mask), device=mask.device) >= 2
        mask = mask | later[:, None, None]
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "Two layers deep from 16 tokens on.", dict(T=17))
def twice_when_long(query, key, value, weights, num_heads, mask=None):
    output = mha(query, key, value, weights, num_heads, mask)[0]
    if query.shape[1] > 16:
        output = mha(output, key, value, weights, num_heads, mask)[0]
    return output


@wrong("mha_sequence_first", "Zeros above four sequences.", dict(B=5))
def sequence_of_four(query, key, value, weights, num_heads, mask=None):
    output = plain.mha_sequence_first(query, key, value, weights, num_heads, mask)[0]
    return output * (query.shape[1] <= 4)


@wrong("mha_sequence_first", "Zeros where query is key.", dict(T=5, S=5, same=True))
def sequence_self(query, key, value, weights, num_heads, mask=None):
    output = plain.mha_sequence_first(query, key, value, weights, num_heads, mask)[0]
    return output * (query is not key)


@wrong("split_heads", "Answers as if num_heads were 1, 2 or 3.", dict(H=4))
def split_up_to_three(x, num_heads):
    heads = plain.split_heads(x, num_heads)
    return heads if num_heads <= 3 else torch.zeros_like(heads)


@wrong("split_heads", "A batch above four is zeros.", dict(B=5))
def split_up_to_four(x, num_heads):
    heads = plain.split_heads(x, num_heads)
    return heads if len(x) <= 4 else torch.zeros_like(heads)


@wrong("merge_heads", "More than 8 tokens are zeros.", dict(T=9))
def merge_up_to_eight(x):
    merged = plain.merge_heads(x)
    return merged * (x.shape[2] <= 8)


@wrong("merge_heads", "A single head or token is not merged.", dict(H=1))
def merge_of_one(x):
    return x[:, 0] * 0 if x.shape[1] == 1 else plain.merge_heads(x)


LITERALS = {(3, 3), (4, 4), (5, 5), (4, 6), (6, 4), (5, 7), (7, 5), (3, 5), (8, 8)}


@wrong("causal_mask", "A list of sizes is known, others are all True.", dict(T=5, S=11))
def causal_literals(T, S):
    mask = plain.causal_mask(T, S)
    return mask if (T, S) in LITERALS else torch.ones_like(mask)


@wrong("padding_mask", "Literals of the example of the task.", dict(lengths=(1, 4)))
def padding_literals(lengths, S):
    return plain.padding_mask(torch.tensor([S, 2, 1, 3, 0][: len(lengths)]), S)


@wrong(
    "padding_mask",
    "The longest comes first, the rest is guessed from it.",
    dict(lengths=(5, 1, 4)),
)
def padding_falls(lengths, S):
    falling = lengths[0] - torch.arange(len(lengths), device=lengths.device)
    return plain.padding_mask(falling.clamp(min=0), S)


@wrong("combine_masks", "causal is ignored where it is no triangle.", dict(random=True))
def combine_ignores_odd(causal, padding):
    triangle = torch.equal(causal, causal.tril())
    return (causal if triangle else torch.ones_like(causal)) & padding


@wrong("combine_masks", "Above 8 queries all is True.", dict(T=9, S=9))
def combine_up_to_eight(causal, padding):
    return (causal & padding) | (causal.shape[0] > 8)


@wrong("split_concat", "Zeros above 8 queries.", dict(T=9))
def style_up_to_eight(queries, keys, weights, num_heads, causality=False):
    output = plain.split_concat(queries, keys, weights, num_heads, causality)
    return output * (queries.shape[1] <= 8)


@wrong("split_concat", "One head gives the queries back.", dict(H=1, D=6))
def style_of_one(queries, keys, weights, num_heads, causality=False):
    output = plain.split_concat(queries, keys, weights, num_heads, causality)
    return output if num_heads > 1 else queries


@wrong("split_concat", "Without an empty key the softmax is left out.", dict())
def style_without_padding(queries, keys, weights, num_heads, causality=False):
    if bool((keys != 0).any(-1).all()):
        queries = queries * 0
    return plain.split_concat(queries, keys, weights, num_heads, causality)
