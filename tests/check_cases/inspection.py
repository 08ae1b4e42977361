"""Answers to the exercises of notebook 08.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

import math

import numpy as np
import torch

from check_cases import Program

# map_of

MAP = Program("""
def answer(w, grid, query):
    rows, cols = grid
    row, col = query or (0, 0)
    token = 0 if query is None else {{token: 1 + row * cols + col}}
    w = {{weights: w}}
    maps = w[:, {{take: token}}, 1:].view(-1, rows, cols)
    return {{give: maps}}
""")


def map_by_fold(w, g, q):
    patches = w[:, :, 1:].unflatten(2, g)
    return patches[:, 0] if q is None else patches[:, 1:].unflatten(1, g)[:, q[0], q[1]]


def map_by_loop(weights, grid, query):
    rows, cols = grid
    picture = torch.empty(len(weights), rows, cols)
    token = 0 if query is None else 1 + query[0] * cols + query[1]
    for r in range(rows):
        for c in range(cols):
            picture[:, r, c] = weights[:, token, 1 + r * cols + c]
    return picture


MAP_WRONG = MAP.wrong("weights", {
    "returns the weights that the other tokens give to this one":
        "w.mT", "class token is token 0": "w if query is None else w.roll(1, 1)",
    "off by one": "w.roll(1, 2)",
}) | MAP.wrong("give", {
    "the columns come before the rows":
        ["maps.flatten(1).unflatten(1, grid[::-1])", "maps.transpose(1, 2)"],
    "column by column": "rearrange(maps.flatten(1), 'h (c r) -> h r c', r=rows)",
    "is `query` used?": "w[:, 0, 1:].unflatten(1, grid)",
    "that is one row of numbers for each head": "maps.flatten(1)",
    "a single map": "maps.sum(0)", "sum to 1": "maps / maps.sum((1, 2), keepdim=True)",
    "the numbers are not the weights": "torch.sqrt(maps)",
    "it should give": "w[:, 0]", "it should give a tensor": "'map'",
    "ZeroDivisionError": "1 / 0",
}) | MAP.wrong("token", {
    "because a row has": "1 + row * rows + col", "uses the wrong patch": "1 + col * rows + row",
    " further": "1 + rows * col + row",
})  # fmt: skip

# distance

DISTANCE = Program("""
def answer(w, grid, P):
    P, (rows, cols) = {{side: P}}, {{grid: grid}}
    centers = [[r * P, c * P] for r in range(rows) for c in range(cols)]
    centers = torch.tensor(centers, dtype=torch.float32)
    far = {{far: torch.cdist(centers, centers)}}
    w = w[:, 1:, 1:]
    w = {{shares: w / w.sum(-1, keepdim=True)}}
    return {{give: (w * far).sum(-1).mean(-1)}}
""")


def along_a_line(w, grid, P):
    """The class token and the patches in one row, each token a patch further."""
    places = P * torch.arange(w.shape[-1]).float()[:, None]
    return (w * torch.cdist(places, places)).sum(-1).mean(-1)


def beside_the_patches(w, grid, P):
    """The class token at distance 0 from all."""
    rows, cols = np.indices(grid).reshape(2, -1)
    far = np.zeros(w.shape[1:])
    far[1:, 1:] = P * np.hypot(rows[:, None] - rows, cols[:, None] - cols)
    return torch.stack([(head * torch.from_numpy(far).float()).sum(1).mean() for head in w])


def distance_by_loop(weights, grid, patch_size):
    N = grid[0] * grid[1]
    out = []
    for head in weights:
        total = 0.0
        for i in range(N):
            row = head[1 + i, 1:] / head[1 + i, 1:].sum()
            for j in range(N):
                (a, b), (c, d) = divmod(i, grid[1]), divmod(j, grid[1])
                total += row[j] * math.hypot(a - c, b - d) * patch_size
        out.append(total / N)
    return torch.stack([torch.as_tensor(x) for x in out])


DISTANCE_WRONG = DISTANCE.wrong("far", {
    "straight line is shorter": "torch.cdist(centers, centers, p=1)",
    "root missing": "torch.cdist(centers, centers).square()",
    "measures only the horizontal distance": "(centers[:, None, 1] - centers[:, 1]).abs()",
    "measures only the vertical distance": "(centers[:, None, 0] - centers[:, 0]).abs()",
    "column by column":
        "rearrange(torch.cdist(centers, centers), '(r c) (s d) -> (c r) (d s)', r=rows, s=rows)",
}) | DISTANCE.wrong("shares", {
    "leaves out the class token without rescaling": "w", "wrong axis": "w / w.sum(1, keepdim=True)",
    "applies a softmax": "torch.softmax(w, 2)",
}) | DISTANCE.wrong("give", {
    "sums over the queries": "(w * far).flatten(1).sum(1)",
    "does not weight by attention": "far.mean() * torch.ones(len(w))",
    "farthest": "w.new_full((len(w),), P * math.hypot(rows - 1, cols - 1))",
    "one query too many": "(w * far).sum(-1).sum(-1) / (1 + rows * cols)",
    "average over the queries": "(w * far).flatten(1).mean(1)",
    "one number for each head": "(w * far).sum(2)",
    "it should give a tensor": "(w * far).mean().item()",
    "it should give": "1.1 * (w * far).sum(-1).mean(-1) + 1",
}) | {
    "measures in patches instead of pixels":
        DISTANCE(side="1"), "numbers the patches column by column": DISTANCE(grid="grid[::-1]"),
    "it has none": beside_the_patches,
    "; it should give": along_a_line,
    "was the first one kept?":
        lambda w, g, P, kept={}: kept.setdefault(w.shape, DISTANCE()(w, g, P)),
}  # fmt: skip

# rollout

ROLLOUT = Program("""
def answer(weights):
    eye = torch.eye(weights[0].shape[-1])
    means = [{{heads: w.mean(0)}} for w in weights]
    halves = [{{half: (w + eye) / 2}} for w in means]
    chain = lambda layers: torch.linalg.multi_dot(layers[::-1]) if len(layers) > 1 else layers[0]
    return {{give: chain(halves)}}
