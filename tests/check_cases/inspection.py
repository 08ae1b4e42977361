"""Answers to the exercises of notebook 08."""

import math

import numpy as np
import torch
from einops import rearrange, reduce, repeat

# map_of


def map_by_view(weights, grid, query):
    rows, cols = grid
    token = 0 if query is None else 1 + query[0] * cols + query[1]
    return weights[:, token, 1:].view(-1, rows, cols)


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


def asked(token):
    """A map of another token, from its row and column."""
    return lambda w, g, q: map_by_view(w, g, None) if q is None else w[:, token(*g, *q), 1:].unflatten(1, g)


def of_map(change):
    return lambda w, g, q: change(map_by_fold(w, g, q))


MAP_RIGHT = [map_by_view, map_by_fold, map_by_loop]
MAP_WRONG = {
    "who looks at that token": lambda w, g, q: map_by_view(w.mT, g, q),
    "class token is token 0": lambda w, g, q: map_by_view(w if q is None else w.roll(1, 1), g, q),
    "off by one": lambda w, g, q: map_by_view(w.roll(1, 2), g, q),
    "columns before rows": [lambda w, g, q: w[:, 0, 1:].unflatten(1, g[::-1]), of_map(lambda m: m.transpose(1, 2))],
    "column by column": lambda w, g, q: rearrange(map_by_view(w, g, q).flatten(1), "h (c r) -> h r c", r=g[0]),
    "a row of numbers a head; fold it": of_map(lambda m: m.flatten(1)),
    "one picture; each of the": of_map(lambda m: m.sum(0)),
    "the number of columns": asked(lambda rows, cols, row, col: 1 + row * rows + col),
    "takes another patch": asked(lambda rows, cols, row, col: 1 + col * rows + row),
    " further": asked(lambda rows, cols, row, col: 1 + col * rows + row),
    "sum to 1": of_map(lambda m: m / m.sum((1, 2), keepdim=True)),
    "other numbers": of_map(torch.sqrt),
    "is `query` used?": lambda w, g, q: map_by_view(w, g, None),
    "it should give": lambda w, g, q: w[:, 0],
    "it should give a tensor": lambda w, g, q: "map",
    "ZeroDivisionError": lambda w, g, q: 1 / 0,
}

# distance


def centers(grid, P):
    return torch.tensor([[r * P, c * P] for r in range(grid[0]) for c in range(grid[1])], dtype=torch.float32)


def distances(grid, P, p=2):
    return torch.cdist(centers(grid, P), centers(grid, P), p=p)


def among(weights, dim=-1):
    w = weights[:, 1:, 1:]
    return w / w.sum(dim=dim, keepdim=True)


def weighted(distances=distances, among=among, mean=lambda x: x.sum(-1).mean(-1)):
    return lambda w, grid, P: mean(among(w) * distances(grid, P))


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


def distance_by_einsum(weights, grid, patch_size):
    p = centers(grid, patch_size) + patch_size / 2
    return torch.einsum("hij,ij->h", among(weights), (p[:, None] - p[None]).norm(dim=-1)) / len(p)


DISTANCE_RIGHT = [weighted(), distance_by_loop, distance_by_einsum]
DISTANCE_WRONG = {
    "counts in patches": weighted(lambda g, P: distances(g, 1)),
    "straight line is shorter": weighted(lambda g, P: distances(g, P, 1)),
    "root missing": weighted(lambda g, P: distances(g, P).square()),
    "divide by what the patches keep": weighted(among=lambda w: w[:, 1:, 1:]),
    "adds the queries up": weighted(mean=lambda x: x.flatten(1).sum(1)),
    "does not weigh by attention": lambda w, g, P: distances(g, P).mean() * torch.ones(len(w)),
    "farthest": lambda w, g, P: w.new_full((len(w),), P * math.hypot(g[0] - 1, g[1] - 1)),
    "average queries": weighted(mean=lambda x: x.flatten(1).mean(1)),
    "wrong axis": weighted(among=lambda w: among(w, dim=1)),
    "one number for each head": weighted(mean=lambda x: x.sum(2)),
    "column by column": [
        weighted(lambda g, P: distances((g[1], g[0]), P)),
        weighted(lambda g, P: rearrange(distances(g, P), "(r c) (s d) -> (c r) (d s)", r=g[0], s=g[0])),
    ],
    "it should give a tensor": lambda w, g, P: weighted()(w, g, P).mean().item(),
    "it stands nowhere": lambda w, g, P: (w * distances((1, w.shape[-1]), P)).sum(-1).mean(-1),
    "takes a softmax": weighted(among=lambda w: torch.softmax(w[:, 1:, 1:], 2)),
    "looks only along the rows": weighted(lambda g, P: (centers(g, P)[:, None, 1] - centers(g, P)[:, 1]).abs()),
    "looks only along the columns": weighted(lambda g, P: (centers(g, P)[:, None, 0] - centers(g, P)[:, 0]).abs()),
    "it should give": lambda w, g, P: 1.1 * weighted()(w, g, P) + 1,
    "was the first one kept?": lambda w, g, P, kept={}: kept.setdefault(w.shape, weighted()(w, g, P)),
}

