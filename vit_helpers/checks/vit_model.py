"""The exercise of notebook 05 that puts the whole model together, and the planted mistake."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import (
    NO_GRADIENT,
    expect_anywhere,
    expect_digits,
    gradients,
    same,
)
from vit_helpers.checks.engine.modules import ModuleExercise, Sizes, apart, build, made, output
from vit_helpers.checks.engine.report import Function, Mistake, first_line, reject_if
from vit_helpers.checks.engine.traces import ask
from vit_helpers.checks.vit_mistakes import PASSES, Right, messages_for_shapes, passed, with_stage

# image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads
# every shape among them is its own
SIZES: list[Sizes] = [
    (8, 2, 3, 5, 8, 3, 2),
    (12, 4, 1, 7, 12, 2, 4),
    (6, 3, 2, 4, 10, 1, 1),
]
EPS = (1e-6, 1e-5)  # the published models', and torch's own default: the paper names none

# Reading a model: its parameters, whatever they are called


def learned(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that training changes."""
    return [p for p in model.parameters() if p.requires_grad]


def shape_of(p: Tensor, sizes: Sizes) -> Sizes:
    """Return a parameter's shape in a Linear, or as a flat vector.

    It is the same for all right ways to store it.
    """
    _, P, C, K, D, *_ = sizes
    first, *rest = [n for n in p.shape if n > 1] or [1]
    shape = (first, math.prod(rest)) if rest else (first,)
    return (
        shape[::-1] if shape in ((C * P * P, D), (D, K)) else shape
    )  # a matrix as the paper writes it


