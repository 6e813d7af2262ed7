"""A pre-norm block: right, and the cases that tell it from what is wrong."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.check.digits import apart
from mha_lib.check.example import largest

__all__ = ["Block", "call", "draw", "words"]


class _Attention(nn.Module):
    """The attention of a reference; what is judged has one of its own."""

    def __init__(self, E: int, H: int) -> None:
        super().__init__()
        self.H, self.qkv, self.out = H, nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, query, key, value, mask=None):
        W, b = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        projected = map(F.linear, (query, key, value), W, b)
        q, k, v = (x.unflatten(-1, (self.H, -1)).transpose(1, 2) for x in projected)
        out = F.scaled_dot_product_attention(q, k, v, mask)
        return self.out(out.transpose(1, 2).flatten(2)), None


class Block(nn.Module):
    """x ← x + attention(norm1(x)); then x ← x + mlp(norm2(x)), with GELU.

    Args:
        embed_dim: E.
        num_heads: H.

    Example:
        >>> mask = torch.ones(5, 5, dtype=torch.bool).tril()
        >>> Block(6, 2)(torch.randn(3, 5, 6), mask).shape
        torch.Size([3, 5, 6])
    """

    Norm, Act, times = nn.LayerNorm, nn.GELU, 4

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        E = embed_dim
        self.norm1, self.norm2 = self.norms(E)
        self.attention = _Attention(E, num_heads)
        wide = self.times * E
        self.mlp = nn.Sequential(nn.Linear(E, wide), self.Act(), nn.Linear(wide, E))

    def norms(self, E: int) -> tuple[nn.Module, nn.Module]:
        """One for each part."""
        return self.Norm(E), self.Norm(E)

    def attend(self, x: Tensor, mask: Tensor | None, **raw: Tensor) -> Tensor:
        """What the attention makes of x; of ``raw`` where a role is given."""
        q, k, v = (raw.get(role, x) for role in ("query", "key", "value"))
        return self.attention(q, k, v, mask)[0]

    def first(self, x: Tensor, mask: Tensor) -> Tensor:
        """The sum with the attention, x + attention(norm1(x))."""
        return x + self.attend(self.norm1(x), mask)

    def second(self, x: Tensor) -> Tensor:
        """The sum with the mlp, x + mlp(norm2(x))."""
        return x + self.mlp(self.norm2(x))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, E) → (B, T, E)."""
        return self.second(self.first(x, mask))


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: with the attention of the submission, and with one that is put there."""

    def case(
        own: bool,
        scale: float = 1.0,
        triangle: bool = False,
        asked: str = "",
        far: int = 0,
        many: int = 0,
        **alone: int,
    ) -> dict:
        B, T, H, D = torch.randint(2, 6, (4,), generator=generator).tolist()
        B, T, E = B + many, T + 4 + many + far, H * (D + 2)  # T > B
        B, T = alone.get("B", B), alone.get("T", T)
        some = torch.rand(T, T, generator=generator) < 0.5
        own_place = torch.eye(T, dtype=torch.bool)
        mask = some & ~own_place.roll(-1, 1) | own_place  # each row hides something
        mask[0, 1:], mask[-1, 0] = False, True  # never alike when turned
        mask = torch.ones(T, T, dtype=torch.bool).tril() if triangle else mask
        x = scale * (torch.randn(B, T, E, generator=generator) + 0.5)
        seed = int(torch.randint(1 << 30, (), generator=generator))
        given = {"x": x, "mask": mask, "H": H, "own": own, "seed": seed}
        return {**given, "asked": asked}

    return {
        "twice the same, in training": case(False, asked="twice"),
        "an attention of ours": case(False),
        "a causal mask": case(False, triangle=True, many=6),
        "tiny numbers": case(False, scale=3e-3),
        "large numbers": case(False, scale=20.0),
        "its own attention": case(True),
        "long texts": case(True, far=256, many=4),
        "another call before": case(False, asked="again"),
        "as who writes": case(False, asked="writing"),
        "its gradients": case(False, asked="gradients"),
        "its heads": case(True, asked="heads"),
        "one text": case(False, B=1),
        "one token": case(False, T=1),
        "float64": case(True, asked="double"),
    }


def call(Block, x, mask, H, own, seed, asked):
    """Numbers of ours in its parts, whatever order they were made in.

    Beside the output, ``asked`` are its gradients, its heads and whether their number
    matters, a second call, the output in evaluation mode, or that of float64, and
    whether it is of float64; or whether two calls in training are alike.
    """
    import zlib

    import torch

    class Ours(torch.nn.Module):  # it mixes all that it is given, and is no attention
        def forward(self, query, key, value, mask=None):
            seen = 1.0 if mask is None else mask.float()
            fit = torch.tanh(query) @ torch.tanh(key).mT / query.shape[-1]
            return ((0.3 + fit) * seen) @ value, None

    block = Block(x.shape[-1], H)
    parts = ("norm1", "attention", "norm2", "mlp")
    made = [k for k, part in vars(block)["_modules"].items() if part is not None]
    if lacking := [name for name in parts if name not in made]:
        raise AttributeError(
            f"the parts {', '.join(parts)} are required; yours has "
            f"{', '.join(made) or 'none'}, and no {' and no '.join(lacking)}"
        )
    inside = {id(x) for name in parts for x in getattr(block, name).parameters()}
    beside = [n for n, x in block.named_parameters() if id(x) not in inside]
    if beside:
        raise ValueError(
            "all that a block learns has to be in norm1, attention, norm2 and mlp; "
            f"yours learns {', '.join(beside)}, too"
        )

    def answer(block, x, mask=mask):
        output = block(x, mask)
        if not isinstance(output, torch.Tensor):
            kind = type(output).__name__
            raise TypeError(f"block(x, mask) has to return one tensor; got a {kind}")
        return output

    if not own:
        block.attention = Ours()
    generator = torch.Generator()
    for part in ("norm1", "norm2", "mlp"):
        count = {}
        for name, numbers in getattr(block, part).named_parameters():
            last = name.rpartition(".")[2]
            count[last] = count.get(last, 0) + 1
            key = f"{seed} {part} {last} {count[last]}"
            generator.manual_seed(zlib.crc32(key.encode()))
            drawn = torch.randn(numbers.shape, generator=generator)
            numbers.data = 0.3 * drawn + (last == "weight") * (numbers.dim() == 1)
    for numbers in block.attention.parameters():  # alike, however it keeps them
        numbers.data = torch.full_like(numbers, 0.05 * (numbers.dim() > 1))
    if asked == "again":
        block(x.flip(0), mask.flip(0, 1))
    if asked == "twice":
        copies = ((x.clone(), mask.clone()) for _ in "ab")  # who changes them is told
        one, other = (answer(block.train(), *both).nan_to_num() for both in copies)
        return torch.tensor([float(torch.equal(one, other))])
    if asked == "writing":
        with torch.no_grad():
            return answer(block.eval(), x)
    if asked == "double":
        output = answer(block.double().eval(), x.double())
        same = torch.tensor([float(output.dtype == torch.float64)])
        return torch.cat([same, output.flatten()])
    if asked == "heads":  # as many as the map that its attention returns has, if any
        heads = []

        def look(part, given, returned):
            if isinstance(returned, tuple) and getattr(returned[-1], "ndim", 0) == 4:
                heads[-1] = float(returned[-1].shape[1])

        for wanted in (H, H + 1):  # two blocks, one with a head more
            heads.append(float(wanted))
            block = Block(6 * wanted, wanted)
            block.attention.register_forward_hook(look)
            block(x[..., :1].repeat(1, 1, 6 * wanted), mask)
        cut = [Block(12, number).eval() for number in (2, 3)]  # with the same numbers
        pairs = list(zip(*(part.parameters() for part in cut)))
        generator.manual_seed(seed)
        for one, other in pairs:  # who keeps a matrix a head has other shapes
            one.data = torch.randn(one.shape, generator=generator)
            other.data = one.data.clone() if one.shape == other.shape else other.data
        wide = torch.randn(*x.shape[:2], 12, generator=generator)
        one, other = (answer(part, wide.clone()) for part in cut)
        return torch.tensor([*heads, float(not torch.equal(one, other))])
    if asked != "gradients":
        return answer(block, x)
    x.requires_grad_()
    answer(block, x).square().sum().backward()
    given = [x]
    for norm in (block.norm1, block.norm2):  # in whatever order they were made
        given += [
            y for _, y in sorted(norm.named_parameters(), key=lambda pair: pair[0])
        ]
    slopes = [torch.zeros_like(y) if y.grad is None else y.grad for y in given]
    learned = [y.grad.norm() for y in block.mlp.parameters() if y.grad is not None]
    slopes += [torch.tensor([len(learned), *sorted(learned)])]
    return torch.cat([y.flatten() for y in slopes])


def words(yours: Tensor, right: Tensor, inputs: dict) -> str:
    """Which number of which token is wrong, or whose gradient, or which heads."""
    x, asked = inputs["x"], inputs["asked"]
    if asked == "twice":
        return (
            "In training two calls with the same x return other numbers: is there a "
            "dropout? Nothing is to be dropped."
        )
    if asked == "double":
        if not yours[0]:
            return "A block of float64 has to answer float64 with float64; it does not."
        yours, right = (numbers[1:].view(x.shape) for numbers in (yours, right))
    if asked == "heads":
        for has, due in zip(yours[:2].int().tolist(), right[:2].int().tolist()):
            if has != due:
                return f"A block made for {due} heads has {has}."
        return "The number of heads makes no difference to what the block returns."
    if asked == "gradients":
        (place,) = largest(yours - right)
        E = x.shape[-1]
        parts = {"x": x.numel()}
        parts |= {f"norm{n}.{k}": E for n in (1, 2) for k in ("bias", "weight")}
        for name, size in parts.items():
            if place < size:
                got, due = apart(yours[place], right[place], 3)
                return f"A number of the gradient of {name} is {got}; {due} is right."
            place -= size
        norms = sum(parts.values()) + 1  # after how many there are
        return (
            f"The gradients of the mlp have the norms {_listed(yours[norms:])}; "
            f"{_listed(right[norms:])} are right."
        )
    b, t, e = largest(yours - right)
    got, due = apart(yours[b, t, e], right[b, t, e], 3)
    return (
        f"Feature {e} of token {t} in sequence {b} is {got} behind the block; {due} is "
        "right."
    )


def _listed(numbers: Tensor) -> str:
    return ", ".join(f"{x:.3f}" for x in numbers.tolist())
