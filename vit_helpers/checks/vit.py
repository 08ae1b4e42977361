"""Marks for the exercises of notebook 05."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import combinations
from numbers import Integral, Real

import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.checks import marks
from vit_helpers.checks.marks import expect_gradient, expect_tensor, gradient, same, slip, untouched
from vit_helpers.patches import patchify
from vit_helpers.vit import ViT, ViTConfig

# The shape at every stop

STOPS = ("patches", "projected patches", "tokens", "features", "class token", "logits")
SHAPE_ASKED = [  # B, C, H, W, P, D, K: all numbers of a line differ, so that no axis is right by chance
    (2, 3, 32, 48, 8, 20, 5),
    (7, 1, 6, 10, 2, 11, 3),
    (1, 4, 9, 9, 3, 5, 2),
    (5, 3, 224, 224, 16, 384, 1000),
    (4, 2, 5, 5, 5, 6, 10),
]


def right_shapes(B, C, H, W, P, D, K):
    N = (H // P) * (W // P)
    return [(B, N, C * P * P), (B, N, D), (B, N + 1, D), (B, N + 1, D), (B, D), (B, K)]


def shape_slips(right, B, C, H, W, P, D, K):
    """(numbers of the stops, the idea that slipped, wrong shapes that tell it); right: the shape that is asked"""
    rows, cols, long = H // P, W // P, C * P * P
    N, T = rows * cols, rows * cols + 1
    others = {rows**2, cols**2, H * W // P, H * W, rows, cols, rows + cols} - {N, T}
    miscounted = [(B, n + extra, length) for n in others for extra in (0, 1) for length in (long, D)]
    return [
        ("0", "a patch holds P * P pixels of each of C channels, C * P * P", [(B, N, n) for n in (P * P, P, C, C * P)]),
        ("0", "a patch is flattened: one row of C * P * P numbers", [(B, N, C, P, P), (B, C, N, P, P), (B * N, C, P, P)]),
        ("0", "this is after the projection; a raw patch has C * P * P numbers", [(B, N, D)]),
        ("01", "the grid is one axis of N patches", [(B, rows, cols, long), (B, rows, cols, D), (B, D, rows, cols)]),
        ("0123", "tokens come before their numbers", [(B, long, N), (B, D, N), (B, D, T)]),
        ("012345", "the batch axis is missing: every image has its own", [right[1:], (1, *right[1:])]),
        ("012345", "the batch axis comes first", [(right[1], B, *right[2:])]),
        ("0123", "the number of patches is N = (H / P) * (W / P), rows times columns of the grid", miscounted),
        ("01", "the class token comes later, after the projection", [(B, T, long), (B, T, D)]),
        ("12", "the projection is missing: it makes D numbers of C * P * P", [(B, N, long), (B, T, long)]),
        ("23", "the class token is missing: T = N + 1", [(B, N, D)]),
        ("23", "the class token is a row more, not a column", [(B, N, D + 1), (B, T, D + 1)]),
        ("23", "there is one class token; positions are added, no tokens", [(B, n, D) for n in (N + 2, 2 * N, 2 * T)]),
        ("3", "all tokens are still there; only the next stop picks one", [(B, D)]),
        ("4", "all tokens are still there; the head reads one of each image", [(B, T, D), (B, N, D), (T, D)]),
        ("4", "a token is a row of D numbers", [(B, T), (B, N), (B, 1)]),
        ("4", "these are the logits already; the class token is what the head reads", [(B, K)]),
        ("45", "x[:, 0] takes the axis of tokens away", [(B, 1, D), (B, 1, K)]),
        ("5", "the head reads the class token alone, not every token", [(B, T, K), (B, N, K)]),
        ("5", "the head makes K numbers of D", [(B, D), (B, T, D), (B, D, K), (D, K), (B,)]),
    ]


def as_shape(value, stop):
    """One stop of the answer as a tuple of whole numbers"""
    slip(not isinstance(value, (tuple, list)), f"{stop}: got {marks.short(value)}; a shape is a tuple of numbers")
    floats = [n for n in value if isinstance(n, float)]
    slip(bool(floats), f"{stop}: {floats[:1]} is no whole number; H / P gives a float, H // P does not")
    slip(not all(isinstance(n, Integral) for n in value), f"{stop}: got {marks.short(value)}; a shape is a tuple of numbers")
    return tuple(map(int, value))


def shapes_right(answer, *asked):
    for sizes in asked:
        got = answer(*sizes)
        slip(got is None, "gives nothing back: does it end with return?")
        got = list(got.values() if isinstance(got, dict) else got) if isinstance(got, (dict, Iterator)) else got
        slip(not isinstance(got, (list, tuple)), f"gives {marks.short(got)}; it should give a list of six shapes")
        flat = bool(got) and all(isinstance(n, Integral) for n in got)
        slip(flat, f"gives one shape, {tuple(got)}; it should give a list of six, one for each stop")
        slip(len(got) != 6, f"gives {len(got)} shapes; there are six stops: {', '.join(STOPS)}")
        when = "for B, C, H, W, P, D, K = " + ", ".join(map(str, sizes))
        for i, (stop, value, right) in enumerate(zip(STOPS, got, right_shapes(*sizes), strict=True)):
            if (shape := as_shape(value, stop)) != right:
                told = (words for at, words, wrong in shape_slips(right, *sizes) if str(i) in at and shape in wrong)
                words = next(told, "count again" if len(shape) == len(right) else f"there are {len(right)} axes here")
                raise marks.Slip(f"{stop} {when}: gives {shape}; {words}")


def check_shapes(answer):
    """Mark a function (B, C, H, W, P, D, K) -> six shapes.  Prints a line for each idea."""
    first, *others = SHAPE_ASKED
    ideas = [
        ("all six stops of one batch", lambda answer: shapes_right(answer, first)),
        ("other sizes: grey, square, a single patch, ViT-S/16", lambda answer: shapes_right(answer, *others)),
    ]
    return marks.check("shapes", answer, ideas)


# Reading the answer: equation 4, or the mean of the patches


def read_right(z, norm, head, pool):
    x = norm(z)
    return head(x[:, 0] if pool == "cls" else x[:, 1:].mean(dim=1))


READ_SLIPS = {  # the idea that slipped, and how such an answer makes logits of z, norm, head and pool
    "the last norm is missing": lambda z, n, h, p: read_right(z, nn.Identity(), h, p),
    "the head is missing": lambda z, n, h, p: read_right(z, n, nn.Identity(), p),
    "norm and head are missing": lambda z, n, h, p: read_right(z, nn.Identity(), nn.Identity(), p),
    "reads the last token; the class token is token 0": lambda z, n, h, p: h(n(z)[:, -1]),
    "reads the first patch; the class token is token 0": lambda z, n, h, p: h(n(z)[:, 1]),
    "gives the class token's result where the mean of the patches is asked for": lambda z, n, h, p: h(n(z)[:, 0]),
    "gives the mean where the class token is asked for": lambda z, n, h, p: h(n(z)[:, 1:].mean(dim=1)),
    "averages the class token with the patches; leave token 0 out": lambda z, n, h, p: h(n(z).mean(dim=1)),
    "averages before the norm; norm every token first": lambda z, n, h, p: h(n(z[:, 1:].mean(dim=1))),
    "averages before the norm, and the class token too": lambda z, n, h, p: h(n(z.mean(dim=1))),
    "norms the mean once more; norm the tokens only": lambda z, n, h, p: h(n(n(z)[:, 1:].mean(dim=1))),
    "sums the patches; take their mean": lambda z, n, h, p: h(n(z)[:, 1:].sum(dim=1)),
    "divides by T; there are T - 1 patches": lambda z, n, h, p: h(n(z)[:, 1:].sum(dim=1) / z.shape[1]),
    "takes the largest number of each feature; take the mean": lambda z, n, h, p: h(n(z)[:, 1:].amax(dim=1)),
    "leaves out the last patch, not the class token": lambda z, n, h, p: h(n(z)[:, :-1].mean(dim=1)),
    "the norm is applied twice": lambda z, n, h, p: read_right(n(z), n, h, p),
    "gives probabilities; a head gives logits, the loss takes the softmax itself": lambda *a: read_right(*a).softmax(dim=-1),
    "gives logarithms of probabilities; a head gives logits": lambda *a: read_right(*a).log_softmax(dim=-1),
    "gives sigmoids; a head gives logits": lambda *a: read_right(*a).sigmoid(),
    "a tanh stands before the head": lambda z, n, h, p: h(read_right(z, n, nn.Identity(), p).tanh()),
    "the head's bias is left out": lambda *a: read_right(*a) - a[2].bias,
    "reads the first image for all": lambda z, n, h, p: read_right(z[:1], n, h, p).expand(len(z), -1),
    "uses a fresh norm; use the one that is handed over": lambda z, n, h, p: read_right(
        z, partial(F.layer_norm, normalized_shape=z.shape[-1:]), h, p
    ),
}


def reading(B, T, D, K, dtype=torch.float32):
    """Tokens, a norm and a head in which no number is 0 or 1"""
    z, norm, head = 2 * torch.randn(B, T, D, dtype=dtype) + 0.5, nn.LayerNorm(D, eps=1e-6), nn.Linear(D, K)
    with torch.no_grad():
        for p in (norm.weight, norm.bias):
            p.copy_(torch.randn(D) + 0.5)
    return z, norm.to(dtype), head.to(dtype)


def read_as(answer, pool, *sizes, dtype=torch.float32):
    (B, T, D, K), (z, norm, head) = sizes, reading(*sizes, dtype=dtype)
    when = f'for pool="{pool}" and tokens {(B, T, D)}'
    wanted, weights = read_right(z, norm, head, pool), [*norm.parameters(), *head.parameters()]
    before = [p.clone() for p in weights]
    got = untouched(lambda tokens: answer(tokens, norm, head, pool), z)
    slip(not all(map(torch.equal, before, weights)), "changes the weights of the norm or the head; use them as they are")
    if isinstance(got, torch.Tensor):
        slip(got.shape == (B, T, K), f"gives {(B, T, K)} {when}; the head reads one vector an image")
        slip(got.shape == (B, 1, K), f"gives {(B, 1, K)} {when}; x[:, 0] takes the axis of tokens away, x[:, :1] keeps it")
        slip(got.shape == (K,) and B > 1, f"gives {(K,)} {when}; z[0] is the first image, z[:, 0] the first token of each")
        slip(got.shape == (T, K) != (B, K), f"gives {(T, K)} {when}; z[0] is the first image, z[:, 0] each class token")
        slip(got.shape == (B, D) != (B, K), f"gives {(B, D)} {when}; the head is missing")
    expect_tensor(got, (B, K), when)
    slip(got.dtype != dtype, f"gives {got.dtype} for {dtype}; keep the type that came in")
    if not same(got, wanted, atol=1e-9 if dtype == torch.float64 else 1e-5):
        marks.expect_digits(got, wanted)
        for words, wrong in READ_SLIPS.items():
            guess = wrong(z, norm, head, pool)
            slip(guess.shape == got.shape and not same(guess, wanted) and same(got, guess), f"{when}: {words}")
        raise marks.Slip(f"{when}: the shape is right, the numbers are not head(norm(z)) of what is read")


def read_sizes(answer, *pools, dtype=torch.float32):
    for pool in pools:
        for sizes in ((2, 5, 8, 3), (1, 4, 6, 2), (5, 5, 5, 4), (3, 2, 7, 3)):
            read_as(answer, pool, *sizes, dtype=dtype)


def read_gradients(answer):
    for pool in ("cls", "avg"):
        z, norm, head = reading(2, 5, 8, 3)
        for source in (z.requires_grad_(), *norm.parameters(), *head.parameters()):
            expect_gradient(answer(z, norm, head, pool), read_right(z, norm, head, pool), source)


def read_refuses(answer):
    for pool in ("max", "CLS", "", "class", "average", " cls"):
        try:
            got = answer(*reading(2, 5, 8, 3), pool)
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            raise marks.Slip(f"raises {type(error).__name__} for pool={pool!r}; raise ValueError and say why") from error
        given = isinstance(got, (BaseException, type))
        slip(given, f"gives an error back for pool={pool!r}; write raise in place of return")
        raise marks.Slip(f"takes pool={pool!r}; it knows cls and avg only: raise ValueError for another")


def check_read_out(answer):
    """Mark a function (z, norm, head, pool) -> logits.  Prints a line for each idea."""
    ideas = [
        ("the class token, normed, through the head: equation 4", lambda answer: read_sizes(answer, "cls")),
        ("the mean of the normed patches, without the class token", lambda answer: read_sizes(answer, "avg")),
        ("float64 too", lambda answer: read_sizes(answer, "cls", "avg", dtype=torch.float64)),
        ("gradients flow to tokens, norm and head", read_gradients),
        ("raises ValueError for another pool", read_refuses),
    ]
    return marks.check("read_out", answer, ideas)


# Counting parameters without building


def counts(image_size, patch_size, in_chans, embed_dim, depth, num_classes):
    """Parameters by part"""
    N, D, L, K = (image_size // patch_size) ** 2, embed_dim, depth, num_classes
    return {
        "the projection's weight, C * P * P * D": in_chans * patch_size**2 * D,
        "the projection's bias, D": D,
        "the class token, D": D,
        "the positions of the N patches, N * D": N * D,
        "the class token's position, D": D,
        "the weights of queries, keys and values, 3 * D * D a block": 3 * D * D * L,
        "the biases of queries, keys and values, 3 * D a block": 3 * D * L,
        "the weight of attention's output projection, D * D a block": D * D * L,
        "the bias of attention's output projection, D a block": D * L,
        "the weight of the MLP's first layer, D * 4 D a block": 4 * D * D * L,
        "the bias of the MLP's first layer, 4 D a block": 4 * D * L,
        "the weight of the MLP's second layer, 4 D * D a block": 4 * D * D * L,
        "the bias of the MLP's second layer, D a block": D * L,
        "one of a block's two norms, 2 D a block": 2 * D * L,
        "the other of a block's two norms, 2 D a block": 2 * D * L,
        "the last norm, 2 D": 2 * D,
        "the head's weight, D * K": D * K,
        "the head's bias, K": K,
    }


COUNTED = [
    (32, 4, 3, 40, 3, 10),
    (12, 3, 1, 24, 5, 7),
    (6, 6, 2, 10, 1, 3),
    (224, 16, 3, 768, 12, 3),
    (224, 14, 3, 1280, 32, 1000),
    (28, 7, 1, 64, 4, 10),
]


def count_slips(*sizes):
    """Wrong counts, and the idea that slipped; the likelier first"""
    image_size, P, C, D, L, K = sizes
    terms, N = counts(*sizes), (image_size // P) ** 2
    right, block = sum(terms.values()), 12 * D * D + 13 * D
    head, pixels, weight = D * K + K, image_size**2, C * P * P * D
    biases = [name for name in terms if "bias" in name]
    inner = sum(terms[name] for name in biases if "a block" in name)
    for wrong in (image_size // P, pixels // P, pixels, image_size // P**2):
        yield right + (wrong - N) * D, "the number of patches is N = (image_size / P) ** 2, rows times columns of the grid"
    for wrong, words in [
        (-(N + 2) * D, "the class token and all positions are missing: they are parameters too"),
        (-N * D, "the positions of the N patches are missing: N * D"),
        (-(N + 1) * D, "the positions are missing: (N + 1) * D"),
        (-L * block, "the blocks are missing: 12 D * D + 13 D each"),
        (-(L - 1) * block, "only one block is counted: multiply by the depth"),
        (-block, "one block is missing: there are `depth` of them"),
        (block, "there is one block too many: `depth` of them"),
        ((L - 1) * (right - L * block), "only the blocks are multiplied by the depth"),
        ((L - 1) * (N + 1) * D, "only the blocks are multiplied by the depth, not the positions"),
        ((L - 1) * 2 * D, "only the blocks are multiplied by the depth, not the last norm"),
        (-sum(terms[name] for name in biases), "all biases are missing"),
        (-inner, "the biases inside the blocks are missing"),
        (-5 * D * L, "5 D a block are missing: the MLP's biases, 4 D and D"),
        (-13 * D * L, "the biases and norms of the blocks are missing: 13 D each"),
        (-4 * D * L, "the two norms of every block are missing: 4 D a block"),
        (-2 * D * (2 * L + 1), "all norms are missing: each has a weight and a bias, 2 D"),
        (-D * (2 * L + 1), "a LayerNorm has a weight and a bias, 2 D, not D"),
        (-head, "the head is missing: D * K + K"),
        (-head - 2 * D, "the last norm and the head are missing: 2 D, and D * K + K"),
        (D - K, "the head's bias has K numbers, one for each class"),
        (-D, "D numbers are missing: the class token, its position, the projection's bias, or half of the last norm"),
        (-2 * D, "2 D numbers are missing: the last norm (weight and bias), or the class token with its position"),
        (D, "D numbers too many: is the class token, its position or the projection's bias counted twice?"),
        (2 * D, "2 D numbers too many: is the last norm, or the class token with its position, counted twice?"),
        (D * N * K, "the head reads the class token alone: D * K, whatever the number of tokens"),
        (D * (N - 1) * K, "the head reads the class token alone: D * K, whatever the number of tokens"),
        (weight // C - weight, "the projection reads all C channels"),
        (weight // P - weight, "a patch has P * P pixels"),
        (weight // D - D, "the projection's bias has D numbers, as many as it gives out"),
        ((N - 1) * (weight + D), "all patches share one projection"),
        (-6 * D * D * L, "the MLP is 4 D wide: its two weights hold 8 D * D"),
        (-4 * D * D * L, "4 D * D a block are missing: four D * D are attention's, two 4 D * D the MLP's"),
        (-8 * D * D * L - 5 * D * L, "the MLP is missing: 8 D * D + 5 D a block"),
    ]:
        yield right + wrong, words
    for n in (1, 2):
        for names in combinations(terms, n):
            yield right - sum(terms[name] for name in names), f"missing: {'; '.join(names)}"
    for name, term in terms.items():
        yield right + term, f"counted twice: {name}"


def count_of(answer, sizes):
    """The answer's count; who builds the model after all builds it on meta, where it takes no time"""
    with suppress(Exception), torch.device("meta"):
        if not isinstance(got := answer(*sizes), torch.Tensor):
            return got
    return answer(*sizes)


