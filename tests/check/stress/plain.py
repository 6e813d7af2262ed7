"""What is right, written without `mha_lib`, and how a witness compares.

A witness is a list of calls, each a dict of options for `given`. The program gets them
in turn, the last one (or what its option `sees` says) is compared with the reference.
"""

import copy
import inspect
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import nn

LAYERS = ("mha", "mha_sequence_first", "split_concat")


def attention(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = scores.softmax(-1)
    return weights @ v, weights


def split_heads(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(2)


def causal_mask(T, S):
    return torch.arange(S) <= torch.arange(T)[:, None]


def padding_mask(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None]


def combine_masks(causal, padding):
    return causal & padding


def projected(x, weights, name):
    return F.linear(x, weights[f"W_{name}"], weights[f"b_{name}"])


def mha(query, key, value, weights, num_heads, mask=None):
    q, k, v = (
        split_heads(projected(x, weights, name), num_heads)
        for x, name in ((query, "q"), (key, "k"), (value, "v"))
    )
    context, maps = attention(q, k, v, None if mask is None else mask[:, None])
    return projected(merge_heads(context), weights, "o"), maps


def mha_sequence_first(query, key, value, weights, num_heads, mask=None):
    swapped = (x.transpose(0, 1) for x in (query, key, value))
    mask = None if mask is None else mask.permute(2, 0, 1)
    output, maps = mha(*swapped, weights, num_heads, mask)
    return output.transpose(0, 1), maps


def split_concat(queries, keys, weights, num_heads, causality=False):
    q, k, v = (
        split_heads(projected(x, weights, name).relu(), num_heads)
        for x, name in ((queries, "q"), (keys, "k"), (keys, "v"))
    )
    mask = (keys != 0).any(-1)[:, None, None]
    if causality:
        mask = mask & causal_mask(q.shape[2], k.shape[2])
    return projected(merge_heads(attention(q, k, v, mask)[0]), weights, "o")


def weights_of(layer):
    """Those of four nn.Linear; of a list of four, in this order."""
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    linears = getattr(layer, "layers", None) or [getattr(layer, n) for n in names]
    return {
        f"{letter}_{part}": getattr(linear, kind)
        for part, linear in zip("qkvo", linears)
        for letter, kind in (("W", "weight"), ("b", "bias"))
    }


class Failed(Exception):
    """The program raised an error."""


class Layer(nn.Module):
    """Four nn.Linear; `forward` is what each program writes."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def heads(self, query, key, value):
        return [
            split_heads(project(x), self.num_heads)
            for project, x in (
                (self.q_proj, query),
                (self.k_proj, key),
                (self.v_proj, value),
            )
        ]

    def weights(self):
        return weights_of(self)

    def right(self, query, key, value, mask=None):
        return mha(query, key, value, self.weights(), self.num_heads, mask)


RIGHT = {
    f.__name__: f
    for f in (
        *(attention, split_heads, merge_heads, causal_mask, padding_mask),
        *(combine_masks, mha, mha_sequence_first, split_concat),
    )
}


def draw(*shape, seed=0, times=1.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return times * torch.randn(*shape, generator=generator, dtype=dtype)


def visible(shape, seed=9, share=0.6):
    """A random mask in which each row sees a key."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share
    mask[..., seed % shape[-1]] = True
    return mask


def given(task, **o):
    """The arguments of a call of ``task``: sizes and what else ``o`` says."""
    B, T, S, H, D = (o.get(n, d) for n, d in zip("BTSHD", (2, 4, 5, 3, 4)))
    seed, dtype = o.get("seed", 0), o.get("dtype", torch.float32)
    E = H * D
    numbers = {"times": o.get("times", 1.0), "dtype": dtype}
    if task == "attention":
        lead = o.get("lead", (B, H))
        q = draw(*lead, T, D, seed=seed, **numbers)
        k = draw(*lead, S, D, seed=seed + 1, **numbers)
        v = draw(*lead, S, o.get("V", D), seed=seed + 2, dtype=dtype)
        args = [q, k, v]
        if "mask" in o:
            args.append(_mask(o["mask"], (*lead, T, S), T, S))
    elif task == "split_heads":
        args = [draw(B, T, E, seed=seed, dtype=dtype), H]
        if o.get("strided"):
            args[0] = draw(E, T, B, seed=seed).permute(2, 1, 0)
    elif task == "merge_heads":
        args = [draw(B, H, T, D, seed=seed, dtype=dtype)]
        if o.get("strided"):
            args[0] = draw(B, T, H, D, seed=seed).transpose(1, 2)
    elif task == "causal_mask":
        args = [T, S]
    elif task == "padding_mask":
        args = [torch.tensor(o.get("lengths", (S, 2))), S]
    elif task == "combine_masks":
        causal = visible((T, S)) if o.get("random") else causal_mask(T, S)
        lengths = o.get("lengths", [S] + [2] * (B - 1))
        padding = padding_mask(torch.tensor(lengths), S)
        args = [causal, padding.flip(-1) if o.get("left") else padding]
    elif task == "split_concat":
        queries, keys = (draw(B, n, E, seed=seed + i) for i, n in enumerate((T, S)))
        for place in o.get("zeros", ()):
            keys[place] = 0
        for place in o.get("balanced", ()):
            keys[place] = torch.tensor([1.0, -1.0] * (E // 2))
        for place in o.get("blank", ()):
            queries[place] = 0
        if "tiny" in o:
            keys[o["tiny"]] *= 1e-6
        args = [queries, queries if o.get("same") else keys]
        if "causality" in o:
            args.append(o["causality"])
    else:
        args = [
            draw(B, n, E, seed=seed + i, **numbers) for i, n in enumerate((T, S, S))
        ]
        if o.get("same"):
            args = [args[0]] * 3
        if o.get("key_is_value"):
            args[2] = args[1]
        if task == "mha_sequence_first":
            twins = {id(x): x.transpose(0, 1).contiguous() for x in args}
            args = [twins[id(x)] for x in args]
        if "mask" in o:
            mask = _mask(o["mask"], (B, T, S), T, S)
            batch_last = task == "mha_sequence_first"
            args.append(mask.permute(1, 2, 0) if batch_last else mask)
    return args


def _mask(wanted, full, T, S):
    if wanted == "causal":
        return causal_mask(T, S).expand(full).clone()
    if wanted == "random":
        return visible(full)
    if wanted == "expanded":
        return visible((*full[:-2], 1, S)).expand(full)
    if wanted == "empty row":
        mask = visible(full)
        mask[..., 0, :] = False
        return mask
    return visible(wanted)  # its shape


class RightLayer(Layer):
    """What is right, as a class."""

    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, mask)


def is_layer(program):
    return inspect.isclass(program)


def weights_for(task, args, num_heads, seed=5):
    E = args[0].shape[-1]
    dtype = args[0].dtype
    return {
        name: draw(
            *((E, E) if name[0] == "W" else (E,)), seed=seed + i, dtype=dtype, times=0.5
        )
        for i, name in enumerate(f"{x}_{y}" for x in "Wb" for y in "qkvo")
    }


class Caller:
    """A program as its task calls it, and the reference with the same weights."""

    def __init__(self, program, task, first):
        self.program, self.task, self.H = program, task, first.get("H", 3)
        self.layer = None
        if is_layer(program):
            E = self.H * first.get("D", 4)
            torch.manual_seed(0)
            try:
                self.layer = program(E, self.H)
            except Exception as error:
                raise Failed from error
            self.layer.train(first.get("train", False))
            if "another" in first:
                program(*first["another"])
            if "dtype" in first:
                self.layer.to(first["dtype"])

    def reload(self, seed):
        """Other weights, as after a step of training."""
        with torch.no_grad():
            for i, p in enumerate(self.layer.parameters()):
                p.copy_(draw(*p.shape, seed=seed + i))

    def __call__(self, args, o):
        try:
            if self.layer is not None:
                return self.layer(*args)
            return self.program(*self._with_weights(args, o))
        except Exception as error:
            raise Failed from error

    def right(self, args, o):
        if self.task not in LAYERS:
            return RIGHT[self.task](*args)
        weights = None if self.layer is None else weights_of(self.layer)
        return RIGHT[self.task](*self._with_weights(args, o, weights))

    def _with_weights(self, args, o, weights=None):
        if self.task not in LAYERS:
            return args
        n = 2 if self.task == "split_concat" else 3
        H = o.get("H", 3)
        weights = weights or weights_for(self.task, args, H, o.get("weights", 5))
        return [*args[:n], weights, H, *args[n:]]


def wrong_on(program, task, calls):
    """Whether ``program`` is wrong on the last of ``calls``, as the witness says."""
    *earlier, (args, last) = [(given(task, **o), o) for o in calls]
    with torch.no_grad() if last.get("no_grad") else nullcontext():
        try:
            caller = Caller(program, task, calls[0])
            kept = None
            for args_before, o in earlier:
                kept = caller(args_before, o)
                if "reload" in o:
                    caller.reload(o["reload"])
            if last.get("sees") == "earlier result":
                return _overwritten(kept, lambda: caller(args, last))
            return SEES[last.get("sees", "answer")](caller, args, last)
        except Failed:
            return True  # where the task allows the call


def _overwritten(kept, call):
    """Whether a later call changes what an earlier one returned."""
    kept = kept[0] if isinstance(kept, tuple) else kept
    before = kept.clone()
    call()
    return not torch.equal(before, kept)


def answer(caller, args, o):
    """Another output, or other weights than the right ones."""
    got, right = caller(copy.deepcopy(args), o), caller.right(args, o)
    with_weights = caller.task == "attention" or caller.task in LAYERS
    both = got if isinstance(got, tuple) and with_weights else (got,)
    ours = right if isinstance(right, tuple) else (right,)
    rows = _rows(caller.task, args, ours)
    return any(_differ(a, b, rows) for a, b in zip(both, ours))


def _rows(task, args, ours):
    """Of the rows that see no key, each answer is right."""
    if len(ours) < 2:
        return None
    return ~ours[1].isnan().any(-1) if task == "attention" else None


def _differ(a, b, rows):
    if type(a) is not torch.Tensor or a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype == torch.bool:
        return not torch.equal(a, b)
    a, b = a.detach(), b.detach()
    if rows is not None:
        a, b = a[rows], b[rows]
    close = 1e-9 if a.dtype == torch.float64 else 1e-4
    return not torch.allclose(a, b, rtol=close, atol=close)


def gradient(caller, args, o):
    """Other gradients of the output or of the weights, by inputs and parameters."""

    def of(call):
        mine = [
            x.clone().requires_grad_(
                isinstance(x, torch.Tensor) and x.dtype.is_floating_point
            )
            if isinstance(x, torch.Tensor)
            else x
            for x in args
        ]
        got = call(mine, o)
        got = got if isinstance(got, tuple) else (got,)
        loss = sum((x * draw(*x.shape, seed=3)).sum() for x in got[: o.get("of", 1)])
        leaves = [x for x in mine if isinstance(x, torch.Tensor) and x.requires_grad]
        if caller.layer is not None:
            leaves += list(caller.layer.parameters())
        if not loss.requires_grad:
            return [None] * len(leaves)
        return torch.autograd.grad(loss, leaves, allow_unused=True)

    def close(a, b):
        a, b = (torch.zeros(()) if x is None else x for x in (a, b))
        return torch.allclose(a, b, rtol=1e-3, atol=1e-4)

    ours = of(caller.right)
    return not all(close(a, b) for a, b in zip(of(caller), ours))


def inputs(caller, args, o):
    """An argument that holds other numbers after the call, or has another shape."""
    before = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    caller(args, o)
    tensors = [(a, b) for a, b in zip(before, args) if isinstance(a, torch.Tensor)]
    return not all(a.shape == b.shape and torch.equal(a, b) for a, b in tensors)


def weights(caller, args, o):
    """No weights where the same program returns them elsewhere."""
    return caller(args, o)[1] is None


def parameters(caller, args, o):
    """Parameters that an optimiser would not find."""
    if caller.layer is None:
        return False
    E = args[0].shape[-1]
    return sum(p.numel() for p in caller.layer.parameters()) < 4 * E * E


SEES = {
    "answer": answer,
    "gradient": gradient,
    "inputs": inputs,
    "weights": weights,
    "parameters": parameters,
}
