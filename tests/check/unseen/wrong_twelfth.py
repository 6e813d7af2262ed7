"""The seventeenth round: how finely a call answers."""

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
