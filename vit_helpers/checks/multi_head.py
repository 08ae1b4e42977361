"""The exercise of notebook 03 that builds multi-head attention as a module, in whatever layers."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations

import torch
from torch import Tensor, nn

from vit_helpers.attention import MultiHeadAttention
from vit_helpers.checks.attention_mistakes import OUTPUTS, WEIGHTS, weigh
from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.modules import ModuleExercise, Reading
from vit_helpers.checks.engine.report import (
    Function,
    Mistake,
    first_line,
    reject_if,
    variants,
)
from vit_helpers.checks.engine.traces import ask

# Reading a module: its layers, whatever they are called


def layers(module: nn.Module) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield weight and bias of every linear layer, in order of creation.

    `nn.MultiheadAttention` stores three in one.
    """
    for part in module.modules():
        own = dict(part.named_parameters(recurse=False))
        weight = own.get("in_proj_weight", own.get("weight"))
        if weight is not None and weight.ndim == 2:
            yield weight, own.get("in_proj_bias", own.get("bias"))


def merged(module: nn.Module, dim: int, heads: int) -> list[tuple[Tensor, Tensor | None]]:
    """Return the layers; one output projection instead of one for each head, added up.

    Those of the heads are (D, d) with one bias of D numbers, which may be a parameter of its own.
    """
    linears = list(layers(module))
    own = [pair for pair in linears if pair[0].shape == (dim, dim // heads)]
    loose = [p for part in module.modules() for p in part.parameters(recurse=False)]
    in_layers = [tensor for pair in linears for tensor in pair]
    loose = [p for p in loose if p.numel() == dim and all(p is not other for other in in_layers)]
    if heads == 1:  # the projection looks like the other layers, but has no bias
        own = [pair for pair in own if pair[1] is None]
    biases = [b for _, b in own if b is not None] + loose
    if len(own) != heads or len(biases) != 1:
        return linears
    rest = [pair for pair in linears if all(pair is not other for other in own)]
    return [*rest, (torch.cat([weight for weight, _ in own], dim=1), biases[0].flatten())]


def readings(module: nn.Module, dim: int, heads: int) -> Iterator[Reading]:
    """Yield every way to read the layers as queries, keys, values and output projection.

    It is w (3, h, d, D), b, and the projection's weight and bias.

    The equations give no order for the 3D rows, so any of the axes q/k/v, h and d may come first.
    """
    linears, sizes = merged(module, dim, heads), {"k": 3, "h": heads, "d": dim // heads}
    maps = [(weight, bias) for weight, bias in linears if bias is not None]
    if len(maps) < len(linears):
        return
    for i, (weight, bias) in enumerate(maps):
        rest = [pair for j, pair in enumerate(maps) if j != i]
        if weight.shape != (dim, dim) or sum(len(w) for w, _ in rest) != 3 * dim:
            continue
        if any(w.shape[1] != dim for w, _ in rest):
            continue
        w, b = (torch.cat(parts) for parts in zip(*rest, strict=True))
        for order in permutations("khd"):
            axes = [order.index(name) for name in "khd"]
            all_w, all_b = (rows.unflatten(0, [sizes[name] for name in order]) for rows in (w, b))
            for roles in permutations(range(3)):
                yield (
                    all_w.permute(*axes, 3)[list(roles)],
                    all_b.permute(axes)[list(roles)],
                    weight,
                    bias,
                )


# One pass, and its mistakes


def heads_of(x: Tensor, h: int) -> Tensor:
    """Split (B, T, D) into heads (B, h, T, d)."""
    return x.unflatten(-1, (h, -1)).transpose(-3, -2)


def viewed(values: Tensor) -> Tensor:
    """Merge (B, h, T, d) to (B, T, D) without swapping T and h."""
    return values.reshape(len(values), values.shape[2], -1)


def view_into_heads(q: Tensor) -> Tensor:
    """Return (B, h, T, d) as one view of (B, T, D) gives it."""
    return q.transpose(1, 2).reshape(q.shape)


def multi_head(
    x: Tensor,
    w: Tensor,
    b: Tensor,
    weight: Tensor,
    bias: Tensor,
    weights: Function = weigh,
    values: Function = lambda w, q, k, v: w @ v,
    split: Function = lambda q: q,
    join: Function = lambda values: values.transpose(1, 2).flatten(2),
    project: Function = lambda x, values, weight, bias: values @ weight.T + bias,
) -> Tensor:
    """Compute equations 5 to 8 in one line each.

    A mistake is another way to mix tokens, to split or join heads, or to project.
    """
    inputs = x if x.ndim == 4 else x.expand(3, *x.shape)  # those of q, k and v may differ
    q, k, v = map(split, torch.einsum("cbtD,chdD->cbhtd", inputs, w) + b[:, None, :, None])
    return project(x, join(values(weights(q, k, v), q, k, v)), weight, bias)


def over_queries(scores: Tensor) -> Tensor:
    return scores.softmax(-2)


SEEN_BEFORE = (  # what a check of modules sees in another way, or cannot tell from another mistake
    "first axis|whole matrix|hides later|keys are swapped|with values|keys with keys|returns "
    "v|plain mean|scores are not "
    "used|reshaped|own sum|transposed weights|averages the queries|each column sums to 1"
)
HEADS = variants(multi_head, {
    message: {part: wrong}
    for part, table in (("weights", WEIGHTS), ("values", OUTPUTS))
    for message, wrong in table.items() if not re.search(SEEN_BEFORE, message)
} | {
    "each column of the weights sums to 1, but each row should: the softmax is over the keys, "
    "dim=-1, and the output is weights @ v": {"weights": partial(weigh, soft=over_queries)},
    "divides by T, the number of tokens, instead of the square root of d":
        {"weights": partial(weigh, scale=lambda q: 1 / q.shape[-2])},
    "a token may not attend to itself, but in a ViT every token does":
        {"weights": lambda q, k, v: weigh(q, k, v, ~torch.eye(q.shape[-2], dtype=torch.bool))},
    "right for a single head only, because the width is never split into num_heads heads":
        {"split": lambda q: q.transpose(1, 2).flatten(2)[:, None]},
    "the heads are interleaved, but in equation 8 they are side by side: "
    "(B, T, h, d), then flatten(2)":
        {"join": lambda values: values.permute(0, 2, 3, 1).flatten(2)},
    "a single view splits (B, T, D) into heads, which mixes the tokens: "
    "first (B, T, h, d), then swap T and h": {"split": view_into_heads},
    "a single view merges (B, h, T, d), which mixes the tokens: swap T and h back first":
        {"join": viewed},
    "single views split into heads and merge them, which mixes the tokens: swap T and h in between":
        {"split": view_into_heads, "join": viewed},
    "the heads are concatenated in reverse order":
        {"join": lambda values: values.flip(1).transpose(1, 2).flatten(2)},
    "the output projection is never applied": {"project": lambda x, values, weight, bias: values},
    "the output projection's bias is never added":
        {"project": lambda x, values, weight, bias: values @ weight.T},
    "adds its input, but the residual connection belongs to the block of notebook 04":
        {"project": lambda x, values, weight, bias: values @ weight.T + bias + x},
})  # fmt: skip


D_HEADS = {  # a block has another message for a wrong number of heads
    "h and d are swapped: there are num_heads heads, each of width d = D / h": partial(
        multi_head,
        split=lambda q: q.transpose(1, 2).flatten(2).unflatten(2, (-1, q.shape[1])).transpose(1, 2),
    )
}


# Ideas

# parts of errors for (B, T, D) = (2, 5, 12) and h = 3 heads of width d = 4, and what they tell
ERRORS = {
    "(6x20 and 12x12)":
        "The projection gets (B, h, T * d) and not (B, T, h * d). T and h have to be swapped "
        "twice: before attention, and again after it",
    "(30x4 and 12x12)":
        "The projection gets (B, h * T, d) and not (B, T, h * d). Concatenate the heads along the "
        "last axis, dim=-1",
    "[6, 2] but got: [6, 1]":
        "q, k and v have different numbers of tokens. Cut them along the last axis, dim=-1",
    "(10x15 and 12x12)":
        "The projection gets (B, T, h * T): are these the attention weights and not the values?",
    "[6, 4] but got: [6, 5]":
        "q (B, h, T, d) is multiplied by (B, h, T, d). Swap the last two axes of k: "
        "k.transpose(-2, -1)",
    "tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1":
        "Axis 1 holds 3 heads in one tensor, 5 tokens in the other. With heads, the axes of k to "
        "swap are the last two: k.transpose(-2, -1)",
    "(expected 3, got 2)":
        "There are as many parts as images. Cut q, k and v along the last axis, dim=-1",
    "(expected 3, got 1)": "Cut q, k and v along the last axis, dim=-1",
    "embedding dimension of 12": "The last axis has to stay D: swap only B and T, transpose(0, 1)",
    "shape '[2, 6, 4]' is invalid for input of size 120":
        "In nn.MultiheadAttention queries, keys and values need the same order of B and T",
    "unexpected keyword argument 'batch_first'":
        "batch_first is an argument of nn.MultiheadAttention(...) itself, in __init__",
}  # fmt: skip


def shapes(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a module gives tensors of the right shape.

    Errors that tell what went wrong are explained.
    """
    (sizes, shape), *_ = exercise.cases
    try:
        got = ask(*modules.made(answer, sizes, shape))
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        known = (hint for fragment, hint in ERRORS.items() if fragment in str(error))
        if hint := next(known, ""):
            error_in_words = f"raises {type(error).__name__}: {first_line(error)}"
            raise Mistake(f"{error_in_words.removesuffix('.')}. {hint}") from error
        raise
    B, T, D = shape
    reject_if(
        isinstance(got, Tensor) and got.shape == (T, B, D),
        f"gives shape {(T, B, D)} for (B, T, D) = {shape}: B and T are swapped once. If they are "
        "before attention, they have to be again after it",
    )
    modules.shapes(exercise, answer)


def known_or(
    message: str, exercise: ModuleExercise, answer: Function, module: nn.Module, x: Tensor
) -> None:
    """Raise Mistake with the message of a known mistake for (12, 3), or with this one."""
    if any(True for _ in exercise.readings(module, 12, 3)):
        modules.reading_of(replace(exercise, unknown=message), answer, module, x, (12, 3))
    raise Mistake(message)


def tokens_meet(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless every token attends to every other one.

    The layer must be permutation-equivariant. A known mistake has a message of its own.
    """
    module, x = modules.made(answer, (12, 3), (2, 7, 12))
    order = torch.randperm(7)

    def misses(token: int, changed: int) -> bool:
        other = x.clone()
        other[:, changed] += 3 * torch.randn(12)
        return same(before[:, token], modules.output(module, other)[:, token], atol=1e-7)

    with torch.no_grad():
        before, moved = modules.output(module.eval(), x), modules.output(module, x[:, order])
        missing = misses(0, 6), misses(6, 0)
    never = (
        "the tokens exchange nothing: "
        "changing token 6 does not change the output of token 0. Is the axis right?"
    )
    if missing == (True, True):
        known_or(never, exercise, answer, module, x)
    every = "In a ViT every token attends to every other one"
    reject_if(
        missing[0],
        f"a token attends only to earlier tokens and itself. Is there a causal mask? {every}",
    )
    reject_if(
        missing[1], f"a token attends only to later tokens and itself. Is there a mask? {every}"
    )
    if not same(before[:, order], moved):
        torn = "depends on the order of the tokens: reordering them should only reorder the outputs"
        known_or(torn, exercise, answer, module, x)


def whole_tokens(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake if a layer reads only the slice of one head."""
    module, _ = modules.made(answer, (16, 4), (2, 5, 16))
    sliced = any(w.shape in ((4, 4), (3 * 4, 4)) for w, _ in layers(module))  # (16, 4): an output
    reject_if(
        sliced,
        "a layer reads only d of the D components, but in the paper every head reads the whole "
        "token, and the output projection reads all heads",
    )


FOUR = "the four D x D layers (queries, keys, values, output projection)"
MULTI_HEAD_STRUCTURES: dict[str, Function] = {
    f"one of {FOUR} is missing": modules.squares(3, 3),
    f"one of {FOUR} is missing, and so are the biases": modules.squares(3, 0),
    f"two of {FOUR} are missing": modules.squares(2, 2),
    "every head has queries, keys and values of the whole width D, "
    "but they should have d = D / h numbers":
        lambda D, h: [D * D, D] * 3 * h + [h * D * D, D],
    "every head has queries, keys and values of the whole width D, "
    "but they should have d = D / h numbers, side by side and not added up":
        lambda D, h: [D * D, D] * 3 * h + [D * D, D],
    "the biases are missing": modules.squares(4, 0),
    "queries, keys and values have no bias": modules.squares(4, 1),
    "the output projection has no bias": modules.squares(4, 3),
    "only one of four D x D layers is registered; "
    "layers in a plain list are not, so use nn.ModuleList":
        modules.squares(1, 1),
    "that is one D x D layer too many": modules.squares(5, 5),
    "that is one LayerNorm too many: it belongs to the block of notebook 04":
        modules.squares(4, 6),
}  # fmt: skip
MULTI_HEAD = ModuleExercise(
    name="multi_head",
    module=MultiHeadAttention,
    function=multi_head,
    readings=readings,
    ideas={
        "(B, T, D) in, (B, T, D) out": [shapes],
        "heads that read the whole token, and as many parameters as four D x D layers": [
            whole_tokens,
            modules.parameters,
        ],
        "images in a batch don't mix, in training and evaluation mode": [modules.apart],
        "every token attends to every token, whatever their order": [tokens_meet],
        "4 D^2 + 4 D parameters, and the numbers of equations 5 to 8": [
            modules.parameters,
            modules.numbers,
        ],
        "any number of heads and tokens, in float64 too": [modules.other_sizes],
        "gradients flow to the tokens and to every parameter": [modules.every_gradient],
    },
    mistakes=HEADS | D_HEADS,
    structures=MULTI_HEAD_STRUCTURES,
    cases=[
        ((12, 3), (2, 5, 12)),
        ((8, 2), (1, 1, 8)),
        ((6, 1), (3, 4, 6)),
        ((5, 5), (2, 7, 5)),
        ((16, 4), (4, 4, 16)),
        ((24, 6), (2, 17, 24)),
    ],
    count="4 D^2 + 4 D",
    advice="count the weights and biases of q, k, v and the projection",
    unknown=(
        "shapes and parameters are right, but the numbers are not: "
        "softmax(q k^T / sqrt(d)) v, then the projection"
    ),
)
