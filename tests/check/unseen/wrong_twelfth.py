"""The seventeenth round: what a call leaves behind, and how finely it answers."""

import torch

from tests.check.unseen.usual import Attention, programs

WRONG, wrong = programs()


@wrong("attention")
def coarse_weights(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v, weights.float()


@wrong("mha")
class CoarseWeights(Attention):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output, weights.float()


def _by_einsum(query, key, value, parameters, num_heads, mask):
    def heads(x, role):
        W = parameters[f"W_{role}"].view(num_heads, -1, x.shape[-1])
        b = parameters[f"b_{role}"].view(num_heads, 1, -1)
        return torch.einsum("bte,hde->bhtd", x, W) + b

    q, k, v = heads(query, "q"), heads(key, "k"), heads(value, "v")
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
    weights = scores.softmax(-1)
    merged = (weights @ v).transpose(1, 2).flatten(2)
    W = parameters["W_o"].reshape(query.shape[-1], -1)
    return merged @ W.T + parameters["b_o"], weights


@wrong("mha")
def cuts_the_matrix_in_the_dictionary(
    query, key, value, parameters, num_heads, mask=None
):
    E = query.shape[-1]
    parameters["W_o"] = parameters["W_o"].view(E, num_heads, -1)
    return _by_einsum(query, key, value, parameters, num_heads, mask)
