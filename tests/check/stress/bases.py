"""Right answers as text, which the typical mistakes change in one place."""

ATTENTION = """\
def attention(q, k, v, mask=None):
    D = q.shape[-1]
    scores = q @ k.transpose(-2, -1)
    scores = scores / D**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    context = weights @ v
    return context, weights
"""
BATCHED = """\
class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def split(self, x):
        B, T, E = x.shape
        return x.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        B, T, E = query.shape
        q = self.split(self.q_proj(query))
        k = self.split(self.k_proj(key))
        v = self.split(self.v_proj(value))
        scores = q @ k.transpose(-2, -1)
        scores = scores / self.head_dim**0.5
        if mask is not None:
            mask = mask[:, None]
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        context = weights @ v
        context = context.transpose(1, 2).reshape(B, T, E)
        return self.out_proj(context), weights
"""
LOOPED = (
    BATCHED[: BATCHED.index("    def split")]
    + """\
    def forward(self, query, key, value, mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        heads, maps = [], []
        for h in range(self.num_heads):
            part = slice(h * self.head_dim, (h + 1) * self.head_dim)
            scores = q[:, :, part] @ k[:, :, part].transpose(1, 2)
            scores = scores / self.head_dim**0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            weights = torch.softmax(scores, dim=-1)
            heads.append(weights @ v[:, :, part])
            maps.append(weights)
        context = torch.cat(heads, dim=-1)
        return self.out_proj(context), torch.stack(maps, dim=1)
"""
)
SEQUENCE = (
    BATCHED[: BATCHED.index("    def split")]
    + """\
    def forward(self, query, key, value, mask=None):
        T, B, E = query.shape
        H, D = self.num_heads, self.head_dim
        q = self.q_proj(query).view(T, B, H, D)
        k = self.k_proj(key).view(-1, B, H, D)
        v = self.v_proj(value).view(-1, B, H, D)
        scores = torch.einsum("tbhd,sbhd->bhts", q, k)
        scores = scores / D**0.5
        if mask is not None:
            mask = mask.permute(2, 0, 1)[:, None]
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        context = torch.einsum("bhts,sbhd->tbhd", weights, v)
        return self.out_proj(context.reshape(T, B, E)), weights
"""
)
STYLE = """\
def split_concat(queries, keys, weights, num_heads, causality=False):
    T, S = queries.shape[1], keys.shape[1]
    q = torch.relu(F.linear(queries, weights["W_q"], weights["b_q"]))
    k = torch.relu(F.linear(keys, weights["W_k"], weights["b_k"]))
    v = torch.relu(F.linear(keys, weights["W_v"], weights["b_v"]))
    q = torch.cat(q.chunk(num_heads, dim=-1), dim=0)
    k = torch.cat(k.chunk(num_heads, dim=-1), dim=0)
    v = torch.cat(v.chunk(num_heads, dim=-1), dim=0)
    scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    padding = (keys != 0).any(dim=-1).repeat(num_heads, 1)[:, None, :]
    scores = scores.masked_fill(~padding, float("-inf"))
    if causality:
        causal = torch.ones(T, S, dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~causal, float("-inf"))
    maps = torch.softmax(scores, dim=-1)
    context = maps @ v
    context = torch.cat(context.chunk(num_heads, dim=0), dim=-1)
    return F.linear(context, weights["W_o"], weights["b_o"])
"""
SPLIT = """\
def split_heads(x, num_heads):
    B, T, E = x.shape
    D = E // num_heads
    x = x.view(B, T, num_heads, D)
    x = x.transpose(1, 2)
    return x
"""
MERGE = """\
def merge_heads(x):
    B, H, T, D = x.shape
    x = x.transpose(1, 2)
    x = x.reshape(B, T, H * D)
    return x
"""
CAUSAL = """\
def causal_mask(T, S):
    t = torch.arange(T)[:, None]
    s = torch.arange(S)[None, :]
    return s <= t
"""
PADDING = """\
def padding_mask(lengths, S):
    s = torch.arange(S)
    mask = s[None, :] < lengths[:, None]
    return mask[:, None, :]
"""
COMBINE = """\
def combine_masks(causal, padding):
    both = causal & padding
    return both
"""

BASES = {  # by the task, and what else the rows say
    "attention": ("attention", ATTENTION),
    "batched": ("mha", BATCHED),
    "looped": ("mha", LOOPED),
    "sequence": ("mha_sequence_first", SEQUENCE),
    "style": ("split_concat", STYLE),
    "split": ("split_heads", SPLIT),
    "merge": ("merge_heads", MERGE),
    "causal": ("causal_mask", CAUSAL),
    "padding": ("padding_mask", PADDING),
    "combine": ("combine_masks", COMBINE),
}
