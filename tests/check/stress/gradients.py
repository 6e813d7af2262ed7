"""The numbers are right, what training needs is not."""

import torch
from torch import nn

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, merge_heads, mha
from tests.check.stress.programs import wrong

GRADIENT = dict(sees="gradient")


@wrong("attention", "All is computed under no_grad.", GRADIENT)
@torch.no_grad()
def under_no_grad(q, k, v, mask=None):
    return attention(q, k, v, mask)


@wrong("attention", "The returned weights are detached.", dict(sees="gradient", of=2))
def detached_weights(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, weights.detach()


@wrong("attention", "k.data cuts the gradient of the keys.", GRADIENT)
def data_of_the_key(q, k, v, mask=None):
    return attention(q, k.data, v, mask)[0]


@wrong("attention", "No gradient flows through the weights.", GRADIENT)
def constant_weights(q, k, v, mask=None):
    weights = attention(q, k, v, mask)[1].detach()
    return weights @ v, weights


@wrong("attention", "The softmax is NumPy's.", GRADIENT)
def by_numpy(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    s = scores.detach().numpy()
    with torch.no_grad():
        e = torch.from_numpy(s - s.max(-1, keepdims=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


@wrong(
    "attention", "The gradient is lost where T = S.", dict(T=4, S=4, sees="gradient")
)
def square_without_gradient(q, k, v, mask=None):
    with torch.set_grad_enabled(q.shape[-2] != k.shape[-2]):
        return attention(q, k, v, mask)[0]


@wrong("attention", "The gradient is lost where there is no mask.", GRADIENT)
def unmasked_without_gradient(q, k, v, mask=None):
    with torch.set_grad_enabled(mask is not None):
        return attention(q, k, v, mask)[0]


@wrong(
    "attention",
    "The gradient is lost where there is a mask.",
    dict(mask="random", sees="gradient"),
)
def masked_without_gradient(q, k, v, mask=None):
    with torch.set_grad_enabled(mask is None):
        return attention(q, k, v, mask)[0]


@wrong("attention", "Loops with item() copy numbers, not gradients.", GRADIENT)
def by_item(q, k, v, mask=None):
    right = attention(q, k, v, mask)[1]
    weights = torch.tensor([w.item() for w in right.flatten()], dtype=q.dtype)
    return weights.view(right.shape) @ v


@wrong("attention", "The gradient of v is right, those of q and k are zeros.", GRADIENT)
def zero_gradients(q, k, v, mask=None):
    weights = attention(q, k, v, mask)[1].detach()
    return weights @ v + 0 * q.sum() + 0 * k.sum()


@wrong("attention", "Every gradient is twice the right one.", GRADIENT)
def double_gradients(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return 2 * context - context.detach()


@wrong(
    "attention",
    "The gradients are clipped away in long sequences.",
    dict(S=20, sees="gradient"),
)
def long_without_gradient(q, k, v, mask=None):
    if k.shape[-2] > 16:
        k = k.detach()
    return attention(q, k, v, mask)[0]


@wrong(
    "attention",
    "Where gradients are off the mask is skipped.",
    dict(mask="random", no_grad=True),
)
def mask_in_training_alone(q, k, v, mask=None):
    return attention(q, k, v, mask if torch.is_grad_enabled() else None)


@wrong(
    "attention",
    "The values are detached in a batch of one.",
    dict(B=1, sees="gradient"),
)
def batch_of_one_detached(q, k, v, mask=None):
    one = v.dim() > 2 and v.shape[0] == 1
    return attention(q, k, v.detach() if one else v, mask)[0]


@wrong("mha", "The projected query is detached.", GRADIENT)
class DetachedQuery(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        context = attention(q.detach(), k, v, None if mask is None else mask[:, None])
        return self.out_proj(merge_heads(context[0]))


@wrong("mha", "W_o is used as .data: it never learns.", GRADIENT)
class FrozenOutput(Layer):
    def forward(self, query, key, value, mask=None):
        weights = dict(self.weights(), W_o=self.out_proj.weight.data)
        return mha(query, key, value, weights, self.num_heads, mask)[0]


@wrong("mha", "The bias of the values is detached.", GRADIENT)
class FrozenBias(Layer):
    def forward(self, query, key, value, mask=None):
        weights = dict(self.weights(), b_v=self.v_proj.bias.detach())
        return mha(query, key, value, weights, self.num_heads, mask)


@wrong("mha", "The heads are computed under no_grad, W_o is not.", GRADIENT)
class HeadsUnderNoGrad(Layer):
    def forward(self, query, key, value, mask=None):
        with torch.no_grad():
            q, k, v = self.heads(query, key, value)
            mask = None if mask is None else mask[:, None]
            context = attention(q, k, v, mask)[0]
        return self.out_proj(merge_heads(context))


@wrong("mha", "W_q and W_k get no gradient: the weights are constants.", GRADIENT)
class FrozenMap(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        mask = None if mask is None else mask[:, None]
        weights = attention(q, k, v, mask)[1].detach()
        return self.out_proj(merge_heads(weights @ v)), weights


@wrong(
    "mha",
    "In training mode nothing gets a gradient.",
    dict(train=True, sees="gradient"),
)
class NoTraining(Layer):
    def forward(self, query, key, value, mask=None):
        with torch.set_grad_enabled(not self.training):
            return self.right(query, key, value, mask)[0]


@wrong(
    "mha",
    "The gradient is lost where query is key in length.",
    dict(T=5, S=5, sees="gradient"),
)
def same_length_no_gradient(query, key, value, weights, num_heads, mask=None):
    if query.shape == key.shape:
        query = query.detach()
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "A dropout of 0.1 that nobody asked for.", dict(train=True))
class UnaskedDropout(Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.dropout = nn.Dropout(0.1)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        weights = attention(q, k, v, None if mask is None else mask[:, None])[1]
        return self.out_proj(merge_heads(self.dropout(weights) @ v))


@wrong("mha", "A dropout of 0.5 on the values that nobody asked for.", dict(train=True))
class DropoutOnValues(Layer):
    def forward(self, query, key, value, mask=None):
        value = nn.functional.dropout(value, 0.5, self.training)
        return self.right(query, key, value, mask)[0]


@wrong("mha", "The weights are None in training.", dict(train=True, sees="weights"))
class NoneInTraining(Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = self.right(query, key, value, mask)
        return output, None if self.training else weights


@wrong(
    "mha", "In training mode the mask is not applied.", dict(train=True, mask="random")
)
class TrainsUnmasked(Layer):
    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, None if self.training else mask)[0]


@wrong("mha", "In training mode zeros come back.", dict(train=True))
class ZerosInTraining(Layer):
    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, mask)[0] * (not self.training)


@wrong("mha", "Noise is added to the scores in training.", dict(train=True))
class NoisyTraining(Layer):
    def forward(self, query, key, value, mask=None):
        if self.training:
            query = query + 0.1 * torch.randn_like(query)
        return self.right(query, key, value, mask)[0]


@wrong("split_heads", "The way through NumPy loses the gradient.", GRADIENT)
def split_by_numpy(x, num_heads):
    heads = plain.split_heads(x, num_heads).detach().numpy().copy()
    return torch.from_numpy(heads)


@wrong("split_heads", "Heads are filled into zeros under no_grad.", GRADIENT)
def split_filled(x, num_heads):
    out = torch.zeros_like(plain.split_heads(x, num_heads))
    out.copy_(plain.split_heads(x, num_heads).data)
    return out


@wrong("merge_heads", ".data loses the gradient.", GRADIENT)
def merge_data(x):
    return plain.merge_heads(x.data)


@wrong("merge_heads", "Only the first head keeps its gradient.", GRADIENT)
def merge_first_learns(x):
    return plain.merge_heads(torch.cat([x[:, :1], x[:, 1:].detach()], 1))


@wrong("split_concat", "All is computed under no_grad.", GRADIENT)
@torch.no_grad()
def style_no_grad(queries, keys, weights, num_heads, causality=False):
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong(
    "split_concat",
    "The keys are detached with causality.",
    dict(T=5, causality=True, sees="gradient"),
)
def style_detached(queries, keys, weights, num_heads, causality=False):
    keys = keys.detach() if causality else keys
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("mha_sequence_first", "The value is detached.", GRADIENT)
def value_detached(query, key, value, weights, num_heads, mask=None):
    value = value.detach()
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)[0]


@wrong("mha_sequence_first", "The values get a gradient twice as large.", GRADIENT)
def value_doubled(query, key, value, weights, num_heads, mask=None):
    value = 2 * value - value.detach()
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)
