"""Answers to the exercises of notebook 12."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from check_cases import Program, having, module, zeros
from vit_helpers.modern import LayerScale
from vit_helpers.modern import rotary_angles as package_angles
from vit_helpers.modern import rotate as package_rotate

# layer_scale


def gamma(start=1e-5):
    return having(gamma=lambda D: nn.Parameter(start * torch.ones(D)))


def scale(init, forward=lambda self, x: x * self.gamma):
    return module(init, forward)


LAYER_SCALE_RIGHT = [
    scale(gamma()),
    scale(having(gamma=lambda D: nn.Parameter(torch.full((1, 1, D), 1e-5)))),
    partial(LayerScale, init_values=1e-5),
    scale(gamma(), lambda self, x: torch.einsum("btd,d->btd", x, self.gamma)),
]
LAYER_SCALE_WRONG = {
    "the residual connection belongs to the block": scale(
        gamma(), lambda self, x: torch.addcmul(x, x, self.gamma)
    ),
    "adds the weights, but they should multiply": scale(
        gamma(), lambda self, x: self.gamma[None, None] + x
    ),
    "divides by the weights, but they should multiply": scale(
        gamma(), lambda self, x: torch.div(x, self.gamma)
    ),
    "multiplies by the same number for all D": scale(
        gamma(), lambda self, x: x * torch.mean(self.gamma, dim=0, keepdim=True)
    ),
    "one weight for all, but each": scale(having(gamma=lambda D: nn.Parameter(torch.tensor(1e-5)))),
    "a matrix mixes the D numbers": scale(
        having(gamma=lambda D: zeros(D, D)), lambda self, x: torch.matmul(x, self.gamma)
    ),
    "there is a bias too": scale(
        having(gamma=lambda D: zeros(D), b=lambda D: zeros(D)),
        lambda self, x: self.gamma * x + self.b,
    ),
    "the weights start at 1, where": scale(gamma(1.0)),
    "the weights start at 0, where": scale(having(gamma=lambda D: zeros(D))),
    "the weights start at random": scale(having(gamma=lambda D: nn.Parameter(torch.randn(D)))),
    "the weights start at 0.1, but": scale(gamma(0.1)),
    "neither a plain tensor nor": scale(having(gamma=lambda D: torch.full((D,), 1e-5))),
    "the product of a number and": scale(
        having(gamma=lambda D: 1e-5 * nn.Parameter(torch.ones(D)))
    ),
    "the result is almost 0": scale(gamma(), lambda self, x: x * 1e-5),
    "a linear layer mixes": scale(
        having(layer=lambda D: nn.Linear(D, D)), lambda self, x: self.layer(x)
    ),
    "each of the D numbers has one": scale(
        having(gamma=lambda D: zeros(D + 1)), lambda self, x: self.gamma[1:] * x
    ),
    "is a fixed number in your code": scale(
        having(gamma=lambda D: nn.Parameter(torch.full((6,), 1e-5)))
    ),
}

# rotate


def by_complex(x, angles):
    """Pairs as complex numbers, which are multiplied by others of length 1."""
    prefix, patches = x.split([x.shape[-2] - len(angles), len(angles)], dim=-2)
    a, b = patches.chunk(2, dim=-1)
    turned = torch.complex(a, b) * torch.polar(torch.ones_like(angles), angles).to(
        torch.complex(a, b)
    )
    return torch.cat([prefix, torch.cat([turned.real, turned.imag], dim=-1)], dim=-2)


def by_half(x, angles, both=None):
    """As transformers writes it: x cos + rotate_half(x) sin"""
    d, prefix = x.shape[-1], x.shape[-2] - angles.shape[0]
    both = angles.tile(1, 2) if both is None else both
    y = x[..., prefix:, :]
    half = torch.cat((-y[..., d // 2 :], y[..., : d // 2]), dim=-1)
    return torch.cat((x[..., :prefix, :], y * both.cos() + half * both.sin()), dim=-2)


TURN = Program("""
def answer(x, angles):
    N, T, d = len(angles), x.shape[-2], x.shape[-1]
    start = {{start: T - N}}
    before, rest = x[..., :start, :], x[..., start:, :]
    patches, after = rest[..., :N, :], rest[..., N:, :]
    cos, sin = {{waves: torch.cos(angles), torch.sin(angles)}}
    a, b = {{pairs: patches[..., : d // 2], patches[..., d // 2 :]}}
    a, b = {{turn: cos * a - sin * b, cos * b + sin * a}}
    patches = {{join: torch.cat((a, b), -1)}}
    return {{give: torch.cat((before, patches, after), -2)}}
""")
ROTATE_RIGHT = [
    TURN(),
    by_complex,
    by_half,
    lambda x, angles: package_rotate(x, angles.cos(), angles.sin()),
]
WOVEN = "torch.stack((a, b), -1).reshape(patches.shape)"
ROTATE_WRONG = {
    "not to its neighbor": TURN(
        pairs="patches.reshape(*patches.shape[:-1], -1, 2).unbind(-1)", join=WOVEN
    ),
    "they return in another order": TURN(join=WOVEN),
} | TURN.wrong("turn", {
    "turns the other way": "cos * a + sin * b, cos * b - sin * a",
    "both signs are plus": "cos * a + sin * b, sin * a + cos * b",
    "both signs are minus": "cos * a - sin * b, sin * a - cos * b",
    "the sines are missing": "cos * a, cos * b",
    "have changed places": "cos * b + sin * a, cos * a - sin * b",
    "the shape is right, but the numbers are not": "cos * b, sin * a",
}) | TURN.wrong("waves", {
    "sine and cosine are swapped": "torch.sin(angles), torch.cos(angles)",
    "treated as degrees": "torch.cos(angles * math.pi / 180), torch.sin(angles * math.pi / 180)",
    "nothing is turned": "torch.ones_like(angles), torch.zeros_like(angles)",
}) | TURN.wrong("start", {
    "turns the first tokens": "min(0, N)",
    "leaves one token before the patches": "1 if T > N else 0",
}) | TURN.wrong("give", {
    "tokens before the patches are missing": "patches",
    "have moved behind them": "torch.cat((patches, before), -2)",
    "have become 0": "torch.cat((torch.zeros_like(before), patches), -2)",
}) | {
    "computed from the turned first one": TURN(
        turn="cos * a - sin * b, cos * b + sin * (cos * a - sin * b)"
    ),
    "repeated for neighbors": lambda x, angles: by_half(x, angles, angles.repeat_interleave(2, 1)),
    "cut the last axis": TURN(pairs="patches.chunk(2, -2)"),
    "Turn the last len": lambda x, angles: (
        torch.cat((
            x[..., : x.shape[-1] // 2] * angles.cos() - x[..., x.shape[-1] // 2 :] * angles.sin(),
            x[..., : x.shape[-1] // 2] * angles.sin() + x[..., x.shape[-1] // 2 :] * angles.cos(),
        ), -1)
    ),
}  # fmt: skip

# rotary_angles

ANGLE = Program("""
def answer(grid, head_dim):
    rows, cols = grid
    i = torch.arange(head_dim // 4)
    frequencies = {{frequencies: 2 * math.pi * 100 ** (-4 * i / head_dim)}}
    y = {{y: [2 * (r + 0.5) / rows - 1 for r in range(rows)]}}
    x = {{x: [2 * (c + 0.5) / cols - 1 for c in range(cols)]}}
    places = {{places: [(a, b) for a in y for b in x]}}
    rows = [torch.cat([a * frequencies, b * frequencies]) for a, b in places]
    angles = torch.stack(rows)
    return {{give: angles}}
""")


def both(y, x):
    return ANGLE(y=f"[{y} for r in range(rows)]", x=f"[{x} for c in range(cols)]")


ANGLES_RIGHT = [
    ANGLE(),
    package_angles,
    ANGLE(give="angles.double()"),
    lambda grid, head_dim: package_angles(tuple(grid), head_dim, 100),
]
ANGLES_WRONG = ANGLE.wrong("frequencies", {
    "2 pi is missing": "100 ** (-4 * i / head_dim)",
    "pi instead of 2 pi": "math.pi * 100 ** (-4 * i / head_dim)",
    "theta is 10,000": "2 * math.pi * 10000 ** (-4 * i / head_dim)",
    "the frequencies rise": "2 * math.pi * 100 ** (4 * i / head_dim)",
    "the exponents are 2i/d": "2 * math.pi * 100 ** (-2 * i / head_dim)",
    "the exponents are i/d": "2 * math.pi * 100 ** (-i / head_dim)",
    "i begins at 1": "2 * math.pi * 100 ** (-4 * (i + 1) / head_dim)",
    "360 instead of 2 pi": "360 * 100 ** (-4 * i / head_dim)",
    "the last exponent is 1, but":
        "2 * math.pi * 100 ** (-i / max(1, head_dim // 4 - 1))",
}) | ANGLE.wrong("give", {
    "gives d angles a patch": "torch.cat([angles, angles], 1)",
    "not the class token": "torch.cat([torch.zeros(1, head_dim // 2), angles])",
    "flatten the grid": "angles.reshape(*grid, -1)",
    "row and column are swapped": "torch.cat(angles.chunk(2, 1)[::-1], 1)",
    "row and column alternate": "torch.stack(angles.chunk(2, 1), -1).reshape(len(angles), -1)",
    "adds up the angles of row and column": "sum(angles.chunk(2, 1)).repeat(1, 2)",
    "is learned, but": "nn.Parameter(angles)",
    "gives the wrong numbers": "angles + 1",
    "gives cosines": "torch.cos(angles)",
    "put them side by side": "sum(angles.chunk(2, 1))",
    "flatten the angles of row and column": "torch.stack(angles.chunk(2, 1), 1)",
    "the angles of the row are right": "torch.cat([angles.chunk(2, 1)[0]] * 2, 1)",
    "the angles of the column are right": "torch.cat([angles.chunk(2, 1)[1]] * 2, 1)",
}) | ANGLE.wrong("places", {
    "from top to bottom first": "[(a, b) for b in x for a in y]",
    "in the order of the patches, too": "[(b, a) for b in x for a in y]",
    "without rows": "[(2 * (n + 0.5) / (rows * cols) - 1,) * 2 for n in range(rows * cols)]",
}) | {
    "counts rows and columns 0, 1, 2": both("r", "c"),
    "half a patch inside": both("2 * r / max(1, rows - 1) - 1", "2 * c / max(1, cols - 1) - 1"),
    "places go from 0 to 1": both("(r + 0.5) / rows", "(c + 0.5) / cols"),
    "left or upper edge": both("2 * r / rows - 1", "2 * c / cols - 1"),
    "right or lower edge": both("2 * (r + 1) / rows - 1", "2 * (c + 1) / cols - 1"),
    "places go from 0 to 2": both("2 * (r + 0.5) / rows", "2 * (c + 0.5) / cols"),
    "places go from -1 to 0": both("(r + 0.5) / rows - 1", "(c + 0.5) / cols - 1"),
    "only 0.5 is divided": both("2 * r + 0.5 / rows - 1", "2 * c + 0.5 / cols - 1"),
    "divides by n - 1": both(
        "(2 * r + 1) / torch.tensor(rows - 1) - 1", "(2 * c + 1) / torch.tensor(cols - 1) - 1"
    ),
    "divided by the same number": both(
        "(2 * (r + 0.5) - rows) / max(grid)", "(2 * (c + 0.5) - cols) / max(grid)"
    ),
    "that is another grid's": both("2 * (r + 0.5) / cols - 1", "2 * (c + 0.5) / rows - 1"),
}  # fmt: skip

# patch_mean

MEAN = Program("""
def answer(x, registers):
    B, T, D = x.shape
    first = {{first: registers + 1}}
    patches = {{patches: x[:, first:]}}
    return {{give: patches.sum(1) / patches.shape[1]}}
""")
PATCH_MEAN_RIGHT = [
    MEAN(),
    lambda x, r: torch.stack([image[r + 1 :].mean(0) for image in x]),
    lambda x, r: torch.einsum("btd->bd", x[:, r + 1 :]) / (x.shape[1] - r - 1),
]
PATCH_MEAN_WRONG = MEAN.wrong("first", {
    "registers leak into the mean": "1",
    "class token and registers leak": "0",
    "one register, or without registers": "registers",
    "the first patch is missing": "registers + 2",
    "four registers are left out": "5",
}) | MEAN.wrong("patches", {
    "the last patches are missing": "x[:, 1 : T - registers]",
    "that is the mean of the registers alone": "x[:, 1:first]",
    "leaves out the last R tokens and": "x[:, 1:-registers]",
    "leaves out the last R tokens, but": "x[:, :-registers]",
    "the last tokens are missing": "x[:, : T - registers]",
    "that is the class token": "x[:, :1]",
    "the class token leaks": "torch.cat([x[:, :1], x[:, first:]], 1)",
}) | MEAN.wrong("give", {
    "that is the sum": "patches.sum(1)",
    "the number of all tokens": "patches.sum(1) / T",
    "the registers are left out of the sum": "patches.sum(1) / (T - 1)",
    "the class token is left out of the sum": "patches.sum(1) / (T - registers)",
    "the shape is right, but": "patches.amax(1)",
    "the mean over images": "patches.reshape(-1, D).mean(0).repeat(B, 1)",
})  # fmt: skip

# attention_pool

POOL = Program("""
def answer(x, query, w_k, w_v):
    D = x.size(-1)
    scores = torch.einsum("btd,d->bt", {{keys: torch.matmul(x, w_k)}}, query)
    weights = {{weights: F.softmax(scores / math.sqrt(D), -1)}}
    values = {{values: torch.matmul(x, w_v)}}
    return {{give: torch.einsum("bt,btd->bd", weights, values)}}
""")


def fused(x, query, w_k, w_v):
    q = query.expand(len(x), 1, -1)
    return F.scaled_dot_product_attention(q, x @ w_k, x @ w_v)[:, 0]


POOL_RIGHT = [
    POOL(),
    fused,
    POOL(give="(weights.unsqueeze(1) @ values).squeeze(1)"),
]
POOL_WRONG = POOL.wrong("weights", {
    "the softmax runs over the images": "F.softmax(scores / math.sqrt(D), 0)",
    "the softmax is missing": "scores / math.sqrt(D)",
    "that is the plain mean": "0 * scores + 1 / scores.size(1)",
    "takes only the token": "F.one_hot(scores.argmax(1), scores.size(1)).to(x)",
    "not divided by the square root": "F.softmax(scores, -1)",
    "divided by D instead of": "F.softmax(scores / D, -1)",
    "multiplied by the square root": "F.softmax(scores * math.sqrt(D), -1)",
    "over all images at once": "F.softmax(scores.reshape(-1) / math.sqrt(D), 0).view(x.shape[:2])",
    "do not sum to 1": "(scores / math.sqrt(D)).exp()",
    "after the softmax": "F.softmax(scores, -1) / math.sqrt(D)",
    "of the number of tokens": "F.softmax(scores / math.sqrt(x.size(1)), -1)",
}) | POOL.wrong("keys", {
    "compared with the tokens themselves": "x",
    "w_k acts transposed": "F.linear(x, w_k)",
    "the keys are made by w_v": "torch.matmul(x, w_v)",
}) | POOL.wrong("values", {
    "averages the tokens themselves": "x * 1",
    "w_v acts transposed": "F.linear(x, w_v)",
    "the values are made by w_k": "torch.matmul(x, w_k)",
}) | POOL.wrong("give", {
    "adds the query to the result": 'torch.einsum("bt,btd->bd", weights, values) + query',
}) | {
    "keys and values are swapped": POOL(keys="x.matmul(w_v)", values="x.matmul(w_k)"),
    "self-attention and a mean": lambda x, query, w_k, w_v: (
        F.softmax(x @ (x @ w_k).mT / math.sqrt(x.size(2)), -1).mean(1, keepdim=True) @ (x @ w_v)
    ).squeeze(1),
    "averaged twice": POOL(give="(weights[:, :, None] * values).mean(1)"),
    "multiplied by w_k, too": lambda x, query, w_k, w_v: fused(x, query @ w_k, w_k, w_v),
    "multiplies by the transposed matrices": POOL(
        keys="F.linear(x, w_k)", values="F.linear(x, w_v)"
    ),
}  # fmt: skip

# gate_width

GATE_RIGHT = [
    lambda hidden: int(2 / 3 * hidden + 1e-6),
    lambda hidden: hidden - math.ceil(hidden / 3),
    lambda hidden: (hidden * 2) // 3,
]
GATE_WRONG = {
    "that is the MLP's own width": lambda hidden: 1 * hidden,
    "that is half": lambda hidden: int(hidden / 2),
    "that is three halves": lambda hidden: int(1.5 * hidden),
    "that is a third": lambda hidden: math.floor(hidden / 3),
    "rounded up": lambda hidden: math.ceil(2 * hidden / 3),
    "rounded to the nearest": lambda hidden: round(2 * hidden / 3),
    "a third is rounded down before": lambda hidden: math.floor(hidden / 3) * 2,
    "rounded down to a multiple of 8": lambda hidden: 8 * (hidden // 12),
    "three matrices of this width have": lambda hidden: 2 * hidden // 3 + 5,
}

RIGHT = {
    "layer_scale": LAYER_SCALE_RIGHT,
    "rotate": ROTATE_RIGHT,
    "rotary_angles": ANGLES_RIGHT,
    "patch_mean": PATCH_MEAN_RIGHT,
    "attention_pool": POOL_RIGHT,
    "gate_width": GATE_RIGHT,
}
WRONG = {
    "layer_scale": LAYER_SCALE_WRONG,
    "rotate": ROTATE_WRONG,
    "rotary_angles": ANGLES_WRONG,
    "patch_mean": PATCH_MEAN_WRONG,
    "attention_pool": POOL_WRONG,
    "gate_width": GATE_WRONG,
}