def count_right(answer, *asked):
    for sizes in asked:
        got, right = count_of(answer, sizes), sum(counts(*sizes).values())
        slip(got is None, "gives nothing back: does it end with return?")
        if isinstance(got, torch.Tensor) and got.numel() == 1:
            got = got.item()
        slip(isinstance(got, bool) or not isinstance(got, Real), f"gives {marks.short(got)}; it should give a number")
        if got != right:
            words = next((words for wrong, words in count_slips(*sizes) if wrong == got), "go through the parts one by one")
            raise marks.Slip(
                f"gives {got:,} for image {sizes[0]}, patch {sizes[1]}, C {sizes[2]}, D {sizes[3]}, L {sizes[4]}, "
                f"K {sizes[5]}; it should give {right:,}: {words}"
            )


def check_vit_parameters(answer):
    """Mark a function (image_size, patch_size, in_chans, embed_dim, depth, num_classes) -> int."""
    small, odd, single, *published = COUNTED
    ideas = [
        ("a small ViT", lambda answer: count_right(answer, small)),
        ("another channel count, a single patch, a single block", lambda answer: count_right(answer, odd, single)),
        ("B/16 with 3 classes, H/14 with 1000, a deeper one", lambda answer: count_right(answer, *published)),
    ]
    return marks.check("vit_parameters", answer, ideas)


