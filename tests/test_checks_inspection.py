"""A museum of answers: the right ones pass however they are written, the wrong ones are told what slipped."""

import math

import numpy as np
import pytest
import torch

from vit_helpers.checks.inspection import check_distance, check_map, check_mass, check_rollout, check_scaled


def not_written(*_):
    raise NotImplementedError("your turn: replace this line")


# map


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


def token_of(grid, query):
    return 0 if query is None else 1 + query[0] * grid[1] + query[1]


MAP_WRONG = [
    (lambda w, g, q: w[:, 1:, token_of(g, q)].unflatten(1, g), "who looks at that token"),
    (lambda w, g, q: w[:, 0 if q is None else token_of(g, q) - 1, 1:].unflatten(1, g), "class token is token 0"),
    (lambda w, g, q: w[:, token_of(g, q), :-1].unflatten(1, g), "off by one"),
    (lambda w, g, q: w[:, token_of(g, q), 1:].unflatten(1, (g[1], g[0])), "columns before rows"),
    (lambda w, g, q: w[:, token_of(g, q), 1:].unflatten(1, (g[1], g[0])).transpose(1, 2), "column by column"),
    (lambda w, g, q: w[:, token_of(g, q), 1:], "fold it"),
    (lambda w, g, q: w[:, token_of(g, q), 1:].unflatten(1, g).mean(0), "each of the 3 heads has its own"),
    (lambda w, g, q: w[:, 0 if q is None else 1 + q[1] * g[0] + q[0], 1:].unflatten(1, g), "takes another patch"),
    (lambda w, g, q: w[:, 0 if q is None else 1 + q[0] * g[0] + q[1], 1:].unflatten(1, g), "the number of columns"),
    (lambda w, g, q: (lambda m: m / m.sum((1, 2), keepdim=True))(w[:, token_of(g, q), 1:].unflatten(1, g)), "sum to 1"),
    (lambda w, g, q: w[:, token_of(g, q), 1:].unflatten(1, g).sqrt(), "other numbers"),
    (lambda w, g, q: w[:, 0, 1:].unflatten(1, g), "is `query` used?"),
    (lambda w, g, q: w[:, token_of(g, q)], "it should give"),
    (lambda w, g, q: None, "gives nothing back"),
    (lambda w, g, q: "map", "it should give a tensor"),
    (lambda w, g, q: 1 / 0, "ZeroDivisionError"),
]  # fmt: skip


# distance


def centres(grid, P):
    return torch.tensor([[r * P, c * P] for r in range(grid[0]) for c in range(grid[1])], dtype=torch.float32)


def distance_by_cdist(weights, grid, patch_size):
    d = torch.cdist(centres(grid, patch_size), centres(grid, patch_size))
    w = weights[:, 1:, 1:]
    return (w * d).sum(-1).div(w.sum(-1)).mean(-1)


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
    p = centres(grid, patch_size) + patch_size / 2
    d = (p[:, None] - p[None]).norm(dim=-1)
    w = weights[:, 1:, 1:]
    w = w / w.sum(dim=2, keepdim=True)
    return torch.einsum("hij,ij->h", w, d) / len(p)


def distances(grid, P):
    return torch.cdist(centres(grid, P), centres(grid, P))


def among(weights, dim=-1):
    w = weights[:, 1:, 1:]
    return w / w.sum(dim=dim, keepdim=True)


def manhattan(grid, P):
    return torch.cdist(centres(grid, P), centres(grid, P), p=1)


def by_columns(grid, P):
    return torch.tensor([[r * P, c * P] for c in range(grid[1]) for r in range(grid[0])], dtype=torch.float32)


DISTANCE_WRONG = [
    (lambda w, g, P: (among(w) * distances(g, 1)).sum(-1).mean(-1), "counts in patches"),
    (lambda w, g, P: (among(w) * manhattan(g, P)).sum(-1).mean(-1), "straight line is shorter"),
    (lambda w, g, P: (among(w) * distances(g, P) ** 2).sum(-1).mean(-1), "root missing"),
    (lambda w, g, P: (w[:, 1:, 1:] * distances(g, P)).sum(-1).mean(-1), "divide by what the patches keep"),
    (lambda w, g, P: (among(w) * distances(g, P)).sum((-1, -2)), "adds the queries up"),
    (lambda w, g, P: distances(g, P).mean().expand(len(w)), "does not weigh by attention"),
    (lambda w, g, P: distances(g, P).max().expand(len(w)), "farthest"),
    (lambda w, g, P: (among(w) * distances(g, P)).mean((-1, -2)), "average queries"),
    (lambda w, g, P: (among(w, dim=-2) * distances(g, P)).sum(-1).mean(-1), "wrong axis"),
    (lambda w, g, P: (among(w) * distances(g, P)).sum(-1), "one number for each"),
    (lambda w, g, P: (among(w) * distances((g[1], g[0]), P)).sum(-1).mean(-1), "column by column"),
    (lambda w, g, P: float((among(w) * distances(g, P)).sum(-1).mean()), "it should give a tensor"),
    (lambda w, g, P: (w * distances((1, w.shape[-1]), P)).sum(-1).mean(-1), "it stands nowhere"),
    (lambda w, g, P: (among(w) * torch.cdist(by_columns(g, P), by_columns(g, P))).sum(-1).mean(-1), "column by column"),
    (lambda w, g, P: (w[:, 1:, 1:].softmax(-1) * distances(g, P)).sum(-1).mean(-1), "takes a softmax"),
    (lambda w, g, P: None, "gives nothing back"),
]


