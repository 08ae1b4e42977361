"""Marks for the exercises of notebook 08."""

import torch

from vit_helpers import inspection
from vit_helpers.checks import marks
from vit_helpers.checks.ablation import as_number, close
from vit_helpers.checks.marks import expect_tensor, same, slip
from vit_helpers.inspection import localization


def some_weights(*shape):
    """Attention weights, made up: rows that sum to 1, and no two alike"""
    own = torch.Generator().manual_seed(3)
    return (2 * torch.randn(shape, generator=own)).softmax(dim=-1)


def name_slip(got, slips):
    """Slip with the words of the first wrong way whose numbers came.  slips: pairs (words, numbers)"""
    for words, wrong in slips:
        slip(wrong.shape == got.shape and same(got, wrong.to(got.dtype)), words)


# One token's map

MAPS = [((3, 4), None), ((3, 4), (2, 1)), ((3, 4), (0, 0)), ((5, 2), (3, 1)), ((1, 6), (0, 4))]


def check_map(answer):
    """Mark a function (weights, grid, query) -> what one token looks at, a picture for each head."""
    ideas = [
        ("what the class token looks at, in rows and columns of patches", map_of_class),
        ("what any patch looks at", map_of_patches),
        ("the weights themselves, its input left as it was", map_is_plain),
    ]
    return marks.check("map_of", answer, ideas)


def try_map(answer, grid, query, weights=None):
    rows, cols = grid
    T = rows * cols + 1
    weights = some_weights(3, T, T) if weights is None else weights
    who = "the class token" if query is None else f"patch {query}"
    when = f"for {who} on {rows} x {cols} patches"
    got = marks.untouched(lambda w: answer(w, grid, query), weights)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    wanted = inspection.attention_map(weights, grid, query)
    if isinstance(got, torch.Tensor):
        name_map_slip(got, wanted, weights, grid, query, when)
    expect_tensor(got, (len(weights), rows, cols), when)
    slip(marks.differ(got, wanted), f"gives other numbers than the weights {when}")


def name_map_slip(got, wanted, weights, grid, query, when):
    rows, cols = grid
    slip(tuple(got.shape) == (len(weights), rows * cols), f"gives a row of {rows * cols} numbers a head {when}; fold it")
    slip(tuple(got.shape) == (rows, cols), f"gives one picture {when}; each of the {len(weights)} heads has its own")
    slip(tuple(got.shape) == (len(weights), cols, rows) and rows != cols, f"gives columns before rows {when}")
    token = 0 if query is None else 1 + query[0] * cols + query[1]
    words = (
        (f"gives who looks at that token {when}: rows of the weights are those who ask, columns those who are asked",
         weights[:, 1:, token]),
        (f"forgets that the class token is token 0 {when}: patch 0 is token 1", weights[:, max(token - 1, 0), 1:]),
        (f"takes the weights on the class token along {when}, so that every patch is off by one: leave column 0 out",
         weights[:, token, :-1]),
        (f"makes the picture sum to 1 {when}: what lies on the class token is then hidden",
         weights[:, token, 1:] / weights[:, token, 1:].sum(dim=1, keepdim=True)),
        (f"fills the picture column by column {when}; patches are numbered along the rows",
         weights[:, token, 1:].unflatten(1, (cols, rows)).transpose(1, 2).flatten(1)),
    )  # fmt: skip
    if not same(got, wanted.to(got.dtype)):
        name_slip(got, [(said, wrong.unflatten(1, grid)) for said, wrong in words])
    if query is not None:
        row, col = query
        said = f"takes another patch {when}: row {row} starts at patch {row} * {cols}, the number of columns"
        others = {1 + col * rows + row, 1 + row * rows + col} - {token}
        name_slip(got, [(said, weights[:, n, 1:].unflatten(1, grid)) for n in others if n < weights.shape[1]])
        name_slip(
            got, [(f"gives what the class token looks at {when}: is `query` used?", weights[:, 0, 1:].unflatten(1, grid))]
        )


