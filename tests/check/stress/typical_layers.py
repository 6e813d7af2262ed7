"""Typical mistakes in a layer of multi-head attention."""

VIEW = "x.view(B, T, self.num_heads, self.head_dim).transpose(1, 2)"
JOIN = "context.transpose(1, 2).reshape(B, T, E)"
SCALE = "scores / self.head_dim**0.5"
SOFTMAX = "torch.softmax(scores, dim=-1)"
FILL = 'scores.masked_fill(~mask, float("-inf"))'
RETURN = "return self.out_proj(context), weights"
SUPER = "        super().__init__()\n"
Q, K, V = (
    f"{x}_proj({name})" for x, name in (("q", "query"), ("k", "key"), ("v", "value"))
)
LINEARS = """\
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)
"""
FORWARD = "def forward(self, query, key, value, mask=None):"
PART = "slice(h * self.head_dim, (h + 1) * self.head_dim)"
CAT = "torch.cat(heads, dim=-1)"
APPEND = "heads.append(weights @ v[:, :, part])"
RANGE = "range(self.num_heads)"

BATCHED = [
    # the heads
    (
        "view without transpose",
        VIEW,
        "x.view(B, self.num_heads, T, self.head_dim)",
        "split-by-view",
    ),
    (
        "reshape to B·H",
        VIEW,
        "x.reshape(B * self.num_heads, T, -1).view(B, self.num_heads, T, -1)",
        "split-by-view",
    ),
    (
        "transpose left out",
        VIEW,
        "x.view(B, T, self.num_heads, self.head_dim)",
        "split-axis-left | needs-equal-sizes",
    ),
    (
        "transpose(2, 3)",
        VIEW,
        VIEW.replace("1, 2", "2, 3"),
        "unknown | needs-equal-sizes",
    ),
    (
        "transpose(0, 1)",
        VIEW,
        VIEW.replace("1, 2", "0, 1"),
        "unknown | needs-equal-sizes",
    ),
    (
        "heads last",
        VIEW,
        "x.view(B, T, self.head_dim, self.num_heads).permute(0, 3, 1, 2)",
        "split-interleaved",
    ),
    ("heads reversed", VIEW, VIEW + ".flip(1)", "merge-reversed"),
    (
        "D and H exchanged",
        VIEW,
        VIEW.replace("self.num_heads, self.head_dim", "self.head_dim, self.num_heads"),
        "unknown",
    ),
    ("not cut", VIEW, "x[:, None]", "heads-ignored"),
    (
        "num_heads without self",
        VIEW,
        VIEW.replace("self.num_heads", "num_heads"),
        "line",
    ),
    (
        "T of the query",
        "        k = self.split(self.k_proj(key))\n",
        "        k = self.k_proj(key).view(B, T, self.num_heads, -1).transpose(1, 2)\n",
        "line | needs-equal-sizes",
    ),
    (
        "merged without transpose",
        JOIN,
        "context.reshape(B, T, E)",
        "merge-no-transpose",
    ),
    ("view for reshape", JOIN, JOIN.replace("reshape", "view"), "line"),
    (
        "merged by permute",
        JOIN,
        "context.permute(0, 2, 3, 1).reshape(B, T, E)",
        "merge-interleaved",
    ),
    (
        "mean of the heads",
        JOIN,
        "context.mean(1)",
        "line: return self.out_proj | merge-mean",
    ),
    (
        "sum of the heads",
        JOIN,
        "context.sum(1)",
        "line: return self.out_proj | merge-sum",
    ),
    (
        "first head",
        JOIN,
        "context[:, 0]",
        "line: return self.out_proj | merge-first-head",
    ),
    (
        "merged in reverse",
        JOIN,
        "context.flip(1).transpose(1, 2).reshape(B, T, E)",
        "merge-reversed",
    ),
    ("not merged", f"        context = {JOIN}\n", "", "line: return self.out_proj"),
    (
        "merged to (T, B, E)",
        JOIN,
        "context.permute(2, 0, 1, 3).reshape(T, B, E)",
        "unknown | layout-exchanged",
    ),
    # the scale, the softmax
    ("root of E", SCALE, "scores / self.embed_dim**0.5", "scale-embed-dim"),
    ("root of H", SCALE, "scores / self.num_heads**0.5", "scale-num-heads"),
    ("no scale", SCALE, "scores", "no-scale"),
    ("D**1/2", SCALE, "scores / self.head_dim**1/2", "unknown"),
    ("times the root", SCALE, "scores * self.head_dim**0.5", "scale-multiplied"),
    ("over heads", SOFTMAX, "torch.softmax(scores, dim=1)", "softmax-over-heads"),
    ("over queries", SOFTMAX, "torch.softmax(scores, dim=2)", "softmax-over-queries"),
    ("no softmax", SOFTMAX, "scores", "no-softmax"),
    ("k.T", "k.transpose(-2, -1)", "k.T", "line"),
    ("k not turned", "q @ k.transpose(-2, -1)", "q @ k", "line"),
    # which input, which matrix
    ("k of the query", K, "k_proj(query)", "k-from-query | needs-equal-sizes"),
    ("v of the key", V, "v_proj(key)", "v-from-key"),
    ("v of the query", V, "v_proj(query)", "v-from-query needs-equal-sizes"),
    ("q of the key", Q, "q_proj(key)", "q-from-key needs-equal-sizes"),
    ("W_k for q", Q, "k_proj(query)", "unknown"),
    ("W_k for v", V, "k_proj(value)", "wk-for-v"),
    ("W_q for k", K, "q_proj(key)", "wq-for-k"),
    ("k not projected", f"self.{K}", "key", "unknown"),
    ("v not projected", f"self.{V}", "value", "v-not-projected"),
    ("relu on q", f"self.{Q}", "torch.relu(self.q_proj(query))", "unknown"),
    ("no W_o", RETURN, "return context, weights", "no-output-projection"),
    (
        "W_o twice",
        RETURN,
        "return self.out_proj(self.out_proj(context)), weights",
        "output-projection-twice",
    ),
    ("residual", RETURN, "return query + self.out_proj(context), weights", "residual"),
    (
        "layer norm",
        RETURN,
        "return F.layer_norm(self.out_proj(context), (E,)), weights",
        "unknown",
    ),
    (
        "relu at the end",
        RETURN,
        "return torch.relu(self.out_proj(context)), weights",
        "unknown",
    ),
    ("swapped", RETURN, "return weights, self.out_proj(context)", "unknown"),
    ("nothing returned", RETURN, "self.out_proj(context)", "line: return"),
    (
        "dict returned",
        RETURN,
        'return {"out": self.out_proj(context), "w": weights}',
        "line: output",
    ),
    # the mask
    (
        "no axis for heads",
        "            mask = mask[:, None]\n",
        "",
        "batch-axis-as-heads | needs-equal-sizes",
    ),
    (
        "axis at the end",
        "mask[:, None]",
        "mask[..., None]",
        "line: masked_fill | needs-equal-sizes",
    ),
    (
        "axis in front",
        "mask[:, None]",
        "mask[None]",
        "batch-axis-as-heads | needs-equal-sizes",
    ),
    ("inverted", FILL, 'scores.masked_fill(mask, float("-inf"))', "mask-inverted"),
    ("thrown away", f"scores = {FILL}", FILL, "fill-thrown-away"),
    ("mask of sequence 0", "mask[:, None]", "mask[:1, None]", "mask-of-first-sequence"),
    ("mask of query 0", "mask[:, None]", "mask[:, None, :1]", "mask-of-first-query"),
    (
        "turned",
        "mask[:, None]",
        "mask[:, None].mT",
        "mask-transposed needs-equal-sizes",
    ),
    ("fill 0", FILL, "scores.masked_fill(~mask, 0.0)", "fill-zero"),
    # classes
    ("no super", SUPER, "", "line: super().__init__"),
    (
        "layers in a list",
        (LINEARS, f"self.{Q}", f"self.{K}", f"self.{V}", "self.out_proj("),
        (
            "        sizes = embed_dim, embed_dim\n"
            "        self.layers = [nn.Linear(*sizes) for _ in range(4)]\n",
            "self.layers[0](query)",
            "self.layers[1](key)",
            "self.layers[2](value)",
            "self.layers[3](",
        ),
        "line: nn.ModuleList([…])",
    ),
    ("a method that is not there", Q, "make_q(query)", "line"),
    ("new Linear each call", f"self.{Q}", "nn.Linear(E, E)(query)", "unknown"),
    (
        "new W_o each call",
        "self.out_proj(context)",
        "nn.Linear(E, E)(context)",
        "unknown",
    ),
    (
        "head_dim by /",
        "embed_dim // num_heads",
        "embed_dim / num_heads",
        "line: self.head_dim",
    ),
    (
        "head_dim upside down",
        "embed_dim // num_heads",
        "num_heads // embed_dim",
        "line: self.head_dim",
    ),
    ("foward", "def forward", "def foward", "line: forward"),
    ("__int__", "def __init__", "def __int__", "line: __init__"),
    (
        "no self",
        FORWARD,
        "def forward(query, key, value, mask=None):",
        "line: argument",
    ),
    (
        "one input",
        FORWARD,
        "def forward(self, x, mask=None):\n        query = key = value = x",
        "unknown | kv-from-query",
    ),
    (
        "Linear(D, D)",
        "self.q_proj = nn.Linear(embed_dim, embed_dim)",
        "self.q_proj = nn.Linear(embed_dim, embed_dim // num_heads)",
        "line: shape",
    ),
    (
        "dropout while evaluating",
        SOFTMAX,
        "F.dropout(torch.softmax(scores, dim=-1), 0.2)",
        "dropout-in-eval",
    ),
    (
        "forward is pass",
        FORWARD,
        FORWARD + "\n        pass\n\n    def rest(self, query, key, value, mask=None):",
        "line: is not finished",
    ),
    (
        "forward to do",
        FORWARD,
        FORWARD + "\n        raise NotImplementedError('TODO')",
        "line: TODO",
    ),
    (
        "forward returns the query",
        FORWARD,
        FORWARD + "\n        return query",
        "unknown",
    ),
    (
        "query at (T, B, E)",
        "        B, T, E = query.shape\n        q =",
        "        T, B, E = query.shape\n        q =",
        "unknown | layout-exchanged",
    ),
    (
        "attention(q, v, k)",
        "        scores = q @ k.transpose(-2, -1)\n",
        "        k, v = v, k\n        scores = q @ k.transpose(-2, -1)\n",
        "unknown",
    ),
]
LOOPED = [
    ("sum", CAT, "sum(heads)", "line: return self.out_proj | merge-sum"),
    (
        "mean",
        CAT,
        "torch.stack(heads).mean(0)",
        "line: return self.out_proj | merge-mean",
    ),
    ("stack for cat", CAT, "torch.stack(heads, dim=-1)", "line: return self.out_proj"),
    ("cat along T", CAT, "torch.cat(heads, dim=1)", "line: return self.out_proj"),
    ("cat along B", CAT, "torch.cat(heads)", "line: return self.out_proj"),
    ("cat of one", CAT, "heads[0]", "line: return self.out_proj | merge-first-head"),
    (
        "head 0 each time",
        CAT,
        "torch.cat([heads[0]] * self.num_heads, dim=-1)",
        "merge-first-head",
    ),
    ("reversed", CAT, "torch.cat(heads[::-1], dim=-1)", "merge-reversed"),
    ("h + D", PART, "slice(h, h + self.head_dim)", "unknown"),
    (
        "one feature short",
        PART,
        PART.replace("(h + 1) * self.head_dim", "(h + 1) * self.head_dim - 1"),
        "line: return self.out_proj",
    ),
    ("every H-th", PART, "slice(h, None, self.num_heads)", "split-interleaved"),
    ("first head each time", PART, "slice(0, self.head_dim)", "merge-first-head"),
    ("whole k", "k[:, :, part]", "k", "line: scores = q"),
    ("whole q, k, v", PART, "slice(None)", "line: return self.out_proj"),
    (
        "q for v",
        "weights @ v[:, :, part]",
        "weights @ q[:, :, part]",
        "line | kv-from-query v-from-query needs-equal-sizes",
    ),
    (
        "k for v",
        "weights @ v[:, :, part]",
        "weights @ k[:, :, part]",
        "v-from-key wk-for-v",
    ),
    ("one head less", RANGE, "range(self.num_heads - 1)", "line: return self.out_proj"),
    ("from 1", RANGE, "range(1, self.num_heads + 1)", "line"),
    ("num_heads not a range", RANGE, "self.num_heads", "line"),
    ("D heads", RANGE, "range(self.head_dim)", "weights-returned-wrong"),
    (
        "return in the loop",
        "            maps.append(weights)\n        context",
        "            maps.append(weights)\n            break\n        context",
        "line: return self.out_proj",
    ),
    (
        "lists made in the loop",
        "        heads, maps = [], []\n        for h in range(self.num_heads):\n",
        "        for h in range(self.num_heads):\n            heads, maps = [], []\n",
        "line: return self.out_proj",
    ),
    ("weights kept", APPEND, "heads.append(weights)", "line: return self.out_proj"),
    (
        "scores for weights",
        APPEND,
        "heads.append(scores @ v[:, :, part])",
        "no-softmax",
    ),
    (
        "nothing appended",
        APPEND,
        "heads + [weights @ v[:, :, part]]",
        "line: torch.cat",
    ),
    ("over queries", SOFTMAX, "torch.softmax(scores, dim=1)", "softmax-over-queries"),
    ("over the batch", SOFTMAX, "torch.softmax(scores, dim=0)", "softmax-over-batch"),
    ("root of E", SCALE, "scores / self.embed_dim**0.5", "scale-embed-dim"),
    ("root of H", SCALE, "scores / self.num_heads**0.5", "scale-num-heads"),
    ("mask thrown away", f"scores = {FILL}", FILL, "fill-thrown-away"),
    (
        "mask per head",
        FILL,
        'scores.masked_fill(~mask[h], float("-inf"))',
        "unknown | batch-axis-as-heads",
    ),
    ("k not turned", "k[:, :, part].transpose(1, 2)", "k[:, :, part]", "line"),
    (
        "only the last map",
        "torch.stack(maps, dim=1)",
        "weights",
        "weights-returned-wrong",
    ),
    (
        "maps along B",
        "torch.stack(maps, dim=1)",
        "torch.stack(maps)",
        "weights-returned-wrong",
    ),
]
ROWS = {"batched": BATCHED, "looped": LOOPED}