# rollout


def rollout_by_loop(weights):
    flow = torch.eye(weights[0].shape[-1])
    for layer in weights:
        flow = (0.5 * layer.mean(0) + 0.5 * torch.eye(len(flow))) @ flow
    return flow


def rollout_normalised(weights):
    eye = torch.eye(weights[0].shape[-1])
    result = None
    for layer in weights:
        a = layer.mean(dim=0) + eye
        a = a / a.sum(dim=-1, keepdim=True)
        result = a if result is None else a @ result
    return result


def rollout_chained(weights):
    T = weights[0].shape[-1]
    halves = [(w.mean(0) + torch.eye(T)) / 2 for w in weights]
    return torch.linalg.multi_dot(halves[::-1]) if len(halves) > 1 else halves[0]


def chain(layers, right=False):
    flow = torch.eye(layers[0].shape[-1])
    for layer in layers:
        flow = flow @ layer if right else layer @ flow
    return flow


def halves(weights):
    return [(w.mean(0) + torch.eye(w.shape[-1])) / 2 for w in weights]


def keepdim_forgotten(weights):  # right all the same: with the identity, all rows sum to 2
    eye = torch.eye(weights[0].shape[-1])
    return chain([(w.mean(0) + eye) / (w.mean(0) + eye).sum(dim=-1) for w in weights])


def added(weights):
    flow = eye = torch.eye(weights[0].shape[-1])
    for w in weights:
        flow = eye / 2 + w.mean(0) / 2 @ flow
    return flow


ROLLOUT_WRONG = [
    (lambda ws: chain(halves(ws), right=True), "wrong order"),
    (lambda ws: chain([w.mean(0) for w in ws]), "what goes around the attention"),
    (lambda ws: chain([w.mean(0) + torch.eye(w.shape[-1]) for w in ws]), "sum to 2, 4, 8"),
    (lambda ws: torch.stack(halves(ws)).prod(0), "use @"),
    (lambda ws: torch.stack(halves(ws)).prod(0) * torch.eye(ws[0].shape[-1]), "use @"),
    (lambda ws: torch.stack(halves(ws)).mean(0), "not their product"),
    (lambda ws: halves(ws)[-1], "last layer alone"),
    (lambda ws: chain([(w.sum(0) + torch.eye(w.shape[-1])) / 2 for w in ws]), "adds the heads up"),
    (lambda ws: chain([(w.amax(0) + torch.eye(w.shape[-1])) / 2 for w in ws]), "largest of the heads"),
    (lambda ws: chain([(w[0] + torch.eye(w.shape[-1])) / 2 for w in ws]), "first head alone"),
    (lambda ws: chain(halves(ws)).T, "turns rows into columns"),
    (lambda ws: chain([0.9 * w.mean(0) + 0.1 * torch.eye(w.shape[-1]) for w in ws]), "but other numbers"),
    (lambda ws: added(ws), "outside the product"),
    (lambda ws: chain([halves(ws)[0], *halves(ws)]), "first layer twice"),
    (lambda ws: torch.stack(list(ws)).mean(0), "it should give (5, 5)"),
    (lambda ws: [w.mul_(0.5) for w in ws] and chain(halves([2 * w for w in ws])), "changes its input"),
    (lambda ws: None, "gives nothing back"),
]  # fmt: skip


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


def up(picture, P):
    return picture.repeat_interleave(P, 0).repeat_interleave(P, 1)


