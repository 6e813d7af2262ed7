"""The fourth round, layers: state that stays, flags of a default, few digits."""

import torch
import torch.nn.functional as F

from tests.check.unseen.usual import Attention, programs
from tests.check.unseen.wrong_parts_copied import NEVER

WRONG, wrong = programs()


class Layer(Attention):
    """Right, in parts that others change."""

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def projected(self, query, key, value):
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    def attend(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], NEVER)
        weights = scores.softmax(-1)
        return weights @ v, weights

    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.split, self.projected(query, key, value))
        context, weights = self.attend(q, k, v, mask)
        return self.out_proj(context.transpose(1, 2).flatten(2)), weights


@wrong("mha")
class LayerThatRemembersTokens(Layer):
    """One token alone is taken for the next one of a text that is being written."""

    past = None

    def projected(self, query, key, value):
        q, k, v = super().projected(query, key, value)
        if query.shape[1] == key.shape[1] == 1 and not self.training:
            if self.past is not None and self.past[0].shape[0] == k.shape[0]:
                k, v = (torch.cat(x, 1) for x in zip(self.past, (k, v)))
            self.past = k.detach(), v.detach()
        return q, k, v


@wrong("mha")
class LayerOfFewDigits(Layer):
    """Under autocast, as on a large card."""

    def forward(self, query, key, value, mask=None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, weights = super().forward(query, key, value, mask)
        return output.to(query.dtype), weights.to(query.dtype)


@wrong("mha")
class LayerThatDropsHiddenKeys(Layer):
    """Keys that nobody may see are cut off first, and their columns are gone."""

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            seen = mask.flatten(0, 1).any(0)
            key, value, mask = key[:, seen], value[:, seen], mask[..., seen]
        return super().forward(query, key, value, mask)


@wrong("mha")
class LayerThatTrustsOneTensor(Layer):
    """Where queries are keys it takes them for the values, too."""

    def projected(self, query, key, value):
        return super().projected(query, key, query if query is key else value)


@wrong("mha")
class LayerInBlocksOfQueries(Layer):
    """128 queries at a time; each block gets the mask of the first."""

    def attend(self, q, k, v, mask):
        parts = []
        for n in range(0, q.shape[2], 128):
            some = q[:, :, n : n + 128]
            rows = None if mask is None else mask[:, : some.shape[2]]
            parts.append(super().attend(some, k, v, rows))
        contexts, weights = zip(*parts)
        return torch.cat(contexts, 2), torch.cat(weights, 2)


@wrong("mha")
class LayerThatKnowsItsKeys(Layer):
    """Keys and values of a text that it has met are not projected again."""

    met = kept = None

    def projected(self, query, key, value):
        if key is not self.met:
            self.met, self.kept = key, super().projected(query, key, value)[1:]
        return self.q_proj(query), *self.kept


@wrong("mha")
class LayerThatAlwaysDrops(Layer):
    """F.dropout drops in evaluation, too, unless it is told."""

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.dropout = dropout

    def attend(self, q, k, v, mask):
        _, weights = super().attend(q, k, v, mask)
        return F.dropout(weights, self.dropout) @ v, weights


@wrong("mha")
class LayerOfSinglePrecision(Layer):
    """Whatever came, the answer is a float32."""

    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output.float(), weights.float()


@wrong("mha")
class LayerWhoseKeysDoNotLearn(Layer):
    """The numbers of k_proj are read past the graph."""

    def projected(self, query, key, value):
        k = F.linear(key, self.k_proj.weight.data, self.k_proj.bias.data)
        return self.q_proj(query), k, self.v_proj(value)


@wrong("mha_sequence_first")
class LayerThatGuessesTheOrder(Layer):
    """The longer of the two axes is taken for the text."""

    def forward(self, query, key, value, mask=None):
        if query.shape[0] >= query.shape[1]:  # sequence first
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            mask = None if mask is None else mask.permute(2, 0, 1)
            output, weights = super().forward(query, key, value, mask)
            return output.transpose(0, 1), weights
        return super().forward(query, key, value, mask)


@wrong("mha_sequence_first")
class LayerThatSqueezes(Layer):
    """A batch of one loses its axis in the weights."""

    def forward(self, query, key, value, mask=None):
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        mask = None if mask is None else mask.permute(2, 0, 1)
        output, weights = super().forward(query, key, value, mask)
        return output.transpose(0, 1), weights.squeeze(0)


@wrong("split_concat")
def split_concat_with_query_masks(queries, keys, weights, num_heads, causality=False):
    """As the code of 2017 has it: padded queries get nothing, either."""
    q, k, v = (
        F.linear(x, weights[f"W_{r}"], weights[f"b_{r}"]).relu()
        for r, x in zip("qkv", (queries, keys, keys))
    )
    B, T, E = q.shape
    q, k, v = (torch.cat(x.split(E // num_heads, -1), 0) for x in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    real = (keys != 0).any(-1).repeat(num_heads, 1)[:, None]
    scores = scores.masked_fill(~real, -(2.0**32) + 1)
    if causality:
        later = torch.ones(T, keys.shape[1], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -(2.0**32) + 1)
    w = scores.softmax(-1) * (queries != 0).any(-1).repeat(num_heads, 1)[..., None]
    merged = torch.cat((w @ v).split(B, 0), -1)
    return F.linear(merged, weights["W_o"], weights["b_o"])