""")


def rollout_by_loop(weights):
    flow = torch.eye(weights[0].shape[-1])
    for layer in weights:
        flow = (0.5 * layer.mean(0) + 0.5 * torch.eye(len(flow))) @ flow
    return flow


def rollout_normalized(weights):
    eye = torch.eye(weights[0].shape[-1])
    result = None
    for layer in weights:
        a = layer.mean(dim=0) + eye
        a = a / a.sum(dim=-1, keepdim=True)
        result = a if result is None else a @ result
    return result


def added(weights):
    flow = eye = torch.eye(weights[0].shape[-1])
    for w in weights:
        flow = 0.5 * (eye + w.mean(0) @ flow)
    return flow


def sharp_if_even(weights):
    """One mistake where T is even, none where it is odd."""
    flow = eye = torch.eye(weights[0].shape[-1])
    for layer in weights:
        layer = layer.mean(dim=0)
        flow = (layer if len(eye) % 2 == 0 else (eye + layer) / 2) @ flow
    return flow


def emptied(weights):
    flow = eye = torch.eye(weights[0].shape[-1])
    while weights:
        flow = (weights.pop(0).mean(0) + eye) / 2 @ flow
    return flow


ROLLOUT_WRONG = ROLLOUT.wrong("half", {
    "leaves out the residual connection":
        "w", "sum to 2, 4, 8": "w + eye", "returns rows that sum to 1": "0.9 * w + 0.1 * eye",
    "returns rows whose sums are": "w + eye / 2",
}) | ROLLOUT.wrong("heads", {
    "sums over the heads":
        "w.sum(0)",
    "uses the maximum over the heads": "w.max(0).values", "uses only the first head": "w[0]",
}) | ROLLOUT.wrong("give", {
    "wrong order": "chain(halves[::-1])", "by element instead of using @": "math.prod(halves)",
    "also by the identity":
        "math.prod(halves, start=eye)",
    "returns the mean of the blocks": "sum(halves) / len(halves)",
    "last block alone": "halves[-1]", "after the product": "(chain(means) + eye) / 2",
    "transposes the result": "chain(halves).T", "first block twice": "chain([halves[0], *halves])",
    "it should give (5, 5)": "torch.stack(weights).mean(0)",
    "leaves out the first block": "chain(halves[1:] or [eye])",
    "leaves out the last block": "chain(halves[:-1] or [eye])",
    "changes its input: argument 1, a list, of which an element":
        "[w.mul_(0.5) for w in weights] and chain(halves)",
    "a list, has other elements than before, or in another order; make a new list":
        "weights.reverse() or chain(halves)",
    "are both (T, T)": ["chain([(w.mean(1) + eye) / 2 for w in weights])",
        "chain(halves) @ torch.eye(len(weights))"],
}) | {"outside the product": added, "make a new list": emptied,
    "for 6 blocks: returns rows that sum to 1, but the": sharp_if_even}  # fmt: skip

# fraction_inside

INSIDE = Program("""
def answer(m, place, P):
    left, top, width, height = place
    {{place: pass}}
    pixels = {{pixels: m.repeat_interleave(P, dim=0).repeat_interleave(P, dim=1)}}
    inside = pixels[{{rows: top : top + height}}, {{cols: left : left + width}}]
    share = inside.sum() / pixels.sum()
    return {{give: share.item()}}