# The whole model

SIZES = [  # image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads; every shape among them is its own
    (8, 2, 3, 5, 8, 3, 2),
    (12, 4, 1, 7, 12, 2, 4),
    (6, 3, 2, 4, 10, 1, 1),
]
EPS = (1e-6, 1e-5)  # the published models', and torch's own default: the paper names none


def reference(sizes):
    return ViT(ViTConfig(*sizes))


def images_for(sizes, B=3, dtype=torch.float32):
    return torch.randn(B, sizes[2], sizes[0], sizes[0], dtype=dtype)


def make(answer, sizes):
    slip(isinstance(answer, nn.Module), "got a module that is built already; hand over the class itself")
    model = answer(*sizes)
    slip(not isinstance(model, nn.Module), f"gives {marks.short(model)}; it should be an nn.Module")
    return model


def build(answer, sizes):
    """The learner's model with every number drawn anew, so that none is zero"""
    model = make(answer, sizes)
    with torch.no_grad():
        for p in trained(model):
            p.copy_(torch.randn(p.shape, dtype=p.dtype) * (0.3 if p.ndim > 1 else 0.5))
    return model


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def logits(model, images, sizes):
    B, K = len(images), sizes[3]
    when = f"for {tuple(images.shape)} and {K} classes"
    try:
        got = untouched(model, images)
    except (RuntimeError, ValueError) as error:
        words = str(error)
        sized = any(word in words for word in ("Sizes of tensors", "size of tensor", "expand", "must match"))
        slip(
            sized,
            f"raises an error about sizes for a batch of {B}: {marks.first_line(error).rstrip('.')}. The class token is one "
            "vector (1, 1, D), expanded in forward to the batch at hand; the positions are (1, T, D)",
        )
        raise
    if isinstance(got, torch.Tensor) and got.ndim == 3:
        slip(got.shape[0] == B, f"gives {tuple(got.shape)} {when}: a result for every token; the head reads x[:, 0] alone")
    if isinstance(got, torch.Tensor) and got.shape == (B, sizes[4]):
        raise marks.Slip(f"gives {tuple(got.shape)} {when}: D numbers, so the head is missing")
    expect_tensor(got, (B, K), when)
    return got