def map_of_class(answer):
    for grid in ((3, 4), (2, 2), (5, 2)):
        try_map(answer, grid, None)


def map_of_patches(answer):
    for grid, query in MAPS:
        try_map(answer, grid, query)


def map_is_plain(answer):
    weights = some_weights(2, 13, 13)
    weights[0] = 1 / 13  # a head that looks everywhere alike
    try_map(answer, (3, 4), (1, 2), weights)
    try_map(answer, (3, 4), None, weights)


# How far a head looks


def check_distance(answer):
    """Mark a function (weights, grid, patch_size) -> the mean distance of each head, in pixels."""
    ideas = [
        ("who looks at itself looks 0 pixels far, who looks to its neighbour one patch side", distance_of_shifts),
        ("a head that looks at all alike looks as far as the formula says", distance_of_even),
        ("weighted by attention, without the class token", distance_of_any),
    ]
    return marks.check("distance", answer, ideas)


def shift(rows, cols, by):
    """Every patch looks at the one `by` columns on, around the edge; the class token at itself"""
    T = rows * cols + 1
    weights = torch.zeros(1, T, T)
    weights[0, 0, 0] = 1
    for n in range(rows * cols):
        row, col = divmod(n, cols)
        weights[0, 1 + n, 1 + row * cols + (col + by) % cols] = 1
    return weights


def try_distance(answer, weights, grid, patch_size, when):
    got = marks.untouched(lambda w: answer(w, grid, patch_size), weights)
    expect_tensor(got, (len(weights),), f"{when} (one number for each of {len(weights)} heads)")
    wanted = inspection.attention_distance(weights[None], grid, patch_size)[0]
    if marks.differ(got, wanted):
        name_slip(got, distance_slips(weights, grid, patch_size, when))
        slip(True, f"gives {got[0]:.3f} {when}; it should give {wanted[0]:.3f}")


def distance_slips(weights, grid, patch_size, when):
    P = patch_size
    rows, cols = torch.meshgrid(*(torch.arange(float(n)) for n in grid), indexing="ij")
    places = torch.stack([rows, cols], dim=-1).flatten(0, 1)
    along = (places[:, None] - places).abs()
    distances = along.square().sum(dim=-1).sqrt()
    turned = torch.stack([rows.T, cols.T], dim=-1).flatten(0, 1)
    by_columns = torch.cdist(turned, turned)
    among = weights[:, 1:, 1:]
    share = among / among.sum(dim=-1, keepdim=True)

    def mean(weights, distances):
        return (weights * distances).sum(dim=-1).mean(dim=-1)

    wrong = [
        ("counts in patches {}: a patch is patch_size pixels wide", mean(share, distances)),
        ("adds the way down and the way across {}: the straight line is shorter", mean(share, P * along.sum(dim=-1))),
        ("gives the square of a distance {}: is the root missing?", mean(share, (P * distances) ** 2)),
        ("leaves the class token out, but its share of the weights is missing {}: divide by what the patches keep",
         mean(among, P * distances)),
        ("adds the queries up {}: the mean of them is wanted", P * (share * distances).sum(dim=(-1, -2))),
        ("does not weigh by attention {}: the mean over all pairs is the same for every head",
         P * distances.mean().expand(len(weights))),
        ("gives the farthest patch, not the mean {}", P * distances.max().expand(len(weights))),
        ("averages over the numbers of all pairs {}: a query's weights sum to 1, so sum over keys, then average queries",
         P * (share * distances).mean(dim=(-1, -2))),
        ("divides along the wrong axis {}: each row of weights, over its keys, is to sum to 1",
         mean(among / among.sum(dim=-2, keepdim=True), P * distances)),
        ("numbers the patches column by column {}: they run along the rows", mean(share, P * by_columns)),
        ("takes a softmax of weights that are shares already {}: divide each row by its sum",
         mean(among.softmax(dim=-1), P * distances)),
        ("looks only along the rows {}", mean(share, P * along[..., 1])),
        ("looks only along the columns {}", mean(share, P * along[..., 0])),
    ]  # fmt: skip
    T = weights.shape[-1]
    with_class = torch.zeros(T, T)
    with_class[1:, 1:] = distances
    wrong.append(("counts the class token as a place {}: it stands nowhere", mean(weights, P * with_class)))
    return [(words.format(when), numbers) for words, numbers in wrong]