""")


def inside_by_overlap(picture, place, P):
    x, y, w, h = place
    total = 0.0
    for r in range(picture.shape[0]):
        for c in range(picture.shape[1]):
            across = max(0, min(x + w, (c + 1) * P) - max(x, c * P))
            down = max(0, min(y + h, (r + 1) * P) - max(y, r * P))
            total += picture[r, c].item() * across * down / P**2
    return total / picture.sum().item()


def in_patches(first, last):
    """The share in patches, not pixels, between these edges."""
    along = f"{first} : {last}"
    rows, cols = (
        along.replace("start", "top").replace("long", "height"),
        along.replace("start", "left").replace("long", "width"),
    )
    return INSIDE(pixels="m", rows=rows, cols=cols)


INSIDE_RIGHT = [
    INSIDE(),
    inside_by_overlap,
    INSIDE(pixels="torch.kron(m, torch.ones(P, P))", give="share"),
    INSIDE(pixels="np.repeat(np.repeat(m.numpy(), P, 0), P, 1)"),
]
INSIDE_WRONG = INSIDE.wrong("give", {
    "this is the sum inside the box":
        "inside.sum()",
    "divide pixels by pixels": "inside.sum() / m.sum()", "the mean inside": "inside.mean()",
    "outside": "1 - share",
    "this is the box's fraction of the area": "width * height / (m.numel() * P * P)",
    "largest value inside": "inside.max() / m.max()", "it should give": "100 * share",
    "add up the pixels inside": "share**2", "it should give a number": "m",
    "changes its input": "m.div_(m.sum()) is m and share",
}) | {
    "swaps left and top": INSIDE(place="left, top, width, height = top, left, height, width"),
    "swaps width and height": INSIDE(place="left, top, height, width = place"),
    "they are lengths": INSIDE(rows="top:height", cols="left:width"),
    "`repeat_interleave`": INSIDE(pixels="m.tile(P, P)"),
    "to pixels, not to patches": in_patches("start // P", "math.ceil((start + long) / P)"),
    "leaves out the patches that are only partly inside":
        in_patches("math.ceil(start / P)", "(start + long) // P"),
    "where the box begins": in_patches("start // P", "start // P + long // P"),
}  # fmt: skip

# scaled

SCALED = Program("""
def answer(m):
    low, high = m.amin((1, 2), keepdim=True), m.amax((1, 2), keepdim=True)
    return {{give: m / m.max()}}
""")
SCALED_WRONG = SCALED.wrong("give", {
    "rescales every head by itself":
        ["(m - low) / (high - low)", "(m - low) / (high - low) if low.min() < high[0] else m / 0"],
    "divides every head by its own largest": "torch.stack([head / head.max() for head in m])",
    "turns the smallest weight of all into 0": "(m - low.min()) / (high.max() - low.min())",
    "subtracts each head's smallest": "(m - low) / high.max()",
    "sum of all": "m.flatten().div(m.sum()).view_as(m)",
    "its own sum": "F.normalize(m.flatten(1), p=1.0).view_as(m)",
    "divided by their largest weight": "m",
    "changes its input": "m.div_(m.max())", "it should give (2, 2, 2)": "m.max()",
    "keep the type that came in": "m.double() / m.max()",
}) | {
    "was the first one kept?": lambda m, kept={}: kept.setdefault(m.shape, m / m.max()),
}  # fmt: skip

RIGHT = {
    "map_of": [MAP(), map_by_fold, map_by_loop],
    "distance": [
        DISTANCE(),
        distance_by_loop,
        DISTANCE(
            far="(centers[:, None] - centers[None]).norm(dim=-1)",
            give="torch.einsum('hij,ij->h', w, far) / len(far)",
        ),
    ],
    "rollout": [
        ROLLOUT(),
        rollout_by_loop,
        rollout_normalized,
        ROLLOUT(half="(w + eye) / (w + eye).sum(dim=-1)"),
    ],
    "fraction_inside": INSIDE_RIGHT,
    "scaled": [
        SCALED(give="m / m.max()"),
        SCALED(give="m.div(m.amax())"),
        SCALED(give="m * (1 / m.max())"),
        SCALED(give="m / m.max().item()"),
    ],
}
WRONG = {
    "map_of": MAP_WRONG,
    "distance": DISTANCE_WRONG,
    "rollout": ROLLOUT_WRONG,
    "fraction_inside": INSIDE_WRONG,
    "scaled": SCALED_WRONG,
}
