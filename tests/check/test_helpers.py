"""An error in a function that theirs calls: who called it, and what came."""

from torch import nn

from mha_lib.check import check, diagnose


def split_heads(x, num_heads):
    B, T, E = x.shape
    return x.view(B, T, num_heads, E // num_heads).transpose(1, 2)


def merge_heads(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).reshape(B, T, H * D)


def attend(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


class Parted(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.H = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))


class Twice(Parted):
    def forward(self, query, key, value):
        q = split_heads(self.q_proj(query), self.H)
        k = split_heads(self.k_proj(key), self.H)
        v = split_heads(k, self.H)
        return self.out_proj(merge_heads(attend(q, k, v)))


class Three(Parted):
    def forward(self, query, key, value):
        made = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (split_heads(t, 3) for t in made)
        return self.out_proj(merge_heads(attend(q, k, v)))


class JoinedTwice(Parted):
    def forward(self, query, key, value):
        made = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        context = merge_heads(attend(*(split_heads(t, self.H) for t in made)))
        return self.out_proj(merge_heads(context))


class Unturned(Parted):
    def forward(self, query, key, value):
        made = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = (split_heads(t, self.H) for t in made)
        return self.out_proj(merge_heads(attend(q, k.mT, v)))


class TokensFirst(Parted):
    def forward(self, query, key, value):
        made = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        context = attend(*(split_heads(t, self.H) for t in made))
        B, T, H, D = context.shape
        return self.out_proj(context.transpose(1, 2).reshape(B, T, H * D))


class Narrow(Twice):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.q_proj = nn.Linear(embed_dim, embed_dim // num_heads)


def said(submission):
    return repr(check(submission, "mha", mask=False))


def test_what_is_split_already_is_not_unpacked_otherwise():
    words = said(Twice)
    assert "split_heads got a tensor of 4 axes, (B, H, S, D): it is split" in words
    assert ": v = split_heads(k, self.H). What it raised: ValueError" in words
    assert "takes the last two" not in words


def test_what_is_joined_already_is_told():
    words = said(JoinedTwice)
    assert "merge_heads got a tensor of 3 axes, (B, T, E): its heads are" in words
    assert ": return self.out_proj(merge_heads(context))." in words


def test_a_number_where_that_of_the_heads_belongs_is_told_with_its_line():
    words = said(Three)
    assert "Is 3 written where num_heads belongs? split_heads got x (" in words
    assert ": q, k, v = (split_heads(t, 3) for t in made)" in words
    assert "Look at this first" in words and "Next:" not in words


def test_any_helper_tells_what_came_and_who_called_it():
    words = said(Unturned)
    assert "attend got q (" in words and "is H" in words
    assert ": return self.out_proj(merge_heads(attend(q, k.mT, v)))" in words


def test_an_argument_that_is_bound_anew_is_not_told():
    def helper(x, n):
        x = x.sum(-1)
        return x @ x.new_ones(n, n, 1000)

    def attention(q, k, v):
        return helper(q, 2)

    assert "helper got n 2;" in diagnose(attention, "attention", mask=False).error


def test_tokens_joined_with_features_are_told_before_a_matrix_refuses_them():
    assert "the heads come before the tokens" in said(TokensFirst)


def test_a_matrix_of_another_shape_is_called_by_its_name_and_told_once():
    words = said(Narrow)
    assert "`q_proj.weight` must have the shape (E, E) = (" in words
    assert words.count("must have the shape") == 1