# rollout


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


def chain(layers):
    """Later layers to the left of earlier ones."""
    return torch.linalg.multi_dot(layers[::-1]) if len(layers) > 1 else layers[0]


def one(w):
    return torch.eye(w.shape[-1])


def halves(weights):
    return [(w.mean(0) + one(w)) / 2 for w in weights]


def layers(change):
    """Rollout by another matrix of each layer."""
    return lambda ws: chain([change(w) for w in ws])


def keepdim_forgotten(weights):  # right all the same: with the identity, all rows sum to 2
    return chain([(w.mean(0) + one(w)) / (w.mean(0) + one(w)).sum(dim=-1) for w in weights])


def added(weights):
    flow = one(weights[0])
    for w in weights:
        flow = 0.5 * (one(w) + w.mean(0) @ flow)
    return flow


def emptied(weights):
    flow = one(weights[0])
    while weights:
        flow = halves([weights.pop(0)])[0] @ flow
    return flow


ROLLOUT_RIGHT = [rollout_by_loop, rollout_normalized, lambda ws: chain(halves(ws)), keepdim_forgotten]
ROLLOUT_WRONG = {
    "wrong order": lambda ws: chain(halves(ws)[::-1]),
    "what goes around the attention": layers(lambda w: w.mean(0)),
    "sum to 2, 4, 8": layers(lambda w: w.mean(0) + one(w)),
    "use @": lambda ws: math.prod(halves(ws)),
    "those of the identity too": lambda ws: math.prod(halves(ws), start=one(ws[0])),
    "not their product": lambda ws: sum(halves(ws)) / len(ws),
    "last layer alone": lambda ws: halves(ws[-1:])[0],
    "adds the heads up": layers(lambda w: (w.sum(0) + one(w)) / 2),
    "largest of the heads": layers(lambda w: (w.max(0).values + one(w)) / 2),
    "first head alone": layers(lambda w: (w[0] + one(w)) / 2),
    "after the product": lambda ws: (chain([w.mean(0) for w in ws]) + one(ws[0])) / 2,
    "turns rows into columns": lambda ws: chain(halves(ws)).T,
    "but other numbers": layers(lambda w: 0.9 * w.mean(0) + 0.1 * one(w)),
    "each should sum to 1": layers(lambda w: w.mean(0) + one(w) / 2),
    "outside the product": added,
    "first layer twice": lambda ws: chain([*halves(ws[:1]), *halves(ws)]),
    "it should give (5, 5)": lambda ws: torch.stack(list(ws)).mean(0),
    "changes its input": [emptied, lambda ws: [w.mul_(0.5) for w in ws] and chain(halves([2 * w for w in ws]))],
}

# mass


def mass_by_pixels(picture, place, patch_size):
    left, top, width, height = place
    pixels = picture.repeat_interleave(patch_size, dim=0).repeat_interleave(patch_size, dim=1)
    return (pixels[top : top + height, left : left + width].sum() / pixels.sum()).item()


def mass_by_kron(picture, place, P):
    x, y, w, h = place
    pixels = torch.kron(picture, torch.ones(P, P))
    mask = torch.zeros_like(pixels)
    mask[y : y + h, x : x + w] = 1
    return (pixels * mask).sum() / pixels.sum()


def mass_by_numpy(picture, place, P):
    pixels = np.repeat(np.repeat(picture.numpy(), P, 0), P, 1)
    x, y, w, h = place
    return pixels[y : y + h, x : x + w].sum() / pixels.sum()


def mass_by_overlap(picture, place, P):
    x, y, w, h = place
    total = 0.0
    for r in range(picture.shape[0]):
        for c in range(picture.shape[1]):
            across = max(0, min(x + w, (c + 1) * P) - max(x, c * P))
            down = max(0, min(y + h, (r + 1) * P) - max(y, r * P))
            total += picture[r, c].item() * across * down / P**2
    return total / picture.sum().item()


