"""The exercises of notebook 11 that count multiply-adds: of one block, and of a larger image."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vit_helpers._validate import to_2tuple
from vit_helpers.checks.engine.exercise import Exercise, Outcome, Wording, cases
from vit_helpers.checks.engine.learning import as_number, rounding
from vit_helpers.checks.engine.report import Function, reject_if, short
from vit_helpers.scaling import multiply_adds, parameters, training_multiply_adds
from vit_helpers.vit import ViTConfig

# What the checks share

B16, S16, L16 = (ViTConfig.from_name(name) for name in ("B/16", "S/16", "L/16"))
SMALL = ViTConfig((24, 40), 4, 3, 10, 64, 2, 4)
AVERAGED = ViTConfig(32, 4, 1, 10, 96, 3, 3, mlp_ratio=2, class_token=False, pool="avg")
KEYS = {"'int' and 'str'": "sum() of a dictionary adds up its keys: use .values()"}


def unless_first(first: Sequence[Any], reference: Function, message: str) -> Function:
    """Make the message about a number that no known mistake gives.

    It is another one where the first case was right: if the number belongs to one of the first
    case's arguments, that one is fixed.
    first    : the arguments of the first case, or those before what is compared
    reference: (*args) -> the right number, or several
    """

    def unknown(got: float, right: float, *args: Any) -> str:
        args = args[: len(first)]
        if args == tuple(first):
            return message
        wanted = numbers_of(reference(*args))
        for i, value in enumerate(first):
            others = numbers_of(reference(*args[:i], value, *args[i + 1 :]))
            if value != args[i] and any(
                math.isclose(right, now, rel_tol=1e-9) and math.isclose(got, other, rel_tol=1e-4)
                for now, other in zip(wanted, others, strict=True)
            ):
                fixed = named(value) if isinstance(value, ViTConfig) else f"{value:,.15g}"
                return f"that is right for {fixed}, as in the first case: is it fixed in your code?"
        return "an earlier case was right: what is different in this one?"

    return unknown


def numbers_of(result: Any) -> list[float]:
    """Return one number or the values of several as a list."""
    return list(result.values()) if isinstance(result, Mapping) else [result]


def sides(config: ViTConfig, factor: int = 1) -> tuple[int, int]:
    """Return height and width of the image, or of one that is larger by a factor."""
    H, W = to_2tuple(config.image_size)
    return factor * H, factor * W


def named(config: ViTConfig) -> str:
    """Write a config in a few words."""
    H, W = sides(config)
    return (
        f"{config.depth} blocks of width {config.embed_dim}, "
        f"{H} x {W} pixels in patches of {config.patch_size}"
    )


# One block

EACH, PAIRS = (
    ("qkv", "output", "MLP"),
    ("scores", "mixing"),
)  # each token through matrices; every token with every token
BLOCKS = [
    (197, 768, 3072),
    (50, 192, 1000),
    (17, 384, 384),
    (1, 768, 128),
]  # T, D, M; D splits into many numbers of heads


def right_parts(T: int, D: int, M: int) -> dict[str, int]:
    """Return multiply-adds of one block."""
    return {
        "qkv": 3 * T * D * D,
        "scores": T * T * D,
        "mixing": T * T * D,
        "output": T * D * D,
        "MLP": 2 * T * D * M,
    }


def changed(parts: Sequence[str], rule: Function) -> Function:
    """Make an answer with other numbers for some parts.

    rule: (right number, T, D, M, biases of the part) -> the number
    """

    def answer(T: int, D: int, M: int) -> dict[str, Any]:
        right, biases = right_parts(T, D, M), {"qkv": 3 * D, "output": D, "MLP": M + D}
        return right | {part: rule(right[part], T, D, M, biases.get(part, 0)) for part in parts}

    return answer


def counted(answer: Function, T: int, D: int, M: int, compared: Sequence[str]) -> dict[str, float]:
    """Return the numbers for some parts.

    raises: Mistake unless the answer gives a dictionary of all five
    """
    when, parts = f"for T = {T}, D = {D}, M = {M}", list(right_parts(T, D, M))
    got, wanted = answer(T, D, M), ", ".join(f'"{part}"' for part in parts)
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    message = (
        f"it should give a dictionary of {wanted}, "
        "because the separate parts show what grows with T"
    )
    reject_if(not isinstance(got, Mapping), f"gives {short(got)} {when}; {message}")
    missing = [part for part in parts if part not in got]
    extra = ", ".join(short(key) for key in got if key not in parts)
    reject_if(
        missing,
        f"lacks {', '.join(missing)} "
        f"(it also has: {extra or 'nothing else'}); the keys are {wanted}",
    )
    reject_if(extra, f"has {extra}, which is none of the five: {wanted}")
    return {part: as_number(got[part], f'as "{part}" {when}') for part in compared}


def odd_pairs(
    got: float, right: float, T: int, D: int, M: int, compared: Sequence[str]
) -> str | None:
    """Say what is odd about a wrong number of scores or mixing."""
    found = {
        "every pair counts in both directions, and every token with itself: T * T": abs(
            2 * got - right
        )
        in (0, T * D),
        "softmax or the scale is counted, but only matrix products should be": (got - right)
        / (T * T)
        in (1, 2, 3, 4),
    }
    return next((message for message, so in found.items() if so and compared == PAIRS), None)


def all_forms(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless an answer gives a number for each part, whatever it is."""
    for sizes in BLOCKS:
        exercise.try_form(answer, (*sizes, (*EACH, *PAIRS)))


