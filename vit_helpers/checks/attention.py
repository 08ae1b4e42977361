"""The exercises of notebook 03; multi-head attention is in multi_head.py."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from vit_helpers.attention import attention
from vit_helpers.checks.attention_mistakes import MASKS, OUTPUTS, SCORES, WEIGHTS
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Contract, Exercise, Outcome, Wording
from vit_helpers.checks.engine.modules import ModuleExercise, made, output
from vit_helpers.checks.engine.report import Function, reject_if
from vit_helpers.checks.multi_head import MULTI_HEAD, heads_of

# Functions: attention and its mask


def weights(wrong: Function) -> Function:
    """Make a whole wrong answer from wrong weights."""
    return lambda q, k, v, *mask: ((w := wrong(q, k, v, *mask)) @ v, w)


def outputs(wrong: Function) -> Function:
    """Make a whole wrong answer from a wrong output, with the right weights."""
    return lambda q, k, v, *mask: (wrong(w := attention(q, k, v, *mask)[1], q, k, v), w)


def returned(wrong: Function) -> Function:
    """Make a whole wrong answer with the right output, and something else for the weights."""
    return lambda q, k, v, *mask: (attention(q, k, v, *mask)[0], wrong(q, k, v, *mask))


def qkv(
    *shape: int, when: str = "", mask: Callable[[], Tensor] | None = None, batch: bool = False
) -> Case:
    """Make queries, keys and values, and a mask if there is one.

    Their sizes differ, so that they cannot be confused.
    """
    when = when or f"for shape {shape}"
    hint = (
        f"right for one image, but {when} it {{error}}. "
        "Index the axes from the end, where T and d are: q.shape[-1], k.transpose(-2, -1)" * batch
    )

    def draw() -> Arguments:
        return *(size * torch.randn(shape) for size in (1.5, 1.2, 1.0)), *([mask()] if mask else [])

    return Case(draw, when, hint)


def odd_weights(
    got: Tensor, right: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor
) -> str | None:
    """Say what is odd about wrong weights under a mask."""
    if got.isnan().any():
        return "gives NaN: is a whole row minus infinity, or did you multiply 0 by infinity?"
    if right.shape[-1] != right.shape[-2] or not same(
        right.sum(-1), torch.ones_like(right[..., 0])
    ):
        return None
    leak = got.masked_select(~mask).abs().max() if not mask.all() else 0
    if leak > 1e-12:
        weight = f"a hidden token, False in the mask, still gets weight {leak:.2g}"
        return f"{weight}; a score of minus infinity would give 0"
    lost = right.masked_select((got == 0) & mask)
    if len(lost) and lost.max() > 1e-6:
        return f"a token that is not hidden gets weight 0 instead of {lost.max():.2g}"
    return None


def row_sums(got: Tensor, *args: Tensor) -> str:
    """Write the message about weights that no known mistake gives."""
    sums = same(got.sum(-1), torch.ones_like(got[..., 0]))
    return (
        "the rows sum to 1, but are not the softmax of q k^T / sqrt(d). Is d the last axis of q?"
        if sums
        else "the rows don't sum to 1"
    )


HINTS = {  # for errors with one image, T = 5 and d = 3, and for a batch
    "Dimension out of range":
        "One image has only the axes T and d. Count axes from the end: -2 and -1",
    "number of dimensions in the tensor input does not match":
        "One image has only the axes T and d. Count axes from the end: k.transpose(-2, -1)",
    "does not match the number of dimensions (2) for operand":
        "One image has only the axes T and d; with ... einsum takes any axes in front, as in "
        "'...td,...sd->...ts'",
    "not enough values to unpack (expected 3, got 2)":
        "One image has only the axes T and d; for any number of axes, q.shape[-1] is d",
    "shapes cannot be multiplied (5x3 and 5x3)":
        "Both are (T, d), but q k^T multiplies (T, d) by (d, T): k.transpose(-2, -1)",
    "shapes cannot be multiplied (5x3 and 5x5)":
        "(T, d) cannot be multiplied by (T, T): weights @ v, in this order",
    "must be a matrix": "torch.mm takes no axes in front; @ and torch.matmul do",
    "must be a 3D tensor": "torch.bmm takes three axes only; @ and torch.matmul take any number",
}  # fmt: skip
UNKNOWN = {
    "weights": row_sums,
    "output": "the weights are right, but the output isn't weights @ v",
}
ATTENTION = Exercise(
    name="attention",
    reference=attention,
    outcome=Outcome(returns=("output", "weights"), compared=("weights", "output")),
    wording=Wording(unknown=UNKNOWN, hints=HINTS),
    contract=Contract(
        batch=3,
        case=qkv(2, 5, 4),  # the root of 4 is exact: torch.sqrt(torch.tensor(d)) is welcome
    ),
    ideas={
        "one image: every row is a weighted average of the values": [
            qkv(5, 3, when="for one image, T = 5 and d = 3")
        ],
        "a batch: images don't mix": [
            qkv(4, 5, 3, when="for a batch of 4 images", batch=True),
            qkv(5, 5, 5, when="for a batch of 5 images, T = 5, d = 5", batch=True),
        ],
        "several heads at once": [
            qkv(2, 3, 5, 4, when="for 2 images with 3 heads, (B, h, T, d)", batch=True)
        ],
        "any number of tokens and any width, in float64 too": [
            qkv(*shape)
            for shape in ((1, 6), (7, 1), (3, 5), (1, 1, 1), (3, 2, 11, 5), (3, 2, 5, 4))
        ],
        "gradients flow to q, k and v": [expect_contract],
    },
    mistakes={message: weights(wrong) for message, wrong in WEIGHTS.items()}
    | {message: returned(wrong) for message, wrong in SCORES.items()}
    | {message: outputs(wrong) for message, wrong in OUTPUTS.items()},
)
check_attention = ATTENTION.check


def square_mask() -> Tensor:
    """Return a random mask with two True in every row.

    Transposing, shifting or negating would change it.
    """
    mask = torch.rand(5, 5) < 0.5
    mask[..., [0, 2]] = True
    mask[..., -1, -1] = mask[..., -2, -1] = False
    mask[..., -1, 1] = True
    return mask


def key_mask() -> Tensor:
    """Return a (B, 1, 1, T) mask for two images."""
    return torch.tensor([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1]], dtype=torch.bool)[:, None, None, :]


def causal_mask() -> Tensor:
    """Return a mask that hides later tokens."""
    return torch.ones(6, 6, dtype=torch.bool).tril()


def low_scores() -> Arguments:
    """Return queries that point away from all keys, and a mask that hides later tokens.

    The scores of query t are near -8 t, from -8 to -160: another number in place of minus infinity
    would be among the largest of some row.
    """
    k, v = torch.randn(2, 20, 4, dtype=torch.float64)
    q = -4.0 * torch.arange(1, 21, dtype=torch.float64)[:, None].expand(20, 4)
    return q, 1 + 0.1 * k, v, torch.ones(20, 20, dtype=torch.bool).tril()


def open_mask() -> Tensor:
    """Return a mask that hides nothing."""
    return torch.ones(5, 5, dtype=torch.bool)


MASK = Exercise(
    name="mask",
    reference=attention,
    outcome=Outcome(returns=("output", "weights"), compared=("weights", "output")),
    wording=Wording(odd=odd_weights, unknown=UNKNOWN, hints=HINTS),
    contract=Contract(batch=3, case=qkv(2, 5, 4, mask=square_mask)),
    ideas={
        "a hidden token gets weight 0, and the rows still sum to 1": [
            qkv(5, 3, mask=square_mask, when="for one image with a (T, T) mask"),
            Case(low_scores, "when all scores are below zero"),
        ],
        "row t of the mask belongs to query t": [
            qkv(6, 4, mask=causal_mask, when="for a causal mask")
        ],
        "masks for batches and heads broadcast": [
            qkv(2, 3, 5, 4, mask=key_mask, when="for 2 images, 3 heads and a (B, 1, 1, T) mask"),
            qkv(4, 5, 3, mask=square_mask, when="for a batch that shares one (T, T) mask"),
            qkv(3, 5, 4, mask=square_mask),
        ],
        "a mask that hides nothing changes nothing, in float64 too": [
            qkv(2, 5, 3, mask=open_mask, when="when the mask hides nothing")
        ],
        "gradients flow past the mask": [expect_contract],
    },
    mistakes={message: weights(wrong) for message, wrong in MASKS.items()}
    | {message: returned(wrong) for message, wrong in SCORES.items()}
    | {message: outputs(wrong) for message, wrong in OUTPUTS.items()},
)
check_mask = MASK.check


# Heads


def tokens(B: int, T: int, D: int, h: int) -> Case:
    return Case(lambda: (torch.randn(B, T, D), h))


ODD_SIZES = [(3, 1, 6, 2), (2, 7, 5, 1), (2, 3, 4, 4), (4, 4, 16, 4), (1, 17, 64, 8)]  # B, T, D, h
SPLIT_HEADS_MISTAKES: dict[str, Function] = {
    "a single view or reshape mixes tokens: head 1 contains whole tokens. Use "
    "(B, T, h, d), then swap T and h":
        lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1),
    "head 1 has every h-th component, but a head's d components are side by side: "
    "split the last axis into (h, d)":
        lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
    "the heads come in reverse order": lambda x, h: heads_of(x, h).flip(1),
    "every head contains the same slice":
        lambda x, h: heads_of(x, h)[:, :1].expand(-1, h, -1, -1),
    "the tokens come in reverse order": lambda x, h: heads_of(x, h).flip(2),
    "the heads still come after the tokens: swap T and h":
        lambda x, h: x.unflatten(-1, (h, -1)),
    "the heads come before the images, but the batch comes first: (B, h, T, d)":
        lambda x, h: heads_of(x, h).transpose(0, 1),
    "the last two axes are swapped: (B, h, T, d)": lambda x, h: heads_of(x, h).mT,
    "h and d are swapped: there are num_heads heads, each of width d = D / h":
        lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2),
    "images and heads are merged into one axis: keep (B, h, T, d)":
        lambda x, h: heads_of(x, h).flatten(0, 1),
    "every head has the whole width D, but it should have d = D / h of it":
        lambda x, h: x[:, None].expand(-1, h, -1, -1),
    "only one image of the batch was split": lambda x, h: heads_of(x[:1], h),
    "images and tokens are swapped, but T and h should be: transpose(1, 2)":
        lambda x, h: x.unflatten(-1, (h, -1)).transpose(0, 1),
    "the heads are one after another on the axis of the tokens, but need an axis of their own: "
    "torch.stack":
        lambda x, h: heads_of(x, h).flatten(1, 2),
    "the heads are on the last axis: (B, h, T, d)":
        lambda x, h: x.unflatten(-1, (h, -1)).transpose(2, 3),
    "the images are cut, not the tokens: chunk and split need dim=-1":
        lambda x, h: torch.stack(x.chunk(h), 1),
}  # fmt: skip
SPLIT_HEADS = Exercise(
    name="split_heads",
    reference=heads_of,
    wording=Wording(
        when=lambda x, h: f"for {tuple(x.shape)} and {h} heads",
        says="{message}",
        hints={"stack expects each tensor": "Cut the last axis into heads, dim=-1"},
        unknown=(
            "the shape is right, but the numbers are not: "
            "head i has the components (i-1)*d to i*d - 1 of each token"
        ),
    ),
    contract=Contract(case=tokens(2, 5, 12, 4)),
    ideas={
        "one image: a head has d components of every token": [tokens(1, 5, 12, 3)],
        "a batch, with other numbers of heads": [
            tokens(2, 5, 12, 3),
            tokens(4, 6, 16, 2),
            tokens(2, 12, 5, 5),
        ],
        "one token, one head, d = 1, equal axes, float64": [tokens(*sizes) for sizes in ODD_SIZES],
        "gradients flow back": [expect_contract],
    },
    mistakes=SPLIT_HEADS_MISTAKES,
)
check_split_heads = SPLIT_HEADS.check


# Modules


def axes_swapped(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake for two repairs of `nn.MultiheadAttention` that leave the axes as they were."""
    module, x = made(answer, *exercise.cases[0])
    attn = next((m for m in module.modules() if isinstance(m, nn.MultiheadAttention)), None)
    if attn is None:
        return

    def attend(tokens: Tensor) -> Tensor:
        mixed: Tensor = attn(tokens, tokens, tokens)[0]
        return mixed

    tokens_first = x.transpose(0, 1)
    with torch.no_grad():
        got = output(module.eval(), x)
        cut_anew = attend(x.reshape(tokens_first.shape)).reshape(x.shape)
        swapped_back = attend(tokens_first).transpose(0, 1)
    reject_if(
        not attn.batch_first and same(got, cut_anew),
        "a reshape to (T, B, D) cuts the same numbers anew, and swaps nothing: transpose(0, 1)",
    )
    reject_if(
        attn.batch_first and same(got, swapped_back),
        "B and T are swapped twice: take batch_first=True or transpose(0, 1), not both",
    )


APART = next(idea for idea in MULTI_HEAD.ideas if idea.startswith("images"))
FIX = replace(
    MULTI_HEAD,
    name="fix",
    ideas={
        idea: [axes_swapped, *trials] if idea == APART else trials
        for idea, trials in MULTI_HEAD.ideas.items()
        if not idea.startswith("heads that")
    },
)
check_multi_head, check_fix = MULTI_HEAD.check, FIX.check
