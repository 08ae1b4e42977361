"""Marks for the exercises of notebook 02."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from vit_helpers.checks.marks import (
    check,
    differ,
    expect_anywhere,
    expect_gradient,
    expect_steady,
    expect_tensor,
    first_line,
    gradient,
    same,
    short,
    slip,
    untouched,
)
from vit_helpers.embeddings import PatchEmbed, TokenEmbed, resize_positions, sincos_1d, sincos_positions
from vit_helpers.patches import patchify, unpatchify


def check_patch_embed(answer):
    """Mark a module class (patch_size, in_chans, embed_dim) with forward (B, C, H, W) -> (B, N, D)."""
    return check("patch_embed", answer, PATCH_EMBED)


def check_add_class_token(answer):
    """Mark a module class (embed_dim) with forward (B, N, D) -> (B, N + 1, D), the class token in front."""
    return check("add_class_token", answer, CLASS_TOKEN)


def check_token_embed(answer):
    """Mark a module class (num_patches, embed_dim) with forward (B, N, D) -> (B, N + 1, D): the mended one."""
    return check("token_embed", answer, TOKEN_EMBED)


def check_sincos(answer):
    """Mark a function (grid, dim) -> (N, dim): sines and cosines of the row, then of the column."""
    return check("sincos", answer, SINCOS)


def check_resize_positions(answer):
    """Mark a function (pos_embed, grid, new_grid) -> (1, T', D)."""
    return check("resize_positions", answer, RESIZE)


# What the checks of modules share


def build(answer, *sizes):
    """The learner's module; Slip when it is none"""
    slip(isinstance(answer, nn.Module), "hand over the class itself, without brackets behind its name")
    module = answer(*sizes)
    slip(module is None, "gives nothing back; hand over a class")
    slip(not isinstance(module, nn.Module), f"builds {short(module)}; it should be a class of nn.Module")
    return module


def alike(got, wanted):
    """Whether numbers are the same to float32's digits, computed in whatever type"""
    return same(got.float(), wanted)


def expect_shape(got, wanted, letters, when, known):
    """Slip unless the answer gave this shape.  known: other shapes, and the idea that slipped on the way to each"""
    for shape, words in known.items():
        came = isinstance(got, torch.Tensor) and tuple(got.shape) == shape != wanted
        slip(came, f"gives {shape} {when}, wanted {letters} = {wanted}: {words}")
    expect_tensor(got, wanted, when)


def expect_registered(module, wanted, words):
    """Slip unless the module learns as many numbers as wanted.  words: what to say to other counts"""
    got, frozen = (sum(p.numel() for p in module.parameters() if p.requires_grad == learns) for learns in (True, False))
    kept = sum(b.numel() for b in module.buffers())
    slip(frozen, f"has parameters with requires_grad=False ({frozen} numbers): let them learn, or leave them out")
    slip(got != wanted and got in words, words.get(got))
    slip(kept and got < wanted, f"keeps {kept} numbers as a buffer: a buffer is saved but never learned. Use nn.Parameter")
    slip(got != wanted, f"learns {got} numbers, it should learn {wanted}")


UNREGISTERED = (
    "is no registered parameter, so it is never trained and never saved: write self.name = nn.Parameter(...) in __init__ "
    "(and no .to(...) behind it)"
)


# Projection of patches

SIZES = [(2, 3, 8, 2, 4, 6), (4, 1, 5, 1, 8, 12), (3, 2, 7, 3, 9, 3)]  # P, C, D, B, H, W


def shape_of_tokens(answer):
    for P, C, D, B, H, W in SIZES:
        module, rows, cols = build(answer, P, C, D), H // P, W // P
        got = module(torch.randn(B, C, H, W))
        when = f"for images {(B, C, H, W)} and patches of {P}"
        N = rows * cols
        known = {
            (B, D, rows, cols): "flatten the grid, then move D to the end",
            (B, D, N): "N and D changed places, transpose them",
            (B, rows, cols, D): "lay the rows of the grid behind each other",
            (B, N, C * P * P): "cut, but not yet projected to width D",
            (B, (H - P + 1) * (W - P + 1), D): "the patches overlap. The stride of the convolution is P",
            (B, (H + 2) // P * ((W + 2) // P), D): "the convolution has a padding, it should have none",
            (B, N + 1, D): "the class token comes later",
        }
        expect_shape(got, (B, N, D), "(B, N, D)", when, known)


def projection_learned(answer):
    for P, C, D, B, H, W in SIZES:
        module, E = build(answer, P, C, D), C * P * P * D
        module(torch.zeros(B, C, H, W))  # a lazy layer has its weights now
        words = {
            0: f"the projection {UNREGISTERED}. A layer in a plain list is not registered either",
            E: f"learns {E} numbers, the weight alone; a bias of D = {D} numbers belongs to it in all published weights",
        }
        for norms in (2 * C * P * P, 2 * D, 2 * C * P * P + 2 * D):
            words[E + D + norms] = f"learns {norms} numbers too many: the paper's model has no LayerNorm here"
        expect_registered(module, E + D, words)
        expect_steady(module, torch.randn(B, C, H, W), (B, H // P * (W // P), D))


def projection_is_linear(answer):
    for P, C, D, B, H, W in SIZES:
        module = build(answer, P, C, D).double()
        one, two = torch.randn(2, B, C, H, W, dtype=torch.float64)
        zero = module(torch.zeros_like(one))
        with torch.no_grad():
            straight = alike(module(one) + module(two) - zero, module(one + two))
        slip(not straight, "is not linear in the pixels: no activation, no norm, no dropout belongs to the projection")
        alone = torch.cat([module(image[None]) for image in one])
        slip(not alike(alone, module(one)), "an image alone gets other tokens than in a batch: images must not mix")


def every_patch_in_its_place(answer):
    for P, C, D, B, H, W in SIZES:
        module, rows, cols = build(answer, P, C, D).double(), H // P, W // P
        module(torch.zeros(B, C, H, W, dtype=torch.float64))
        for p in module.parameters():
            nn.init.normal_(p)
        N = rows * cols
        marked = torch.eye(N, dtype=torch.float64)[:, :, None].expand(N, N, C * P * P)
        images = unpatchify(marked.contiguous(), P, (H, W))
        moved = (module(images) - module(torch.zeros_like(images))).abs().sum(2) > 1e-9  # (image n, token)
        right = torch.eye(N, dtype=torch.bool)
        down = torch.arange(N).reshape(rows, cols).T.flatten()
        slip(
            torch.equal(moved, right[:, down]) and not torch.equal(moved, right),
            "the patches are ordered top to bottom first; they should go left to right, then down: rows before columns",
        )
        slip(
            bool((moved.sum(1) > 1).any()),
            "changing one patch of the image changes several tokens: the cut goes wrong. Did you reshape without a permute?",
        )
        slip(not torch.equal(moved, right), "the tokens stand in another order than the patches, left to right, then down")


def equals_patch_embed(answer):
    for P, C, D, B, H, W in SIZES:
        for dtype in (torch.float32, torch.float64):
            mine, right = build(answer, P, C, D).to(dtype), PatchEmbed((H, W), P, C, D).to(dtype)
            nn.init.normal_(right.proj.bias)
            mine(torch.zeros(B, C, H, W, dtype=dtype))
            copied = all(carry(p, right.proj) for p in mine.parameters())
            slip(not copied, "keeps its weight in a form that no published weight fits: use nn.Linear or nn.Conv2d")
            images = torch.randn(B, C, H, W, dtype=dtype, requires_grad=True)
            got, wanted = mine(images), right(images)
            slip(got.dtype != dtype, f"turns {dtype} into {got.dtype}; keep the type")
            by_pixel = patchify(images, P).unflatten(2, (C, P * P)).transpose(2, 3).flatten(2)
            slip(
                C > 1 and same(got, right.proj(by_pixel)),
                "flattens a patch pixel by pixel (P, P, C); published weights want it channel by channel (C, P, P)",
            )
            transposed = patchify(images, P).unflatten(2, (C, P, P)).transpose(3, 4).flatten(2)
            slip(same(got, right.proj(transposed)), "reads each patch column by column; go row by row")
            slip(differ(got, wanted), "with the weights of PatchEmbed it gives other numbers than PatchEmbed")
            expect_gradient(got, wanted, images)
            mine(images.detach()).sum().backward()
            slip(any(p.grad is None for p in mine.parameters()), "no gradient reaches the weights: they would never learn")
            expect_anywhere(mine.float(), right.float(), images.float())


@torch.no_grad()
def carry(parameter, proj):
    """Copy the reference's weight or bias into a parameter of the same size; False when it fits in no way"""
    D, length = proj.weight.shape
    if parameter.numel() == D:
        parameter.copy_(proj.bias.reshape(parameter.shape))
    elif parameter.shape == (length, D):
        parameter.copy_(proj.weight.T)
    elif parameter.numel() == D * length and D in parameter.shape[:1]:
        parameter.copy_(proj.weight.reshape(parameter.shape))
    elif parameter.numel() == D * length and parameter.shape[-2:] == (length, D):
        parameter.copy_(proj.weight.T.reshape(parameter.shape))
    else:
        return False
    return True


PATCH_EMBED = [
    ("gives (B, N, D), for non-square and grey images too", shape_of_tokens),
    ("weight and bias are registered, and nothing else is learned", projection_learned),
    ("is linear, image by image", projection_is_linear),
    ("token n comes from patch n alone", every_patch_in_its_place),
    ("equals PatchEmbed with the same weights, gradients too", equals_patch_embed),
]


# The class token

BATCHES = [(4, 5, 6), (1, 9, 4), (3, 2, 8), (7, 5, 6)]  # B, N, D


def class_token_shape(answer, *, sizes=lambda N, D: (D,)):
    for B, N, D in BATCHES:
        module, x = build(answer, *sizes(N, D)), torch.randn(B, N, D)
        when = f"for patches {(B, N, D)}"
        try:
            got = module(x)
        except (RuntimeError, IndexError) as error:
            slip(
                any(word in str(error).lower() for word in ("size", "expand", "dimension")),
                f"raises an error about sizes {when}: {first_line(error)[:90]}. The token is one vector, "
                "(1, 1, D); expand it to the batch at hand, x.shape[0], inside forward",
            )
            raise
        known = {
            (B, N, D): "the class token is a token more, torch.cat it in front",
            (B + 1, N, D): "joined along the batch; tokens are along dim=1",
            (2 * B, N, D): "joined along the batch; tokens are along dim=1",
            (B, N + B, D): "one class token an image, not B of them",
            (B, 2 * N, D): "one class token an image, not one a patch",
            (B, N, D + 1): "joined along the width; tokens are along dim=1",
        }
        expect_shape(got, (B, N + 1, D), "(B, N + 1, D)", when, known)


def class_token_in_front(answer):
    for B, N, D in BATCHES:
        module, x = build(answer, D), torch.randn(B, N, D)
        expect_steady(module, x, (B, N + 1, D))
        got = module(x)
        slip(same(got[:, :-1], x), "the class token stands at the end; it should be token 0")
        slip(not same(got[:, 1:], x), "the patches behind the class token came out changed; here nothing is added to them")
        slip(
            not same(got[:, 0], got[:1, 0].expand(B, D)),
            "the images of a batch get different class tokens; it is one learned vector, the same for all. Use expand",
        )


def class_token_learned(answer):
    for B, N, D in BATCHES:
        module = build(answer, D)
        words = {0: f"the class token {UNREGISTERED}"}
        count = sum(p.numel() for p in module.parameters())
        if count > D and count % D == 0:
            words[count] = f"learns {count // D} vectors; the class token is one vector of D = {D}, whatever the batch size"
        expect_registered(module, D, words)
        token, *rest = module.parameters()
        slip(rest, f"keeps the vector in {1 + len(rest)} parts; one parameter of D = {D} numbers holds it")
        with torch.no_grad():
            token.copy_(torch.randn(D).reshape(token.shape))
        x = torch.randn(B, N, D)
        slip(
            not same(module(x)[:, 0], token.detach().reshape(1, D).expand(B, D)),
            "token 0 is not the learned vector; hand the vector on as it is (an average of patches is no class token)",
        )


def class_token_gradient(answer):
    for B, N, D in BATCHES:
        module = build(answer, D).double()
        x = torch.randn(B, N, D, dtype=torch.float64, requires_grad=True)
        (token,) = module.parameters()
        got = module(x)
        slip(got.dtype != torch.float64, f"turns torch.float64 into {got.dtype}; keep the type")
        right = torch.cat([token.reshape(1, 1, D).expand(B, 1, D), x], dim=1)
        slip(differ(got, right), "gives other numbers for float64 than for float32")
        slip(
            gradient(module(x), token) is None,
            "no gradient reaches the class token, so it is never learned: no .data, no .detach(), no torch.no_grad()",
        )
        for source in (token, x):
            expect_gradient(module(x), right, source)
        expect_anywhere(module.float(), TokenEmbed((1, N), D), x.float())


CLASS_TOKEN = [
    ("gives one token more, for every batch size", class_token_shape),
    ("the same vector stands in front of every image", class_token_in_front),
    ("it is one registered vector", class_token_learned),
    ("gradients reach it and the patches", class_token_gradient),
]


# Class token and positions: the mended module


def token_embed_learned(answer):
    for B, N, D in BATCHES:
        module = build(answer, N, D)
        expect_steady(module, torch.randn(B, N, D), (B, N + 1, D))
        T = N + 1
        words = {
            0: f"neither class token nor positions are learned: each {UNREGISTERED}",
            D: f"learns the class token alone, or one position; the other {UNREGISTERED}",
            2 * D: "learns two vectors: the class token, and one position for all patches. Then a patch still cannot tell "
            "where it stood: positions are (1, N + 1, D), one vector a token",
            T * D: "learns N positions, one too few: the class token gets a position too (E_pos has N + 1 rows)",
            3 * D: "learns three vectors: all patches share one position; each token needs its own",
        }
        if len(list(module.parameters())) == 1:
            words[T * D] = f"learns the positions alone: the class token {UNREGISTERED}"
        expect_registered(module, D + T * D, words)


def token_embed_sum(answer):
    for B, N, D in BATCHES:
        module = build(answer, N, D).double()
        token, positions = parts(module, N, D)
        slip(
            bool(positions.detach().std() > 0.3),
            "the positions start with a standard deviation near 1 and drown the patches: the published code has 0.02",
        )
        with torch.no_grad():
            for p in (token, positions):
                p.copy_(torch.randn_like(p))
        x = torch.randn(B, N, D, dtype=torch.float64, requires_grad=True)
        front, places = token.reshape(1, 1, D).expand(B, 1, D), positions.reshape(1, N + 1, D)
        row, right = torch.cat([front, x], dim=1), torch.cat([front, x], dim=1) + places
        got = module(x)
        for wrong, words in (
            (row, "the positions are never added"),
            (row + 2 * places, "the positions are added twice"),
            (row + places[:, :1], "one position vector is added to every token; each token has its own"),
            (row - places, "the positions are subtracted; equation 1 adds them"),
            (row * places, "the positions are multiplied; equation 1 adds them"),
            (
                torch.cat([front, x + places[:, 1:]], dim=1),
                "the class token is left without its position: add after the cat",
            ),
            (torch.cat([x, front], dim=1) + places, "the class token stands at the end; it should be token 0"),
            (row + places.roll(-1, 1), "the positions are off by one: row 0 of the table belongs to the class token"),
        ):
            slip(same(got, wrong), words)
        slip(differ(got, right), "is not [class token; patches] + positions, equation 1")
        for source in (token, positions, x):
            slip(gradient(module(x), source) is None, "no gradient reaches what should learn: no .data, no .detach()")
            expect_gradient(module(x), right, source)
        expect_anywhere(module.float(), TokenEmbed((1, N), D), x.float())


def parts(module, N, D):
    """Class token and positions among the parameters, told apart by their size"""
    by_size = {p.numel(): p for p in module.parameters() if p.requires_grad}
    slip(
        set(by_size) != {D, (N + 1) * D},
        "keep one parameter of D numbers for the class token and one of (N + 1) * D for the positions",
    )
    return by_size[D], by_size[(N + 1) * D]


TOKEN_EMBED = [
    ("gives one token more, for every batch size", partial(class_token_shape, sizes=lambda N, D: (N, D))),
    ("one class token and N + 1 positions are learned", token_embed_learned),
    ("adds to each token its own position, gradients too", token_embed_sum),
]


# Sines and cosines

GRIDS = [((3, 5), 8), ((4, 2), 16), ((1, 6), 12), ((7, 7), 64)]
FIRST_PLACE = {  # the numbers that a wrong answer holds for place (0, 0), and the idea that slipped
    frozenset(
        {0.0}
    ): "holds only sines: place (0, 0) is all zeros. Each axis has the sines and then the cosines of its angles",
    frozenset(
        {1.0}
    ): "holds only cosines: place (0, 0) is all ones. Each axis has the sines and then the cosines of its angles",
    frozenset({0.0, 2.0}): "adds row and column at full width; they stand side by side, half of the width each",
}


def sincos_shape(answer):
    for grid, dim in GRIDS:
        (rows, cols), got = grid, answer(grid, dim)
        N = rows * cols
        known = {
            (rows, cols, dim): "flatten the grid",
            (1, N, dim): "no batch axis here",
            (N + 1, dim): "patches only, no class token here",
            (N, dim // 2): "rows and columns stand side by side; join along the width, do not add",
            (N, 2 * dim): "half of the width for each axis",
        }
        table = isinstance(got, torch.Tensor) and got.ndim == 2 and len(got) == N
        held = frozenset(got[0].tolist()) if table else None
        slip(held in FIRST_PLACE, FIRST_PLACE.get(held))
        expect_shape(got, (N, dim), "(N, D)", f"for grid {grid} and width {dim}", known)
        slip(not got.is_floating_point(), f"gives whole numbers ({got.dtype}); sines and cosines are floats")
        slip(got.requires_grad, "is learned; these positions are fixed, so no nn.Parameter and no requires_grad")


def sincos_values(answer):
    for grid, dim in GRIDS:
        got, right = answer(grid, dim), sincos_positions(grid, dim)
        for words, wrong in sincos_slips(grid, dim):
            slip(not same(right, wrong) and alike(got, wrong), words)
        slip(
            not same(got[0].sort().values, right[0].sort().values),
            "place (0, 0) should hold sin 0 = 0 and cos 0 = 1 only: count rows and columns from 0",
        )
        reordered = same(got.sort(1).values, right.sort(1).values) and not same(got, right)
        slip(
            reordered,
            "holds the right numbers in another order: row before column; in each half the sines, then the cosines",
        )
        slip(not same(got, right), f"gives other numbers than it should for grid {grid} and width {dim}")


def sincos_slips(grid, dim):
    """What a wrong answer equals, and the idea that slipped"""
    (rows, cols), half = grid, dim // 2

    def two(one, order="rows"):
        row, col = one(rows), one(cols)
        if order == "down":
            return torch.cat([row.repeat(cols, 1), col.repeat_interleave(rows, dim=0)], dim=1)
        by_row, by_col = row.repeat_interleave(cols, dim=0), col.repeat(rows, 1)
        return torch.cat([by_row, by_col] if order == "rows" else [by_col, by_row], dim=1)

    def table(length, exponent, base=10000.0, first=0, scale=1.0):
        i = torch.arange(half // 2, dtype=torch.float64)
        places = scale * (torch.arange(length, dtype=torch.float64) + first)
        angles = torch.outer(places, base ** (-exponent * i))
        return torch.cat([angles.sin(), angles.cos()], dim=1)

    one = partial(sincos_1d, dim=half)
    yield "row and column changed places: the first half of the width says the row", two(one, "swapped")
    yield "the places go top to bottom first; patches go left to right, then down", two(one, "down")
    single = sincos_1d(rows * cols, dim)
    yield "that is the one-dimensional form: number n says neither row nor column", single
    wrong_exponent = "the exponent slipped: the frequencies are 10000^(-2i/m) with i = 0, 1, 2, ... and m = D / 2"
    for exponent in (1 / half, 4 / half, 1 / dim, 2 / dim, -2 / half, 2 / max(half - 2, 1), 1 / max(half // 2 - 1, 1)):
        yield wrong_exponent, two(partial(table, exponent=exponent))
    yield "the base slipped: it is 10000", two(partial(table, exponent=2 / half, base=1000.0))
    yield "places are counted from 0, not from 1", two(partial(table, exponent=2 / half, first=1))
    yield "sines come first, then cosines", two(lambda n: table(n, 2 / half)[:, swap(half)])
    mixed = torch.stack([torch.arange(half // 2), torch.arange(half // 2) + half // 2], dim=1).flatten()
    yield (
        "sines and cosines alternate; here all sines of an axis come first, then its cosines",
        two(lambda n: table(n, 2 / half)[:, mixed]),
    )


def swap(half):
    """The columns of a table of sines and cosines, cosines first"""
    return torch.cat([torch.arange(half // 2, half), torch.arange(half // 2)])


def sincos_refuses(answer):
    for dim in (6, 10, 5, 7, 9):
        try:
            answer((2, 3), dim)
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            slip(True, f"raises {type(error).__name__} for width {dim}; it should raise ValueError and say why")
        slip(True, f"takes width {dim}; two axes with sines and cosines need a multiple of 4, else raise ValueError")


SINCOS = [
    ("gives (N, D) fixed floats", sincos_shape),
    ("holds sines and cosines of the row, then of the column", sincos_values),
    ("raises ValueError for a width that is no multiple of 4", sincos_refuses),
]


# Resizing positions

STRETCHES = [((4, 4), (7, 7)), ((3, 5), (6, 4)), ((2, 6), (5, 9)), ((6, 4), (3, 2))]
METHODS = [
    {"mode": mode, "antialias": antialias, "align_corners": align}
    for mode in ("bicubic", "bilinear")
    for antialias in (True, False)
    for align in (False, True)
]


def stretch(pos_embed, grid, new_grid, **method):
    extra = pos_embed.shape[1] - grid[0] * grid[1]
    picture = pos_embed[:, extra:].transpose(1, 2).unflatten(2, grid)
    picture = F.interpolate(picture, size=new_grid, **method)
    return torch.cat([pos_embed[:, :extra], picture.flatten(2).transpose(1, 2)], dim=1)


def positions_of(grid, extra, D=6):
    return torch.randn(1, extra + grid[0] * grid[1], D, dtype=torch.float64)


def resized_shape(answer):
    for grid, new_grid in STRETCHES:
        for extra in (1, 0):
            pos_embed, N = positions_of(grid, extra), new_grid[0] * new_grid[1]
            got = untouched(answer, pos_embed, grid, new_grid)
            when = f"from {grid} to {new_grid} {'with' if extra else 'without'} a class token"
            known = {
                (1, N, 6): "the class token lost its position",
                (1, N + 1, 6): "a class token came from nowhere",
                (N + extra, 6): "keep the leading axis of length 1",
                (1, 6, *new_grid): "make a row of tokens of the picture again",
            }
            expect_shape(got, (1, N + extra, 6), "(1, T', D)", when, known)


def class_token_kept(answer):
    for grid, new_grid in STRETCHES:
        pos_embed = positions_of(grid, 1)
        got = answer(pos_embed, grid, new_grid)
        slip(alike(got[:, -1], pos_embed[:, 0]), "the class token's position moved to the end; it stays row 0")
        slip(
            not alike(got[:, 0], pos_embed[:, 0]),
            "the class token's position changed; it has no place in the image. Set it aside, and put it back",
        )


def resized_in_two_dimensions(answer):
    for grid, new_grid in STRETCHES:
        for extra in (1, 0):
            pos_embed = positions_of(grid, extra)
            got, patches = answer(pos_embed, grid, new_grid)[:, extra:], pos_embed[:, extra:]
            if any(alike(got, stretch(patches, grid, new_grid, **method)) for method in METHODS):
                continue
            for words, wrong in resize_slips(patches, grid, new_grid):
                slip(alike(got, wrong), words)
            slip(True, f"gives other numbers than bicubic interpolation over the grid, from {grid} to {new_grid}")


def resize_slips(patches, grid, new_grid):
    """What a wrong answer equals, and the idea that slipped"""
    D, N = patches.shape[2], new_grid[0] * new_grid[1]
    turned = (grid[1], grid[0])
    for method in METHODS:
        scrambled = F.interpolate(patches.reshape(1, D, *grid), size=new_grid, **method)
        yield (
            "reshaped (1, N, D) to (1, D, rows, cols) without moving axes: go by (1, rows, cols, D), then permute",
            scrambled.flatten(2).transpose(1, 2),
        )
        good = F.interpolate(patches.transpose(1, 2).unflatten(2, grid), size=new_grid, **method)
        yield "came back from picture to tokens by a reshape alone: flatten(2), then transpose(1, 2)", good.reshape(1, N, D)
        yield "reads the new grid column by column; patches go left to right, then down", good.mT.flatten(2).mT
        yield "rows and columns changed places", stretch(patches, turned, new_grid, **method)
        yield "rows and columns of the new grid changed places", stretch(patches, grid, new_grid[::-1], **method)
    for mode in ("nearest", "nearest-exact"):
        near = stretch(patches, grid, new_grid, mode=mode)
        yield "copies the nearest position; neighbours then share one. Interpolate: bicubic", near
    area = stretch(patches, grid, new_grid, mode="area")
    yield "takes the mean of an area; neighbours then share it. Interpolate: bicubic", area
    for align in (False, True):
        row = F.interpolate(patches.transpose(1, 2), size=N, mode="linear", align_corners=align)
        yield "stretches the positions as one long row; they lie on a grid, so stretch in two directions", row.mT
    copies = patches.repeat(1, -(-N // patches.shape[1]), 1)[:, :N]
    yield "repeats or cuts the list of positions; stretch the grid instead", copies
    padded = F.pad(patches, (0, 0, 0, max(0, N - patches.shape[1])))[:, :N]
    yield "repeats or cuts the list of positions; stretch the grid instead", padded


def resized_as_tensors_go(answer):
    for dtype in (torch.float32, torch.float64):
        pos_embed = positions_of((3, 4), 1).to(dtype).requires_grad_()
        same_grid = answer(pos_embed, (3, 4), (3, 4))
        slip(not alike(same_grid, pos_embed), "changes the positions although the grid stays the same")
        got = answer(pos_embed, (3, 4), (5, 6))
        slip(got.dtype != dtype, f"turns {dtype} into {got.dtype}; keep the type")
        rights = [stretch(pos_embed, (3, 4), (5, 6), **method) for method in METHODS]
        right = next((right for right in rights if alike(got, right)), None)
        slip(
            right is None, f"gives other numbers than bicubic interpolation over the grid, for learned positions of {dtype}"
        )
        expect_gradient(got, right, pos_embed)
    expect_anywhere(answer, resize_positions, positions_of((3, 4), 1).float(), (3, 4), (5, 6))


def resize_refuses(answer):
    for T in (14, 11):
        try:
            answer(torch.zeros(1, T, 6), (3, 4), (5, 6))
        except ValueError:
            continue
        except NotImplementedError:
            raise
        except Exception as error:
            slip(True, f"raises {type(error).__name__} for {T} positions on a 3 x 4 grid; raise ValueError and say why")
        slip(True, f"takes {T} positions for a 3 x 4 grid, which holds 12 or, with a class token, 13: raise ValueError")


RESIZE = [
    ("gives (1, T', D), with and without a class token", resized_shape),
    ("the class token keeps its position", class_token_kept),
    ("stretches in two directions, non-square grids too", resized_in_two_dimensions),
    ("keeps the type, passes gradients, leaves its input", resized_as_tensors_go),
    ("raises ValueError when positions and grid do not fit", resize_refuses),
]