def pieces(model: nn.Module, sizes: Sizes) -> int:
    """Return the rows of a layer for queries, keys and values.

    They are 3 D if one layer makes all, D for three layers, D / h for heads.
    """
    *_, D, _, heads = sizes
    shapes = {shape_of(p, sizes) for p in learned(model)}
    return next((rows for rows in (3 * D, D // heads) if (rows, D) in shapes), D)


def parts(model: nn.Module, sizes: Sizes) -> Counter[Sizes]:
    """Return how often each shape occurs.

    Queries, keys and values count as layers of D x D.
    """
    *_, D, _, heads = sizes
    counts = Counter(shape_of(p, sizes) for p in learned(model))
    for width in ((D,), ()):
        rows = sum(n * counts.pop((n, *width), 0) for n in {3 * D, D, D // heads})
        counts[D, *width] = rows // D
    return +counts


def fill(model: nn.Module, table: dict[Any, Tensor], sizes: Sizes) -> nn.Module:
    """Give parameters of each shape the numbers of a table, in turn.

    So two models agree, whatever the names are.
    """
    seen: Counter[Sizes] = Counter()
    norms = {id(m.weight) for m in model.modules() if isinstance(m, nn.LayerNorm)}
    with torch.no_grad():
        for p in learned(model):
            shape = shape_of(p, sizes)
            numbers = table["norm"] if id(p) in norms and "norm" in table else table[shape]
            numbers = numbers[seen[shape] % len(numbers)]
            seen[shape] += 1
            flat = [n for n in p.shape if n > 1] or [1]
            p.copy_((numbers if flat[0] == shape[0] else numbers.T).reshape(p.shape))
    return model


def twins(
    answer: Function, sizes: Sizes, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, Any]:
    """Return the learner's model, and the right one that it should equal, but for eps.

    Blocks differ from each other, and a norm's weight from its bias, if it is clear which
    parameter is which.
    """
    model, (*_, D, L, _) = build(answer, *sizes).to(dtype), sizes
    counts, rows = Counter(shape_of(p, sizes) for p in learned(model)), pieces(model, sizes)
    table: dict[Any, Tensor] = {}
    for shape in sorted({shape_of(p, sizes) for p in Right(*sizes).parameters()} | set(counts)):
        numbers = torch.randn(L if counts[shape] == L else 1, *shape, dtype=dtype)
        table[shape] = 0.5 + 0.5 * numbers if len(shape) == 1 else numbers * 1.2 * shape[-1] ** -0.5
    if sum(isinstance(m, nn.LayerNorm) for m in model.modules()) == 2 * L + 1:
        table["norm"] = 0.5 + 0.5 * torch.randn(1, D, dtype=dtype)
    for width in ((D,), ()) if rows < 3 * D else ():
        table[3 * D, *width] = torch.cat([table[rows, *width]] * (3 * D // rows), dim=1)
    return fill(model, table, sizes), fill(Right(*sizes).to(dtype), table, sizes)


def each_eps(right: Any) -> Iterator[Any]:
    """Yield a right model with every pair of eps in its norms, in the blocks and after them.

    The published pair comes first.
    """
    for in_blocks, last in product(EPS, EPS):
        for norm in (m for m in right.modules() if isinstance(m, nn.LayerNorm)):
            norm.eps = last if norm is right.norm else in_blocks
        yield right


def images_for(sizes: Sizes, B: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return images with numbers below 0 and above 1."""
    return torch.randn(B, sizes[2], sizes[0], sizes[0], dtype=dtype)


def logits(model: nn.Module, images: Tensor, sizes: Sizes) -> Tensor:
    """Return what a model returns: (B, K) numbers of the images' type.

    raises: Mistake for anything else
    """
    B, K = len(images), sizes[3]
    when = f"for {tuple(images.shape)} and {K} classes"
    try:
        got = ask(model, images)
    except (RuntimeError, ValueError) as error:
        fragments = ("Sizes of tensors", "size of tensor", "expand", "must match")
        about_sizes = any(fragment in str(error) for fragment in fragments)
        cause = first_line(error).rstrip(".")
        reject_if(
            about_sizes,
            f"raises an error about sizes for a batch of {B}: {cause}. The class token is one "
            "vector (1, 1, D), expanded in forward to the batch size; the positions are (1, T, D)",
        )
        raise
    shape = tuple(got.shape) if isinstance(got, Tensor) else ()
    every = f"gives {shape} {when}: a result for every token, but the head reads only x[:, 0]"
    reject_if(len(shape) == 3 and shape[0] == B, every)
    reject_if(
        shape == (B, sizes[4]), f"gives {shape} {when}: these are D numbers, so the head is missing"
    )
    return output(model, images, when, (B, K))


# Ideas


def any_batch(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a new model gives finite logits for any number of images."""
    for sizes in SIZES:
        fresh = build(answer, *sizes)
        for B in (2, 1, 4):
            finite = torch.isfinite(logits(fresh, images_for(sizes, B), sizes)).all()
            reject_if(
                not finite,
                "a new model gives NaN or infinity: was a parameter left as torch.empty?",
            )


def registered(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless a model has the parameters of a ViT, in whatever layers.

    A known mistake has a message of its own if it fits all sizes.
    """
    off = []  # sizes, and the shapes that are lacking and too many for them
    for sizes in SIZES:
        counts, wanted = parts(build(answer, *sizes), sizes), parts(Right(*sizes), sizes)
        if counts != wanted:
            off.append((sizes, wanted - counts, counts - wanted))
    messages = [messages_for_shapes(lacking, more, sizes) for sizes, lacking, more in off]
    for sizes, lacking, surplus in off:
        model = build(answer, *sizes)
        fits = [m for m in messages[0] if all(m in others for others in messages)]
        known = fits[0] if fits and len(off) > 1 else ""
        count = sum(p.numel() for p in model.parameters())
        reject_if(known, f"{type(model).__name__} has {count:,} parameters: {known}")
        turned = Counter({shape[::-1]: n for shape, n in surplus.items()}) == lacking
        way_out = "; store a weight as nn.Linear does, (out, in)" if turned else ""
        raise Mistake(
            f"doesn't have the parameters of a ViT with D = {sizes[4]}, "
            f"L = {sizes[5]}, K = {sizes[3]}: "
            f"it lacks shapes {list(lacking) or 'none'}, "
            f"has {list(surplus) or 'none'} too many{way_out}"
        )


def images_seen(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake if all images get the same logits."""
    sizes = SIZES[0]
    model, images = made(answer, *exercise.cases[0])
    first = logits(model, images, sizes)
    alike = (
        "different images get the same logits, "
        "so the class token receives nothing from the patches. Are the blocks "
        "called, and do they attend along the tokens? (torch's attention needs batch_first=True)"
    )
    steady = same(first, logits(model, images, sizes))
    reject_if(steady and same(first, first[:1].expand_as(first)), alike)


def close(got: Tensor, wanted: Tensor) -> bool:
    """Compare as `same`, with a larger tolerance in float32."""
    return same(got, wanted, atol=None if got.dtype == torch.float64 == wanted.dtype else 1e-4)


UNKNOWN = (
    "shapes and parameters are right, but the logits are not. Compare patches, tokens, "
    "all blocks in turn, the final norm, "
    "the class token, the head. If the block is your own, try it in the check of notebook 04"
)


def explained(got: Tensor, right: Any, images: Tensor, stage: str, wrong: Function) -> bool:
    """Tell whether a wrong stage gives an answer's logits, with one of the eps."""
    for candidate in each_eps(right):
        guess = passed(candidate, images, **{stage: wrong})
        if close(got, guess):
            return True
        if not same(got, guess, atol=0.1):
            return False  # another eps moves no logit that far
    return False


def name_mistake(answer: Function, got: Tensor, right: Any, images: Tensor) -> None:
    """Raise Mistake with the message of a wrong stage that gives an answer's logits.

    It must do so for all sizes, which differ in depth and heads.
    """
    cases: list[tuple[Tensor, Any, Tensor]] = []
    for stage, wrongs in PASSES.items():
        for message, wrong in wrongs.items():
            if not explained(got, right, images, stage, wrong):
                continue
            cases = cases or [
                (logits(twin, x := images_for(sizes), sizes), ours, x)
                for sizes in SIZES
                for twin, ours in [twins(answer, sizes)]
            ]
            reject_if(all(explained(*case, stage=stage, wrong=wrong) for case in cases), message)


def equal_to(answer: Function, model: nn.Module, right: Any, images: Tensor, sizes: Sizes) -> Any:
    """Return the right model with the eps for which an answer's model equals it.

    raises: Mistake with the reason if there is none
    """
    got, wanted = logits(model, images, sizes), []
    for candidate in each_eps(right):
        wanted.append(candidate(images).detach())
        if close(got, wanted[-1]):
            return candidate
    name_mistake(answer, got, right, images)
    if images.dtype == torch.float64 and same(got, wanted[0], atol=1e-3):
        if torch.equal(got, got.float().double()):
            expect_digits(got, wanted[0])
        exact = (
            "float64 images give only float32 precision: is something rounded, "
            "or a norm's eps not 1e-6?"
        )
        raise Mistake(exact)
    raise Mistake(UNKNOWN)


def right_numbers(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless logits are right, in both modes, in float64 and for large numbers."""
    for sizes in SIZES:
        for training, dtype, size in (
            (True, torch.float32, 1),
            (False, torch.float32, 1),
            (True, torch.float64, 6),
        ):
            model, right = twins(answer, sizes, dtype)
            equal_to(
                answer,
                model.train(training),
                right.train(training),
                size * images_for(sizes, dtype=dtype),
                sizes,
            )


def orders(
    layers: list[Tensor], depth: int, rows: int, sizes: Sizes
) -> Iterator[list[list[Tensor]]]:
    """Yield every way to read layers as queries, keys and values, by block.

    The output projection is among them where it has their shape.
    """
    *_, D, _, heads = sizes
    n, L = len(layers) // depth, range(depth)
    layers_by_block = [[layers[i * n : (i + 1) * n] for i in L], [layers[i::depth] for i in L]]
    if rows == D:
        # the output projections may be in a list of their own, behind the others or before
        layers_by_block += [[[*layers[3 * i : 3 * i + 3], layers[3 * depth + i]] for i in L]]
        layers_by_block += [[[*layers[depth + 3 * i : depth + 3 * i + 3], layers[i]] for i in L]]
    for blocks in layers_by_block:
        roles = n if rows == D else 3
        for order in permutations(range(roles)):
            if rows == D:
                yield [[block[i] for i in order] for block in blocks]
            else:
                yield [[torch.cat(block[i::3]) for i in order] for block in blocks]
                yield [
                    [torch.cat(block[i * heads : (i + 1) * heads]) for i in order]
                    for block in blocks
                ]


def three_layers(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake if queries, keys and values have layers of their own that share a use."""
    *_, D, L, _ = sizes = SIZES[0]
    model, right = twins(answer, sizes)
    images, rows = images_for(sizes), pieces(model, sizes)
    candidate = equal_to(answer, model, right, images, sizes)
    if rows == 3 * D:
        return
    layers = [p for p in learned(model) if shape_of(p, sizes) == (rows, D)]
    with torch.no_grad():
        for p in layers:
            p.copy_(torch.randn(p.shape) * 1.2 * D**-0.5)
        got = logits(model, images, sizes)
        for weights in orders([p.reshape(rows, D) for p in layers], L, rows, sizes):
            for block, (q, k, v, *out) in zip(candidate.blocks, weights, strict=True):
                block.attn.qkv.weight.copy_(torch.cat([q, k, v]))
                for weight in out:
                    block.attn.proj.weight.copy_(weight)
            if close(got, candidate(images)):
                return
    raise Mistake(
        "right only if queries, keys and values have the same weights, "
        "but each is computed by a layer of its own"
    )


def summed(model: nn.Module, images: Tensor, sizes: Sizes, rows: int) -> dict[Sizes, Tensor]:
    """Return the gradients of all parameters, added up for each shape.

    rows: of a layer for queries, keys and values
    """
    sums: dict[Sizes, Tensor] = {}
    for p, slope in zip(learned(model), gradients(model(images), learned(model)), strict=True):
        assert slope is not None  # every parameter was seen to have one
        shape = shape_of(p, sizes)
        flat = [n for n in p.shape if n > 1] or [1]
        slope = slope.reshape(shape) if flat[0] == shape[0] else slope.reshape(shape[::-1]).T
        if shape[0] == 3 * sizes[4] > rows:
            shape, slope = (rows, *shape[1:]), slope.unflatten(0, (-1, rows)).sum(dim=0)
        sums[shape] = sums.get(shape, 0) + slope
    return sums


def every_gradient(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless images and all parameters get the right gradient."""
    for sizes in SIZES:
        model, right = twins(answer, sizes)
        images = images_for(sizes).requires_grad_()
        candidate = equal_to(answer, model, right, images.detach(), sizes)
        names = [name for name, p in model.named_parameters() if p.requires_grad]
        slope_of_images, *slopes = gradients(model(images), [images, *learned(model)])
        lost = [name for name, slope in zip(names, slopes, strict=True) if slope is None]
        reject_if(lost == names, NO_GRADIENT)
        reject_if(lost, f"no gradient reaches {', '.join(lost[:4])}: is it used and not detached?")
        reject_if(slope_of_images is None, NO_GRADIENT)
        wrong = not same(slope_of_images, gradients(candidate(images), [images])[0], atol=1e-4)
        reject_if(wrong, "gives the right numbers, but the wrong gradient")
        rows = pieces(model, sizes)
        got, wanted = (summed(m, images, sizes, rows) for m in (model, candidate))
        off = [shape for shape in got if not same(got[shape], wanted[shape], atol=1e-3)]
        reject_if(
            off, f"gives the right logits, but parameters of shape {off} get the wrong gradient"
        )
    expect_anywhere(model, candidate, images)


VIT = ModuleExercise(
    name="vit",
    module=Right,
    function=passed,
    readings=lambda model, *sizes: iter(()),
    ideas={
        "images in, K numbers out, for any batch": [any_batch],
        "every part is registered: L separate blocks, class token, T positions, norm, head": [
            registered
        ],
        "images in a batch don't mix, and a second call gives the same result": [
            images_seen,
            apart,
        ],
        "the numbers of equations 1 to 4, in float64 too": [right_numbers, three_layers],
        "gradients flow to the images and to every parameter": [every_gradient],
    },
    mistakes={},
    structures={},
    stages={
        message: with_stage(stage, wrong)
        for stage, wrongs in PASSES.items()
        for message, wrong in wrongs.items()
    },
    cases=[(sizes, (3, sizes[2], sizes[0], sizes[0])) for sizes in SIZES],
    count="",
)