def distance_of_shifts(answer):
    for grid, by, P in (((2, 3), 0, 4), ((3, 5), 1, 4), ((1, 4), 1, 16)):
        what = "where every patch looks at itself" if by == 0 else "where every patch looks at the next in its row"
        try_distance(answer, shift(*grid, by), grid, P, f"{what}, on {grid[0]} x {grid[1]} patches of {P} pixels")


def distance_of_even(answer):
    for grid, P in (((1, 7), 4), ((6, 1), 8), ((4, 4), 2)):
        T = grid[0] * grid[1] + 1
        when = f"for even attention on {grid[0]} x {grid[1]} patches of {P} pixels"
        try_distance(answer, torch.full((2, T, T), 1 / T), grid, P, when)


def distance_of_any(answer):
    for grid, P in (((3, 4), 4), ((5, 2), 7)):
        T = grid[0] * grid[1] + 1
        try_distance(answer, some_weights(3, T, T), grid, P, f"for other weights on {grid[0]} x {grid[1]} patches")


# Through all layers


def check_rollout(answer):
    """Mark a function of a list of L weights (h, T, T) -> (T, T), what has come from each token to each."""
    ideas = [
        ("one layer: half of a token stays, half is the mean of its heads", rollout_of_one),
        ("every row sums to 1, through any number of layers", rollout_rows),
        ("later layers stand to the left of earlier ones", rollout_order),
    ]
    return marks.check("rollout", answer, ideas)


def try_rollout(answer, weights, when):
    T = weights[0].shape[-1]
    got = answer([w.clone() for w in weights])
    expect_tensor(got, (T, T), when)
    wanted = inspection.rollout([w[None] for w in weights])[0]
    if marks.differ(got, wanted):
        name_slip(got, rollout_slips(weights, when))
        sums = got.sum(dim=-1)
        off = (sums - 1).abs().max() > 1e-3
        slip(off, f"gives rows that sum to {sums.min():.3f} .. {sums.max():.3f} {when}; each should sum to 1")
        slip(True, f"gives rows that sum to 1 {when}, but other numbers")
    keep = [w.clone() for w in weights]
    answer(keep)
    changed = any(not torch.equal(a, b) for a, b in zip(keep, weights, strict=True))
    slip(changed, "changes its input; make a new tensor instead of writing into the old one")


def rollout_slips(weights, when):
    T = weights[0].shape[-1]
    eye = torch.eye(T)

    def product(layers, right=False):
        flow = eye
        for layer in layers:
            flow = flow @ layer if right else layer @ flow
        return flow

    means = [w.mean(dim=0) for w in weights]
    halves = [(eye + m) / 2 for m in means]
    added = eye
    for m in means:
        added = eye / 2 + m / 2 @ added
    wrong = [
        ("multiplies in the wrong order {}: a later layer stands to the left, layer @ flow", product(halves, right=True)),
        ("forgets what goes around the attention {}: half of every token stays, the identity", product(means)),
        ("adds the identity and does not share {}: rows then sum to 2, 4, 8, ...", product([eye + m for m in means])),
        ("multiplies each number by its like {}: use @", torch.stack(halves).prod(dim=0)),
        ("multiplies each number by its like {}: use @", torch.stack(halves).prod(dim=0) * eye),
        (
            "adds half of the identity once a layer, outside the product {}: all of (I + W) / 2 multiplies what came before",
            added,
        ),
        ("takes the first layer twice {}", product([halves[0], *halves])),
        ("takes the mean of the layers {}, not their product", torch.stack(halves).mean(dim=0)),
        ("gives the last layer alone {}", halves[-1]),
        ("adds the heads up {}: their mean keeps rows that sum to 1", product([(eye + w.sum(dim=0)) / 2 for w in weights])),
        ("takes the largest of the heads {}: the mean is wanted", product([(eye + w.amax(dim=0)) / 2 for w in weights])),
        ("takes the first head alone {}", product([(eye + w[0]) / 2 for w in weights])),
        ("adds the identity once, after the product {}: every layer has its own way around", (product(means) + eye) / 2),
        ("turns rows into columns {}", product(halves).T),
    ]
    return [(words.format(when), numbers) for words, numbers in wrong]