def model_shapes(answer):
    for sizes in SIZES:
        fresh = make(answer, sizes)
        for B in (2, 1, 4):
            got = logits(fresh, images_for(sizes, B), sizes)
            slip(not torch.isfinite(got).all(), "a fresh model gives NaN or infinity: is a parameter left as torch.empty?")


def shape_of(p):
    """A parameter's shape as a Linear, or a flat vector, would have it: the same for all right ways to keep it"""
    shape = tuple(p.shape)
    if len(shape) == 4 and shape[0] != 1:  # a convolution's kernel
        return shape[0], shape[1] * shape[2] * shape[3]
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def parts_wanted(sizes, rows):
    """How often each shape occurs; rows: of the pieces in which queries, keys and values are kept"""
    D, L, found = sizes[4], sizes[5], Counter(shape_of(p) for p in reference(sizes).parameters())
    pieces = 3 * D * L // rows
    return found - Counter({(3 * D, D): L, (3 * D,): L}) + Counter({(rows, D): pieces, (rows,): pieces})


def parts_found(model, sizes):
    _, P, C, K, D, *_ = sizes
    turned = {(C * P * P, D): (D, C * P * P), (D, K): (K, D)}  # a matrix as the paper writes it
    return Counter(turned.get(shape_of(p), shape_of(p)) for p in trained(model))