SEVERAL: dict[str, tuple[Sequence[str], Function]] = {  # of several parts, or of one
    "these are FLOPs: a multiply-add is one product and one sum, so there are half as many":
        ((*EACH, *PAIRS), lambda n, *_: 2 * n),
    "biases are counted, but they are sums without a product":
        (EACH, lambda n, T, D, M, biases: n + T * biases),
    "these are the learned weights; each of them is used once for every token, so T is missing":
        (EACH, lambda n, T, *_: n / T),
    "these are the learned weights and biases; "
    "each weight is used once for every token, so T is missing":
        (EACH, lambda n, T, D, M, biases: n / T + biases),
    "every token passes through on its own here, so T counts once, not squared":
        (EACH, lambda n, T, *_: n * T),
    "T is missing once: every token attends to every token, T * T pairs":
        (PAIRS, lambda n, T, *_: n / T),
    "T and D are swapped: there are T * T pairs, and each needs D products":
        (PAIRS, lambda n, T, D, M, _: T * D * D),
    "the number of heads changes nothing: "
    "12 heads of width D / 12 cost as much as one of width D, T * T * D":
        (PAIRS, lambda n, *_: 12 * n),
    "the number of heads changes nothing: one of 12 costs less, but all together T * T * D":
        (PAIRS, lambda n, *_: n / 12),
    "that is the number of pairs, but each needs D products":
        (PAIRS, lambda n, T, *_: T * T),
}  # fmt: skip
BLOCK_MISTAKES: dict[str, Function] = {
    "that is one matrix of three: queries, keys and values have one each":
        changed(["qkv"], lambda n, *_: n / 3),
    "that is two matrices of three: queries, keys and values have one each":
        changed(["qkv"], lambda n, *_: n * 2 / 3),
    "the output projection is one D x D matrix; three belong to qkv":
        changed(["output"], lambda n, *_: 3 * n),
    "that is one matrix of two: D to M, and M back to D": changed(["MLP"], lambda n, *_: n / 2),
    "M is assumed to be 4 D: use the M that is given":
        changed(["MLP"], lambda n, T, D, M, _: 8 * T * D * D),
    "one matrix of M x M is counted, but there are two, D x M and M x D":
        changed(["MLP"], lambda n, T, D, M, _: T * M * M),
    "the second matrix is counted as M x M, but it is M x D":
        changed(["MLP"], lambda n, T, D, M, _: T * M * (D + M)),
    "two matrices of M x M are counted, but the two are D x M and M x D":
        changed(["MLP"], lambda n, T, D, M, _: 2 * T * M * M),
    "two matrices of D x D are counted, but the two are D x M and M x D":
        changed(["MLP"], lambda n, T, D, M, _: 2 * T * D * D),
    "GELU is counted, but only matrix products should be":
        changed(["MLP"], lambda n, T, D, M, _: n + T * M),
} | {message: changed(parts, rule) for message, (parts, rule) in SEVERAL.items()} | {
    f"{message} (in {part} alone)": changed([part], rule)
    for message, (parts, rule) in SEVERAL.items()
    for part in parts
}  # fmt: skip
BLOCK = Exercise(
    name="block_multiply_adds",
    reference=right_parts,
    outcome=Outcome(observe=counted, rtol=1e-6),
    wording=Wording(
        when=lambda T, D, M, compared: f"for T = {T}, D = {D}, M = {M}",
        says='gives {got:,} as "{part}" {when}; it should give {right:,}: {message}',
        odd=odd_pairs,
        unknown=unless_first(
            BLOCKS[0], right_parts, "count matrix products: (rows x inner) @ (inner x columns)"
        ),
    ),
    ideas={
        "a dictionary with a number for each of the five parts": [all_forms],
        "qkv, output and MLP: each token through matrices": cases(
            *((*sizes, EACH) for sizes in BLOCKS)
        ),
        "scores and mixing: every token with every token": cases(
            *((*sizes, PAIRS) for sizes in BLOCKS)
        ),
    },
    mistakes=BLOCK_MISTAKES,
)
check_block_multiply_adds = BLOCK.check