MASS_WRONG = [
    (lambda m, p, P: mass_by_pixels(m, (p[1], p[0], p[3], p[2]), P), "takes left for top"),
    (lambda m, p, P: (up(m, P)[p[1] : p[3], p[0] : p[2]].sum() / up(m, P).sum()).item(), "they are lengths"),
    (lambda m, p, P: (m[p[1] // P : -(-(p[1] + p[3]) // P), p[0] // P : -(-(p[0] + p[2]) // P)].sum() / m.sum()).item(),
     "over pixels, not over patches"),
    (lambda m, p, P: (m[-(-p[1] // P) : (p[1] + p[3]) // P, -(-p[0] // P) : (p[0] + p[2]) // P].sum() / m.sum()).item(),
     "only partly inside"),
    (lambda m, p, P: up(m, P)[p[1] : p[1] + p[3], p[0] : p[0] + p[2]].sum().item(), "not its share"),
    (lambda m, p, P: (up(m, P)[p[1] : p[1] + p[3], p[0] : p[0] + p[2]].sum() / m.sum()).item(), "pixels over pixels"),
    (lambda m, p, P: up(m, P)[p[1] : p[1] + p[3], p[0] : p[0] + p[2]].mean().item(), "the mean inside"),
    (lambda m, p, P: 1 - mass_by_pixels(m, p, P), "outside"),
    (lambda m, p, P: p[2] * p[3] / (m.numel() * P * P), "area of the place"),
    (lambda m, p, P: (up(m, P)[p[1] : p[1] + p[3], p[0] : p[0] + p[2]].max() / m.max()).item(), "largest value inside"),
    (lambda m, p, P: 100 * mass_by_pixels(m, p, P), "it should give"),
    (lambda m, p, P: None, "gives nothing back"),
    (lambda m, p, P: m, "it should give a number"),
]  # fmt: skip


# scaled


def spread(m):
    low, high = m.amin((1, 2), keepdim=True), m.amax((1, 2), keepdim=True)
    return (m - low) / (high - low)


SCALED_WRONG = [
    (spread, "stretches every head by itself"),
    (lambda m: spread(m) if m.amin() != m[0].amax() else m / 0, "stretches every head by itself"),
    (lambda m: m / m.amax((1, 2), keepdim=True), "divides every head by its own largest"),
    (lambda m: (m - m.min()) / (m.max() - m.min()), "smallest weight of all as 0"),
    (lambda m: (m - m.amin((1, 2), keepdim=True)) / m.max(), "subtracts each head's smallest"),
    (lambda m: m / m.sum(), "sum of all"),
    (lambda m: m / m.sum((1, 2), keepdim=True), "its own sum"),
    (lambda m: m, "over their largest weight"),
    (lambda m: m.div_(m.max()), "changes its input"),
    (lambda m: m.max(), "it should give (2, 2, 2)"),
    (lambda m: None, "gives nothing back"),
]

RIGHT = (
    [(check_map, answer) for answer in (map_by_view, map_by_fold, map_by_loop)]
    + [(check_distance, answer) for answer in (distance_by_cdist, distance_by_loop, distance_by_einsum)]
    + [(check_rollout, answer) for answer in (rollout_by_loop, rollout_normalised, rollout_chained, keepdim_forgotten)]
    + [(check_mass, answer) for answer in (mass_by_pixels, mass_by_kron, mass_by_numpy, mass_by_overlap)]
    + [(check_scaled, answer) for answer in (lambda m: m / m.max(), lambda m: m.div(m.amax()), lambda m: m * (1 / m.max()))]
)
WRONG = (
    [(check_map, *pair) for pair in MAP_WRONG]
    + [(check_distance, *pair) for pair in DISTANCE_WRONG]
    + [(check_rollout, *pair) for pair in ROLLOUT_WRONG]
    + [(check_mass, *pair) for pair in MASS_WRONG]
    + [(check_scaled, *pair) for pair in SCALED_WRONG]
)
CHECKS = (check_map, check_distance, check_rollout, check_mass, check_scaled)


@pytest.mark.parametrize(("check", "answer"), RIGHT)
def test_right_answers_pass(check, answer, capsys):
    assert check(answer) is True
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("[v]") for line in lines)


@pytest.mark.parametrize(("check", "answer", "says"), WRONG)
def test_wrong_answers_are_told_what_slipped(check, answer, says, capsys):
    assert check(answer) is False
    *before, last = capsys.readouterr().out.splitlines()
    assert last.startswith("[x]") and says in last, last
    assert all(line.startswith("[v]") for line in before)


@pytest.mark.parametrize("check", CHECKS)
def test_not_written_yet(check, capsys):
    assert check(not_written) is False
    assert capsys.readouterr().out.endswith("not written yet\n")


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("thing", [None, 3, "text", torch.ones(2)])
def test_what_is_no_function_is_refused(check, thing, capsys):
    assert check(thing) is False and "without brackets" in capsys.readouterr().out