def qkv_rows(model, sizes):
    """3 D where one layer makes queries, keys and values, D where three do, D / h where each head has its own"""
    *_, D, _, heads = sizes
    return next((rows for rows in (3 * D, D // heads) if (rows, D) in parts_found(model, sizes)), D)


def part_slips(sizes, rows):
    """(missing shapes, shapes too many or None for any, the idea that slipped)"""
    image_size, P, C, K, D, L, _ = sizes
    N = (image_size // P) ** 2

    def shapes(*parts):
        return Counter(shape for part in parts for shape in part)

    token, places, short, norm, out = [(D,)], [(N + 1, D)], [(N, D)], [(D,)] * 2, [(D, D), (D,)]
    mlp, head, weight = [(4 * D, D), (4 * D,), (D, 4 * D)], [(K, D), (K,)], [(K, D)]
    block, none = [*mlp, *norm * 2, *out, *token, (3 * D, D), (3 * D,)], shapes()
    lost = "a plain tensor, or a parameter after .to() or an operation, is no parameter: the optimiser never moves it"
    return [
        (shapes(token, places), none, f"the class token and the positions are not registered; {lost}"),
        (shapes(places), none, f"the positions are not registered; {lost}"),
        (shapes(token), none, f"D numbers are missing: the projection's bias, half of a norm, or the class token; {lost}"),
        (shapes(places), shapes(short), "there are N positions; the class token has one too, T = N + 1"),
        (shapes(places), shapes(short, token), "keep the positions of all T tokens in one parameter, the class token's too"),
        (shapes(places, token), shapes(short), "there are N positions and no class token: T = N + 1 of both"),
        (shapes(places), shapes(token), "all tokens share one position; each of the T has its own"),
        (shapes(block * (L - 1)), none, "all blocks are one and the same: [block] * L repeats one block, so make L of them"),
        (
            shapes(block * L),
            none,
            "the blocks are not registered: a plain list hides them, use nn.ModuleList or nn.Sequential",
        ),
        (shapes(block), none, "there is one block too few: depth says how many"),
        (none, shapes(block), "there is one block too many: depth says how many"),
        (shapes(mlp * L), None, "the MLP is not 4 D wide inside"),
        (shapes([(rows,)] * (3 * D * L // rows)), none, "queries, keys and values have no bias"),
        (shapes(out * L), none, "attention has an output projection behind the heads, D x D with a bias"),
        (shapes(norm), none, "the last norm is missing: equation 4 norms once more after the last block"),
        (none, shapes(norm), "there is a norm too many; equation 4 has one, after the last block"),
        (shapes(norm * L), none, "each block has two norms of its own"),
        (shapes(head), none, "the head is missing, or not registered"),
        (shapes([(K,)]), none, "the head has no bias"),
        (shapes(weight), shapes([(K, (N + 1) * D)]), "the head reads all tokens in a row, not the class token"),
        (shapes(weight), None, "the head is a single linear layer, K x D, on the class token alone"),
        (none, shapes(out), "there is a D x D layer too many; the head is a single linear layer"),
        (shapes([(D, C * P * P), (D,)]), none, "the patch projection is missing, or not registered"),
        (shapes(token * (L * 6 + 3)), none, "biases and norms are missing"),
    ]


def model_parts(answer):
    for sizes in SIZES:
        model = make(answer, sizes)
        found, rows = parts_found(model, sizes), qkv_rows(model, sizes)
        tries = [parts_wanted(sizes, 3 * sizes[4]), wanted := parts_wanted(sizes, rows)]  # absent blocks are in no pieces
        if found == wanted:
            continue
        lacks, more = wanted - found, found - wanted
        for missing, extra, words in part_slips(sizes, rows):
            match = any(w - found == missing and (found - w == extra or extra is None) for w in tries)
            slip(match, f"{type(model).__name__} has {sum(p.numel() for p in model.parameters()):,} parameters: {words}")
        turned = Counter({shape[::-1]: n for shape, n in more.items()}) == lacks
        way_out = "; keep a weight as nn.Linear does, (out, in)" if turned else ""
        raise marks.Slip(
            f"has not the parameters of a ViT with D = {sizes[4]}, L = {sizes[5]}, K = {sizes[3]}: "
            f"lacks shapes {list(lacks) or 'none'}, has {list(more) or 'none'} too many{way_out}"
        )


def model_repeats(answer):
    for training in (True, False):
        sizes = SIZES[0]
        model, images = build(answer, sizes).train(training), images_for(sizes, 4)
        first, mode = logits(model, images, sizes), "training" if training else "evaluation"
        drawn = f"gives other logits at a second call in {mode} mode: a dropout, or a tensor drawn anew inside forward?"
        slip(not same(first, logits(model, images, sizes)), drawn)
        slip(
            same(first, first[:1].expand_as(first)),
            "different images get the same logits: the class token never sees a patch. Are the blocks called, and do "
            "they run along the tokens? (torch's attention needs batch_first=True)",
        )
        for kept in (0, 3):
            others = images_for(sizes, 4)
            others[kept] = images[kept]
            mixed = (
                f"images mix: other images in the batch change the logits of image {kept}. Which axis do blocks run along?"
            )
            slip(not same(first[kept], logits(model, others, sizes)[kept]), mixed)
        alone = logits(model, images[:1], sizes)
        slip(not same(first[:1], alone), "an image alone gives other logits than the same image in a batch")


def fill(model, table, sizes):
    """Give all parameters of one shape the same numbers: then two models agree whatever their parameters are called"""
    with torch.no_grad():
        for p in trained(model):
            shape = shape_of(p)
            numbers = table[shape] if shape in table else table[shape[::-1]].T
            p.copy_(numbers.reshape(p.shape))
    return model


def twins(answer, sizes, dtype=torch.float32):
    """The learner's model, and the references that it may equal: one for each eps of its norms, the published first"""
    mine, D = make(answer, sizes).to(dtype), sizes[4]
    rows = qkv_rows(mine, sizes)
    table = {s: torch.randn(s, dtype=dtype) for s in sorted(parts_wanted(sizes, rows))}
    table = {s: 0.5 + 0.5 * x if len(s) == 1 else x * 1.2 * s[-1] ** -0.5 for s, x in table.items()}
    table[3 * D, D], table[3 * D,] = table[rows, D].repeat(3 * D // rows, 1), table[rows,].repeat(3 * D // rows)
    right = []
    for in_blocks in EPS:
        for last in EPS:
            model = fill(reference(sizes).to(dtype), table, sizes)
            for norm in (m for m in model.blocks.modules() if isinstance(m, nn.LayerNorm)):
                norm.eps = in_blocks
            model.norm.eps = last
            right.append(model)
    return fill(mine, table, sizes), right


def run(blocks, x):
    for block in blocks:
        x = block(x)
    return x


def put_together(x, token, places):
    return torch.cat([token, x], dim=1) + places


STAGES = {  # of a right pass
    "cut": patchify,
    "embed": put_together,
    "block": lambda block, x: block(x),
    "encode": lambda blocks, norm, x: norm(run(blocks, x)),
    "read": lambda head, x: head(x[:, 0]),
}


def passed(model, images, **slipped):
    """One pass through the reference with a stage of its own"""
    stages = STAGES | slipped
    embed, blocks = model.token_embed, [partial(stages["block"], block) for block in model.blocks]
    x = model.patch_embed.proj(stages["cut"](images, model.patch_embed.patch_size))
    x = stages["embed"](x, embed.cls_token.expand(len(x), -1, -1), embed.pos_embed)
    return stages["read"](model.head, stages["encode"](blocks, model.norm, x))


def block_with(act=F.gelu, after=lambda x: x, keep=(1, 1)):
    """A block with another activation, something behind its MLP, or without one of its residuals"""

    def forward(b, x):
        x = keep[0] * x + b.attn(b.norm1(x))
        return keep[1] * x + after(b.mlp.fc2(act(b.mlp.fc1(b.norm2(x)))))

    return forward


MODEL_SLIPS = {  # by the stage of a pass: the idea that slipped, and how it goes then
    "encode": {
        "the last norm is never applied: equation 4 is y = LN(z_L^0)": lambda b, n, x: run(b, x),
        "the last norm stands before the blocks; it belongs behind them": lambda b, n, x: run(b, n(x)),
        "the last norm is used before the blocks too; it belongs behind them only": lambda b, n, x: n(run(b, n(x))),
        "the last norm is applied twice": lambda b, n, x: n(n(run(b, x))),
        "the last norm is applied after every block; once is enough": lambda b, n, x: run([f for g in b for f in (g, n)], x),
        "the blocks are never called": lambda b, n, x: n(x),
        "every block is applied twice; L blocks, once each": lambda b, n, x: n(run(b, run(b, x))),
        "every block reads what entered the first: z = block(z) hands it on": lambda b, n, x: n(b[-1](x)),
        "adds its input around all blocks; a block does that inside": lambda b, n, x: n(x + run(b, x)),
    },
    "block": {
        "adds its input around a block; the block does that inside": lambda b, x: x + b(x),
        "the norms stand behind attention and MLP; in a ViT they stand before (norm_first=True)": lambda b, x: b.norm2(
            (z := b.norm1(x + b.attn(x))) + b.mlp(z)
        ),
        "adds to the normed tokens; a residual adds to what came in": lambda b, x: (
            (z := b.norm2((y := b.norm1(x)) + b.attn(y))) + b.mlp(z)
        ),
        "attention and MLP read the same; the MLP reads z'": lambda b, x: x + b.attn(b.norm1(x)) + b.mlp(b.norm2(x)),
        "the MLP's result is added to z, not to z'": lambda b, x: x + b.mlp(b.norm2(x + b.attn(b.norm1(x)))),
        "the MLP is never applied": lambda b, x: x + b.attn(b.norm1(x)),
        "no norm stands before the MLP": lambda b, x: (z := x + b.attn(b.norm1(x))) + b.mlp(z),
        "the residual around attention is missing: z' = MSA(LN(z)) + z": block_with(keep=(0, 1)),
        "the residual around the MLP is missing": block_with(keep=(1, 0)),
        "both residuals of a block are missing": block_with(keep=(0, 0)),
        "a GELU stands behind the MLP's last layer too; it stands between the two": block_with(after=F.gelu),
        "the MLP uses ReLU; a ViT uses GELU": block_with(F.relu),
        "the MLP uses GELU's tanh approximation; take the exact one": block_with(partial(F.gelu, approximate="tanh")),
        "the MLP has no activation between its layers: GELU": block_with(lambda x: x),
    },
    "embed": {
        "the positions are never added": lambda x, c, p: torch.cat([c, x], dim=1),
        "the positions are added twice; TokenEmbed adds them already": lambda x, c, p: put_together(x, c, 2 * p),
        "all tokens get one position; each has its own": lambda x, c, p: put_together(x, c, p[:, :1]),
        "the class token is left without its position": lambda x, c, p: torch.cat([c, x + p[:, 1:]], dim=1),
        "the class token stands at the end; it should be token 0": lambda x, c, p: torch.cat([x, c], dim=1) + p,
        "the class token's own numbers are never used": lambda x, c, p: put_together(x, 0 * c, p),
        "there is no class token among the tokens": lambda x, c, p: x + p[:, 1:],
        "(B, D, N) becomes (B, N, D) by .mT, not by a reshape": lambda x, c, p: put_together(x.mT.reshape(x.shape), c, p),
    },
    "read": {
        "averages the patches; this model reads the class token, x[:, 0]": lambda h, x: h(x[:, 1:].mean(dim=1)),
        "averages all tokens; this model reads the class token, x[:, 0]": lambda h, x: h(x.mean(dim=1)),
        "reads the last token; the class token is token 0": lambda h, x: h(x[:, -1]),
        "reads token 1, a patch; the class token is token 0": lambda h, x: h(x[:, 1]),
        "a tanh stands before the head; the head is one linear layer": lambda h, x: h(x[:, 0].tanh()),
        "the head's bias is never added": lambda h, x: h(x[:, 0]) - h.bias,
        "gives probabilities; the head gives logits, the loss takes the softmax itself": lambda h, x: h(x[:, 0]).softmax(-1),
        "gives logarithms of probabilities; the head gives logits": lambda h, x: h(x[:, 0]).log_softmax(-1),
        "a sigmoid stands behind the head; it gives logits as they are": lambda h, x: h(x[:, 0]).sigmoid(),
    },
    "cut": {
        "cut by a bare view or reshape: pixel rows, no patches": lambda x, P: x.reshape(len(x), -1, P * P * x.shape[1]),
        "patches go down first, not left to right": lambda x, P: patchify(x.mT, P).unflatten(2, (-1, P, P)).mT.flatten(2),
        "rows and columns are swapped; the patches go left to right, then down": lambda x, P: patchify(x.mT, P),
        "a patch holds (P, P, C); here C goes first": lambda x, P: patchify(x, P).unflatten(2, (-1, P * P)).mT.flatten(2),
    },
}


def close(got, wanted):
    """As `same`, less tight in float32"""
    return same(got, wanted, atol=None if got.dtype == torch.float64 == wanted.dtype else 1e-4)


def equal_to(model, right, images, sizes):
    """The reference that the model equals; Slip with the mistake when there is none"""
    got = logits(model, images, sizes)
    slip(got.dtype != images.dtype, f"gives {got.dtype} for {images.dtype}; keep the type that came in")
    for one in right:
        if close(got, one(images)):
            return one
    for stage, slips in MODEL_SLIPS.items():
        for words, wrong in slips.items():
            for one in right:
                guess = passed(one, images, **{stage: wrong})
                slip(not close(guess, one(images)) and close(got, guess), words)
    if images.dtype == torch.float64 and same(got, right[0](images), atol=1e-3):
        rounded = (
            "the numbers of float64 images are only as exact as float32: is something rounded, or a norm's eps not 1e-6?"
        )
        raise marks.Slip(rounded)
    raise marks.Slip(
        "shapes and parameters are right, the logits are not: patches, tokens, all blocks in turn, the last norm, "
        "the class token, the head. A block of your own? Try it in the check of notebook 04"
    )


def model_numbers(answer):
    for sizes in SIZES:
        for training, dtype in ((True, torch.float32), (False, torch.float32), (True, torch.float64)):
            mine, right = twins(answer, sizes, dtype)
            for model in (mine, *right):
                model.train(training)
            equal_to(mine, right, images_for(sizes, dtype=dtype), sizes)


def summed_gradients(model, images):
    """The gradients of all parameters, those of one shape added up"""
    model.zero_grad()
    y = model(images)
    (y * torch.linspace(-1, 1, y.numel()).reshape(y.shape)).sum().backward()
    sums = {}
    for p in trained(model):
        shape = shape_of(p)
        sums[shape] = sums.get(shape, 0) + p.grad.reshape(shape)
    return sums


def model_gradients(answer):
    for sizes in SIZES:
        mine, right = twins(answer, sizes)
        images = images_for(sizes).requires_grad_()
        one = equal_to(mine, right, images.detach(), sizes)
        unused = [name for name, p in mine.named_parameters() if p.requires_grad and gradient(mine(images), p) is None]
        slip(bool(unused), f"no gradient reaches {', '.join(unused[:4])}: is it used, and not detached?")
        expect_gradient(mine(images), one(images), images)
        if qkv_rows(mine, sizes) == 3 * sizes[4]:
            got, wanted = summed_gradients(mine, images), summed_gradients(one, images)
            wrong = [s for s in got if not same(got[s], wanted[s] if s in wanted else wanted[s[::-1]].T, atol=1e-3)]
            slip(bool(wrong), f"gives the right logits, but parameters of shape {wrong} get a wrong gradient")


MODEL_IDEAS = [
    ("images in, K numbers out, for any batch", model_shapes),
    ("every part is registered: L separate blocks, class token, T positions, norm, head", model_parts),
    ("images in a batch do not mix, a second call gives the same", model_repeats),
    ("the numbers of equations 1 to 4, float64 too", model_numbers),
    ("gradients flow to the images and to every parameter", model_gradients),
]


def check_vit(answer):
    """Mark a class (image_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads): images -> logits."""
    return marks.check("vit", answer, MODEL_IDEAS)


def check_mend(answer):
    """Mark the mended class of the planted mistake, of the same form as `check_vit`'s."""
    return marks.check("mend", answer, MODEL_IDEAS)