def up(m, P):
    return repeat(m, "r c -> (r p) (c q)", p=P, q=P)


def inside(m, p, P=1):
    return up(m, P)[p[1] : p[1] + p[3], p[0] : p[0] + p[2]]


def tiled(m, P):
    return repeat(m, "r c -> (p r) (q c)", p=P, q=P)


def in_patches(edges):
    """The share in patches, not pixels, from the edges of the place: first and one behind last."""

    def answer(m, p, P):
        (top, bottom), (left, right) = edges(p[1], p[3], P), edges(p[0], p[2], P)
        return m[top:bottom, left:right].sum() / m.sum()

    return answer


MASS_RIGHT = [mass_by_pixels, mass_by_kron, mass_by_numpy, mass_by_overlap]
MASS_WRONG = {
    "takes left for top": lambda m, p, P: mass_by_pixels(m, (p[1], p[0], p[3], p[2]), P),
    "they are lengths": lambda m, p, P: (up(m, P)[p[1] : p[3], p[0] : p[2]].sum() / up(m, P).sum()).item(),
    "over pixels, not over patches": in_patches(lambda start, long, P: (start // P, math.ceil((start + long) / P))),
    "leaves out the patches that are only partly inside":
        in_patches(lambda start, long, P: (math.ceil(start / P), (start + long) // P)),
    "where the place begins": in_patches(lambda start, long, P: (start // P, start // P + long // P)),
    "`repeat_interleave`": lambda m, p, P: inside(tiled(m, P), p).sum() / tiled(m, P).sum(),
    "not its share": lambda m, p, P: inside(m, p, P).sum(),
    "pixels over pixels": lambda m, p, P: inside(m, p, P).sum() / m.sum(),
    "the mean inside": lambda m, p, P: inside(m, p, P).mean(),
    "outside": lambda m, p, P: 1 - mass_by_pixels(m, p, P),
    "area of the place": lambda m, p, P: p[2] * p[3] / (m.numel() * P * P),
    "largest value inside": lambda m, p, P: inside(m, p, P).max() / m.max(),
    "it should give": lambda m, p, P: 100 * mass_by_pixels(m, p, P),
    "add up the pixels inside": lambda m, p, P: torch.tensor(mass_by_pixels(m, p, P) ** 2),
    "it should give a number": lambda m, p, P: m,
    "changes its input": lambda m, p, P: mass_by_pixels(m.div_(m.sum()), p, P),
}  # fmt: skip

# scaled


def spread(m):
    low, high = m.amin((1, 2), keepdim=True), m.amax((1, 2), keepdim=True)
    return (m - low) / (high - low)


SCALED_RIGHT = [lambda m: m / m.max(), lambda m: m.div(m.amax()), lambda m: m * (1 / m.max()), lambda m: m / m.max().item()]
SCALED_WRONG = {
    "stretches every head by itself": [spread, lambda m: spread(m) if m.amin() != m[0].amax() else m / 0],
    "divides every head by its own largest": lambda m: torch.stack([head / head.max() for head in m]),
    "smallest weight of all as 0": lambda m: spread(m.flatten()[None, None]).view_as(m),
    "subtracts each head's smallest": lambda m: (m - reduce(m, "h r c -> h 1 1", "min")) / m.max(),
    "sum of all": lambda m: m.flatten().div(m.sum()).view_as(m),
    "its own sum": lambda m: torch.nn.functional.normalize(m.flatten(1), p=1.0).view_as(m),
    "over their largest weight": lambda m: m,
    "changes its input": lambda m: m.div_(m.max()),
    "it should give (2, 2, 2)": lambda m: m.max(),
    "keep the type that came in": lambda m: m.double() / m.max(),
    "was the first one kept?": lambda m, kept={}: kept.setdefault(m.shape, m / m.max()),
}
RIGHT = {
    "map_of": MAP_RIGHT,
    "distance": DISTANCE_RIGHT,
    "rollout": ROLLOUT_RIGHT,
    "mass": MASS_RIGHT,
    "scaled": SCALED_RIGHT,
}
WRONG = {
    "map_of": MAP_WRONG,
    "distance": DISTANCE_WRONG,
    "rollout": ROLLOUT_WRONG,
    "mass": MASS_WRONG,
    "scaled": SCALED_WRONG,
}
