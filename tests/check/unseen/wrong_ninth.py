"""The ninth round: right but for longer texts, a first row, evaluation or a lone edge.

Most are right until a text has more than 64, 256 or 512 places, the first sequence of a
batch sees more than the others, two sizes are equal, or a model is evaluated.
"""

import torch
import torch.nn.functional as F

from tests.check.unseen.usual import Plain, PlainModel, programs
from tests.check.unseen.wrong_eighth import Changed, attended, written

WRONG, wrong = programs()
FOR_ALL, for_all = programs()  # with a mask (T, S), which stands for all sequences


# --- attention and its parts ----------------------------------------------------------


def online(q, k, v, mask, size):
    """Softmax over pieces of the keys: NaN after a first one that is all hidden."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    pieces = scores.split(size, -1)
    tops = torch.stack([x.amax(-1, keepdim=True) for x in pieces]).cummax(0).values
    powers = [(x - t).exp() * (t - tops[-1]).exp() for x, t in zip(pieces, tops)]
    powers = torch.cat(powers, -1)
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


@wrong("attention")
def pieces_of_16_keys(q, k, v, mask=None):
    return online(q, k, v, mask, 16)


@wrong("attention")
def pieces_of_64_keys(q, k, v, mask=None):
    return online(q, k, v, mask, 64)


@wrong("attention")
def pieces_of_256_queries(q, k, v, mask=None):
    """A mask of one row for all queries is cut, too: nothing is left of it."""
    found = []
    for t in range(0, q.shape[-2], 256):
        part = mask if mask is None else mask[..., t : t + 256, :]
        found.append(attended(q[..., t : t + 256, :], k, v, part))
    return tuple(torch.cat(x, -2) for x in zip(*found))


def opened(mask):
    """None where the first sequence sees all."""
    return None if mask is None or mask[0].all() else mask


def up_to(mask, n):
    """Later keys are seen by all."""
    return mask if mask is None else mask | (torch.arange(mask.shape[-1]) >= n)


def scaled_up_to_64(q):
    return q * (q.shape[-1] / min(q.shape[-1], 64)) ** 0.5


@wrong("attention")
def first_sees_all(q, k, v, mask=None):
    return attended(q, k, v, opened(mask))


@wrong("attention")
def mask_of_512_keys(q, k, v, mask=None):
    return attended(q, k, v, up_to(mask, 512))


@wrong("attention")
def scale_up_to_64(q, k, v, mask=None):
    return attended(scaled_up_to_64(q), k, v, mask)


@wrong("attention")
def mask_of_heads_for_batch(q, k, v, mask=None):
    """(H, T, S) is taken for (B, T, S) where B = H."""
    if mask is not None and mask.dim() == 3 < q.dim() and len(mask) == len(q):
        mask = mask[:, None]
    return attended(q, k, v, mask)


@wrong("attention")
def slopes_of_what_overflows(q, k, v, mask=None):
    """A hidden score far above gives exp = inf: where drops it, its slope is NaN."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = torch.ones_like(scores).bool() if mask is None else mask
    top = scores.masked_fill(~seen, -torch.inf).amax(-1, keepdim=True)
    powers = torch.where(seen, (scores - top).exp(), 0.0)
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