def rollout_of_one(answer):
    try_rollout(answer, [some_weights(3, 5, 5)], "for one layer")


def rollout_rows(answer):
    for L in (2, 6):
        try_rollout(answer, list(some_weights(L, 2, 7, 7)), f"for {L} layers")


def rollout_order(answer):
    first, last = torch.eye(3), torch.eye(3)
    first[1], last[0] = torch.eye(3)[2], torch.eye(3)[1]
    try_rollout(answer, [first[None], last[None]], "where token 1 reads 2 in the first layer, and 0 reads 1 in the last,")


# Graded


def check_mass(answer):
    """Mark a function (picture, place, patch_size) -> the share of a map that lies in a place."""
    ideas = [
        ("a map that lies in the place in part, wholly, and not at all", mass_of_one),
        ("an even map has the place's share of the picture", mass_of_even),
        ("patches that the edge cuts count by their part inside", mass_of_cut),
    ]
    return marks.check("mass", answer, ideas)


def try_mass(answer, picture, place, patch_size, when):
    got = as_number(marks.untouched(lambda m: answer(m, place, patch_size), picture), when, "a number from 0 to 1")
    wanted = localization.fraction_inside(picture[None], torch.tensor([place]), patch_size)[0].item()
    if not close(got, wanted):
        for words, wrong in mass_slips(picture, place, patch_size):
            slip(close(got, wrong), f"{words} {when}")
        slip(True, f"gives {got:.3f} {when}; it should give {wanted:.3f}")