# Twice the resolution


def cost(config: ViTConfig, count: Function = multiply_adds, **changes: Any) -> int:
    """Return the sum of all parts, of a config with changes."""
    return sum(count(replace(config, **changes)).values())


def times(changes: Function, count: Function = multiply_adds) -> Function:
    """Make an answer: how many times more a config with changes costs.

    changes: (config, factor) -> its new fields
    """
    return lambda c, f: cost(c, count, **changes(c, f)) / cost(c, count)


def larger(c: ViTConfig, f: int) -> dict[str, Any]:
    """Return the fields of a config that change for larger images."""
    return {"image_size": sides(c, f)}


def grown_tokens(c: ViTConfig, f: int) -> float:
    """Return how many times more tokens the larger image has."""
    return replace(c, **larger(c, f)).num_tokens / c.num_tokens


TIMES_MISTAKES: dict[str, Function] = {
    "the patches grew with the image, so there are as many as before: leave patch_size alone":
        times(lambda c, f: larger(c, f) | {"patch_size": f * c.patch_size}),
    "there are as many patches as before: count the cost of a new config": lambda c, f: 1,
    "the patches become smaller, but the image should become larger":
        times(lambda c, f: {"patch_size": max(c.patch_size // f, 1)}),
    "the number of tokens nearly grows like that, but scores and mixing grow with T * T":
        lambda c, f: f**2,
    "the number of tokens grows like that, but scores and mixing grow with T * T": grown_tokens,
    "only scores and mixing nearly grow like that; the rest grows with T": lambda c, f: f**4,
    "only scores and mixing grow like that; the rest grows with T":
        lambda c, f: grown_tokens(c, f) ** 2,
    "scores and mixing are not half of the cost: add up the cost of all parts":
        lambda c, f: (f**2 + f**4) / 2,
    "that is the factor itself, but the patches fill an area": lambda c, f: f,
    "only one side grew, but both should":
        times(lambda c, f: {"image_size": (sides(c, f)[0], sides(c)[1])}),
    "the height is used for the width too: image_size is a pair (H, W)":
        times(lambda c, f: {"image_size": sides(c, f)[0]}),
    "the width is used for the height too: image_size is a pair (H, W)":
        times(lambda c, f: {"image_size": sides(c, f)[1]}),
    "upside down: divide the cost of the larger image by that of the smaller one":
        lambda c, f: 1 / times(larger)(c, f),
    "that is only the increase, as a share of the old cost: divide the new cost by the old one":
        lambda c, f: times(larger)(c, f) - 1,
    "that is only the increase: divide the new cost by the old one":
        lambda c, f: cost(c, **larger(c, f)) - cost(c),
    "that is the cost itself; divide by that of the smaller image":
        lambda c, f: cost(c, **larger(c, f)),
    "the class token is left out":
        lambda c, f: times(larger)(replace(c, class_token=False, pool="avg"), f),
    "parameters are counted instead of multiply-adds": times(larger, parameters),
    "the backward pass is counted too, but only the forward pass of one image is wanted":
        times(larger, training_multiply_adds),
}  # fmt: skip
TIMES = Exercise(
    name="times_more",
    reference=times(larger),
    wording=Wording(
        when=lambda config, factor: f"for factor {factor} and {named(config)}",
        says="gives {got:.5g} {when}; it should give {right:.5g}: {message}",
        kind="the ratio of two costs, a number",
        odd=rounding,
        unknown=unless_first(
            (B16, 2),
            times(larger),
            "divide the cost of the larger image by that of the smaller one",
        ),
        hints=KEYS,
    ),
    ideas={
        "twice the side of B/16: more than 4 times, for attention grows faster": cases((B16, 2)),
        "other models, images that are not square, other factors": cases(
            (SMALL, 2), (SMALL, 3), (S16, 4), (L16, 2)
        ),
        "no class token, and nothing grown": cases((AVERAGED, 2), (AVERAGED, 4), (SMALL, 1)),
    },
    mistakes=TIMES_MISTAKES,
)
check_times_more = TIMES.check