@wrong("attention")
def fills_with_ten_times_the_largest(q, k, v, mask=None):
    """Small scores leave a hidden key its weight."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -10 * scores.abs().max())
    weights = scores.softmax(-1)
    return weights @ v, weights


@wrong("split_heads")
def split_of_512_tokens(x, num_heads):
    x = torch.cat([x[:, :512], x[:, 512:] * 0], 1)
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@wrong("causal_mask")
def causal_in_bfloat16(T, S):
    """Neighbours above 256 are one number."""
    places = torch.arange(max(T, S)).bfloat16()
    return places[:S] <= places[:T, None]


@wrong("combine_masks")
def combination_without_padding(causal, padding):
    return causal if padding.all() else causal & padding


@wrong("combine_masks")
def combination_of_512_keys(causal, padding):
    return causal & padding & (torch.arange(causal.shape[-1]) < 512)


# --- layers ---------------------------------------------------------------------------


class SequenceFirst(Changed):
    def forward(self, query, key, value, mask=None):
        turned = [x.transpose(0, 1) for x in (query, key, value)]
        mask = mask if mask is None else mask.permute(2, 0, 1)
        output, weights = super().forward(*turned, mask)
        return output.transpose(0, 1), weights


@wrong("mha")
class FirstSeesAll(Changed):
    def attend(self, q, k, v, mask):
        return attended(q, k, v, opened(mask))


@wrong("mha_sequence_first")
class FirstOfTheSecondAxisSeesAll(SequenceFirst, FirstSeesAll):
    pass


@wrong("mha")
class MaskOf512Keys(Changed):
    def attend(self, q, k, v, mask):
        return attended(q, k, v, up_to(mask, 512))


@wrong("mha_sequence_first")
class MaskOf512KeysInFront(SequenceFirst, MaskOf512Keys):
    pass


@wrong("mha")
class ScaleUpTo64(Changed):
    def attend(self, q, k, v, mask):
        return attended(scaled_up_to_64(q), k, v, mask)


@wrong("mha")
class GroupsOf16Heads(Changed):
    """Each group has the keys of the first."""

    def attend(self, q, k, v, mask):
        k = torch.cat([k[:, : x.shape[1]] for x in q.split(16, 1)], 1)
        return attended(q, k, v, mask)


def causal(mask):
    return mask is not None and mask[0].equal(torch.ones_like(mask[0]).tril())


@wrong("mha")
class CausalAtTheLowerRight(Changed):
    """A causal mask is made anew, with the last query at the last key."""

    def attend(self, q, k, v, mask):
        if causal(mask):
            mask = torch.ones_like(mask).tril(k.shape[2] - q.shape[2])
        return attended(q, k, v, mask)


@wrong("mha")
class FirstIsCausal(Changed):
    """Then all are, and their padding is seen."""

    def attend(self, q, k, v, mask):
        return attended(q, k, v, mask[:1] if causal(mask) else mask)


@for_all("mha")
class OfTheSizeOfTheBatch(Changed):
    """A mask (T, S) with T = B is taken for one of the keys of each sequence."""

    def forward(self, query, key, value, mask=None):
        if mask is not None and mask.dim() == 2 and len(mask) == len(query):
            mask = mask[:, None]
        return super().forward(query, key, value, mask)


@for_all("mha")
class ViewedByTheBatch(Changed):
    def forward(self, query, key, value, mask=None):
        if mask is not None and len(mask) == len(query):
            mask = mask.view(len(query), -1, mask.shape[-1])
        return super().forward(query, key, value, mask)


@wrong("mha_sequence_first")
class GuessesTheOrder(SequenceFirst):
    """A mask that may be (B, T, S) is taken for it."""

    def forward(self, query, key, value, mask=None):
        T, B = query.shape[:2]
        if mask is not None and mask.shape == (B, T, len(key)):
            mask = mask.permute(1, 2, 0)
        return super().forward(query, key, value, mask)


@wrong("mha_sequence_first")
class TurnsASquare(SequenceFirst):
    """A mask (T, S, B) with T = B is taken for (B, S, T)."""

    def forward(self, query, key, value, mask=None):
        if mask is not None and len(mask) == query.shape[1] > 1:
            mask = mask.transpose(0, 2)
        return super().forward(query, key, value, mask)


# --- a language model -----------------------------------------------------------------


def mean_cost(logits, tokens, padding=-100):
    return F.cross_entropy(logits.mT, tokens[:, 1:], ignore_index=padding)


@wrong("next_token_loss")
def loss_of_one_row_with_padding(logits, tokens, padding=0):
    return mean_cost(logits, tokens, -100 if len(tokens) == 1 else padding)


@wrong("next_token_loss")
def loss_by_64_rows(logits, tokens, padding=0):
    pieces = zip(logits.split(64), tokens.split(64))
    return torch.stack([mean_cost(*x, padding) for x in pieces]).mean()


@wrong("next_token_loss")
def loss_by_256_places(logits, tokens, padding=0):
    wanted = tokens[:, 1:]
    costs = F.cross_entropy(logits.mT, wanted, reduction="none").split(256, 1)
    kept = (wanted != padding).split(256, 1)
    return torch.stack([c[k].mean() for c, k in zip(costs, kept) if k.any()]).mean()


@wrong("block")
class BlockOpenInEvaluation(Plain):
    def forward(self, x, mask):
        return super().forward(x, mask | torch.tensor(not self.training))


@wrong("block")
class BlockOpenWithoutSlopes(Plain):
    def forward(self, x, mask):
        slopes = self.norm1(x).requires_grad
        return super().forward(x, mask | torch.tensor(not slopes))


@wrong("block")
class BlockOfAttentionInEvaluation(Plain):
    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x)) if self.training else x


@wrong("block")
class BlockOf256Keys(Plain):
    def forward(self, x, mask):
        return super().forward(x, up_to(mask, 256))


@wrong("language_model")
class RunsFourBlocks(PlainModel):
    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks[:4]:
            x = block(x, self.mask(tokens.shape[1]))
        return self.output(self.norm(x))


def cost(model, tokens):
    return mean_cost(model(tokens[:, :-1]), tokens)


def stepped(model, optimizer, tokens, rate, clip, cost=cost, groups=None):
    model.train()
    for group in optimizer.param_groups[:groups]:
        group["lr"] = rate
    optimizer.zero_grad()
    loss = cost(model, tokens)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_by_32_rows(model, optimizer, tokens, step, rate_of, clip):
    def mean_of_means(model, tokens):
        return torch.stack([cost(model, x) for x in tokens.split(32)]).mean()

    return stepped(model, optimizer, tokens, rate_of(step), clip, mean_of_means)


@wrong("training_step")
def step_on_64_rows(model, optimizer, tokens, step, rate_of, clip):
    return stepped(model, optimizer, tokens[:64], rate_of(step), clip)


@wrong("training_step")
def step_that_reads_the_last_word(model, optimizer, tokens, step, rate_of, clip):
    """The model gets a word more than its context has."""

    def all_read(model, tokens):
        return mean_cost(model(tokens)[:, :-1], tokens)

    return stepped(model, optimizer, tokens, rate_of(step), clip, all_read)


@wrong("training_step")
def step_without_a_rate_of_zero(model, optimizer, tokens, step, rate_of, clip):
    rate = rate_of(step) or optimizer.param_groups[0]["lr"]
    return stepped(model, optimizer, tokens, rate, clip)


@wrong("training_step")
def step_of_two_groups(model, optimizer, tokens, step, rate_of, clip):
    return stepped(model, optimizer, tokens, rate_of(step), clip, groups=2)


@wrong("generate")
def a_window_of_one_grows(model, tokens, new, context, temperature=1.0, top_k=None):
    """window[:, 1 - context :] is all of it where the context is 1."""
    window = tokens[:, -context:]
    context = context if context > 1 else 1 + new
    after = written(model, window, new, context, temperature, top_k)
    return torch.cat([tokens, after[:, window.shape[1] :]], 1)


@wrong("generate")
def ten_best_at_most(model, tokens, new, context, temperature=1.0, top_k=None):
    return written(model, tokens, new, context, temperature, top_k and min(top_k, 10))