def mass_slips(picture, place, P):
    left, top, width, height = place
    pixels = picture.repeat_interleave(P, 0).repeat_interleave(P, 1)
    H, W = pixels.shape

    def share(rows, cols):
        return (pixels[rows, cols].sum() / pixels.sum()).item()

    whole = picture[top // P : -(-(top + height) // P), left // P : -(-(left + width) // P)]
    full = picture[-(-top // P) : (top + height) // P, -(-left // P) : (left + width) // P]
    tiled = (picture.repeat(P, P)[top : top + height, left : left + width].sum() / picture.repeat(P, P).sum()).item()
    blocks = picture[top // P : top // P + height // P, left // P : left // P + width // P]
    within = pixels[top : top + height, left : left + width]
    return [
        ("takes left for top: a place is (left, top, width, height), a tensor's first axis is from top to bottom",
         share(slice(left, left + width), slice(top, top + height))),
        ("takes width and height for the right and lower edge: they are lengths",
         share(slice(top, height), slice(left, width))),
        ("counts a patch wholly that is only partly inside: lay the place over pixels, not over patches",
         (whole.sum() / picture.sum()).item()),
        ("leaves out the patches that are only partly inside", (full.sum() / picture.sum()).item()),
        ("repeats the whole picture, not each patch: `repeat_interleave`", tiled),
        ("counts whole patches from the one where the place begins", (blocks.sum() / picture.sum()).item()),
        ("gives the sum inside, not its share of the whole map", within.sum().item()),
        ("gives the sum inside over that of the patches: pixels over pixels, or the parts are counted P * P times",
         (within.sum() / picture.sum()).item()),
        ("gives the mean inside, not the share", within.mean().item()),
        ("gives the share that lies outside", 1 - share(slice(top, top + height), slice(left, left + width))),
        ("gives the area of the place, whatever the map holds", width * height / (H * W)),
        ("gives the largest value inside over the largest of all", (within.amax() / pixels.max()).item()),
    ]  # fmt: skip


def mass_of_one(answer):
    for spots, said in (
        ({(1, 1): 3.0, (0, 3): 1.0}, "to three quarters"),
        ({(1, 1): 2.0}, "wholly"),
        ({(2, 3): 2.0}, "not at all"),
    ):
        picture = torch.zeros(3, 4)
        for (row, col), value in spots.items():
            picture[row, col] = value
        try_mass(answer, picture, (4, 4, 8, 8), 4, f"for a map that lies in the place {said}")


def mass_of_even(answer):
    for place in ((4, 0, 8, 4), (0, 4, 4, 8)):
        try_mass(answer, torch.full((3, 4), 0.5), place, 4, f"for an even map and the place {place} of 16 x 12 pixels")


def mass_of_cut(answer):
    picture = some_weights(3, 4)
    for place, P in (((3, 1, 7, 5), 4), ((1, 2, 12, 9), 4), ((5, 0, 3, 6), 2)):
        try_mass(answer, picture, place, P, f"for the place {place} and patches of {P} pixels")


# Find the mistake: every map stretched by itself


def check_scaled(answer):
    """Mark a function of maps (h, rows, cols) -> the same, ready to be drawn on one scale from 0 to 1."""
    ideas = [
        ("the largest weight of all heads becomes 1, 0 stays 0", scaled_ends),
        ("a head that looks everywhere alike stays flat, and faint beside a sharp one", scaled_flat),
        ("every head by the same factor", scaled_any),
    ]
    return marks.check("scaled", answer, ideas)


def try_scaled(answer, maps, when):
    got = marks.untouched(answer, maps)
    expect_tensor(got, maps.shape, when)
    wanted = maps / maps.max()
    if marks.differ(got, wanted):
        low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
        slip(not got.isfinite().all(), f"gives numbers that are not finite {when}: a flat map has no spread to divide by")
        name_slip(
            got,
            [
                (f"stretches every head by itself {when}: then nobody sees which of them is sharp",
                 (maps - low) / (high - low)),
                (f"divides every head by its own largest {when}: heads can no longer be compared", maps / high),
                (f"draws the smallest weight of all as 0 {when}: a flat map of 0.03 is then as dark as nothing",
                 (maps - maps.min()) / (maps.max() - maps.min())),
                (f"subtracts each head's smallest {when}: 0 is to stay 0", (maps - low) / maps.max()),
                (f"divides by the sum of all {when}", maps / maps.sum()),
                (f"divides every head by its own sum {when}", maps / maps.sum(dim=(1, 2), keepdim=True)),
            ],
        )  # fmt: skip
        slip(True, f"gives numbers from {got.min():.3f} to {got.max():.3f} {when}, not the maps over their largest weight")


def scaled_ends(answer):
    maps = torch.tensor([[[0.0, 0.1], [0.2, 0.7]], [[0.3, 0.2], [0.5, 0.1]]])
    try_scaled(answer, maps, "for two heads whose largest weights are 0.7 and 0.5")


def scaled_flat(answer):
    maps = torch.full((2, 3, 3), 1 / 9)
    maps[1] = 0.01
    maps[1, 1, 1] = 0.9
    try_scaled(answer, maps, "for a flat head and a sharp one")


def scaled_any(answer):
    try_scaled(answer, 0.1 + 0.2 * some_weights(4, 2, 3), "for four heads")
