"""Marks for the exercises of notebook 09."""

import math

import torch

from vit_helpers.checks import marks
from vit_helpers.checks.ablation import as_list, as_number, close
from vit_helpers.checks.marks import expect_gradient, expect_tensor, same, slip
from vit_helpers.vit import ViT, ViTConfig


def some_numbers(*shape, seed=3):
    """Numbers made up, no two alike, the same each time"""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def name_slip(got, slips):
    """Slip with the words of the first wrong way whose numbers came.  slips: pairs (words, numbers)"""
    for words, wrong in slips:
        slip(wrong.shape == got.shape and same(got, wrong.to(got.dtype)), words)


# Google's convolution


def check_kernel(answer):
    """Mark a function of a kernel (P, P, C, D) -> the weight of our projection, (D, C*P*P)."""
    ideas = [
        ("outputs first, and each filter in one row", kernel_grey),
        ("each filter channel by channel, as patches are flattened", kernel_colour),
        ("rows before columns", kernel_rows),
    ]
    return marks.check("kernel_of", answer, ideas)


def try_kernel(answer, P, C, D):
    kernel, when = some_numbers(P, P, C, D), f"for a kernel of shape ({P}, {P}, {C}, {D})"
    got = marks.untouched(answer, kernel)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    wanted = kernel.permute(3, 2, 0, 1).flatten(1)
    if isinstance(got, torch.Tensor):
        slip(tuple(got.shape) == (D, C, P, P), f"gives {tuple(got.shape)} {when}: flatten each filter, (D, C*P*P)")
        slip(tuple(got.shape) == wanted.T.shape and C * P * P != D, f"gives {tuple(got.shape)} {when}: outputs come first")
        if not marks.same(got, wanted.to(got.dtype)):
            name_slip(got, kernel_slips(kernel, P, C, D, when))
    expect_tensor(got, (D, C * P * P), when)
    slip(
        not marks.same(got.flatten().sort().values, wanted.flatten().sort().values.to(got.dtype), atol=1e-4),
        f"gives other numbers than the kernel's {when}",
    )
    slip(marks.differ(got, wanted), f"gives the right shape {when}, but the numbers in another order")


def kernel_slips(kernel, P, C, D, when):
    said = f"reshapes {when} without moving axes: reshape keeps the numbers in their old order; permute moves axes"
    return [
        (said, kernel.reshape(D, -1)),
        (f"keeps each filter pixel by pixel {when}; our patches are flattened channel by channel: (C, P, P)",
         kernel.permute(3, 0, 1, 2).flatten(1)),
        (f"keeps each filter pixel by pixel {when}; our patches are flattened channel by channel: (C, P, P)",
         kernel.flatten(0, 2).T),
        (f"takes columns for rows {when}: the first axis of the kernel is the row", kernel.permute(3, 2, 1, 0).flatten(1)),
    ]  # fmt: skip


def kernel_grey(answer):
    try_kernel(answer, 2, 1, 5)


def kernel_colour(answer):
    try_kernel(answer, 2, 3, 5)


def kernel_rows(answer):
    try_kernel(answer, 4, 3, 7)


# Preprocessing


def check_see(answer):
    """Mark a function (image, side, mean, std) -> the middle square of an image (C, H, W), normalised."""
    ideas = [
        ("the middle square of a wide and of a tall image", see_middle),
        ("each channel by the mean and spread of the weights", see_colours),
        ("one channel too, its input left as it was", see_grey),
    ]
    return marks.check("see", answer, ideas)


def middle(image, side):
    _, H, W = image.shape
    top, left = (H - side) // 2, (W - side) // 2
    return image[:, top : top + side, left : left + side]


def by_channel(values):
    return torch.tensor(values).view(-1, 1, 1)


def try_see(answer, image, side, mean, std):
    when = f"for an image {tuple(image.shape)} and a side of {side}"
    got = marks.untouched(lambda x: answer(x, side, mean, std), image)
    slip(got is None, f"gives nothing back {when}: does it end with return?")
    wanted = (middle(image, side) - by_channel(mean)) / by_channel(std)
    if isinstance(got, torch.Tensor):
        slip(got.ndim == 4, f"gives {got.ndim} axes {when}; one image is (C, H, W)")
        if not marks.same(got, wanted.to(got.dtype)):
            name_slip(got, see_slips(image, side, mean, std, when))
    expect_tensor(got, (len(image), side, side), when)
    slip(marks.differ(got, wanted), f"gives other numbers {when} than the middle, minus mean, divided by std")


def see_slips(image, side, mean, std, when):
    m, s = by_channel(mean), by_channel(std)
    part, C = middle(image, side), len(image)
    top, left = (n - side >> 1 for n in image.shape[1:])
    corner, turned = image[:, :side, :side], image[:, left : left + side, top : top + side]
    whole = image.mean(dim=(1, 2), keepdim=True), image.std(dim=(1, 2), keepdim=True)
    own = part.mean(dim=(1, 2), keepdim=True), part.std(dim=(1, 2), keepdim=True)
    itself = (
        f"uses the image's own mean and spread {when}: a dark picture then looks like a bright one, as never in training"
    )
    slips = [
        (f"cuts the upper left corner {when}; the middle is wanted", (corner - m) / s),
        (f"measures from the height what is a width {when}", (turned - m) / s),
        (f"does not normalise {when}", part),
        (f"does not normalise {when}, and cuts the corner", corner),
        (f"multiplies by std {when}; divide", (part - m) * s),
        (f"divides before it subtracts {when}: mean and std are both of pixels from 0 to 1", part / s - m),
        (f"adds the mean {when}; subtract", (part + m) / s),
        (f"takes std for mean and mean for std {when}", (part - s) / m),
        (f"scales to pixels of 255 {when}; mean and std here are of pixels from 0 to 1", (part * 255 - m) / s),
        (f"leaves out std {when}", part - m),
        (itself, (part - own[0]) / own[1]),
        (itself, (part - whole[0]) / whole[1]),
        (f"uses the first channel's numbers for all {when}", (part - m[0]) / s[0]),
    ]
    if side == C:  # only then does a row of C numbers fit the columns
        flat = torch.tensor(mean), torch.tensor(std)
        slips.append((f"normalises columns {when}: mean and std are (C,), give them the shape (C, 1, 1)",
                      (part - flat[0]) / flat[1]))  # fmt: skip
    return slips


COLOURS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def see_middle(answer):
    for H, W in ((8, 10), (8, 14), (12, 6), (4, 4)):
        try_see(answer, some_numbers(3, H, W).sigmoid(), 4, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def see_colours(answer):
    try_see(answer, some_numbers(3, 10, 6).sigmoid(), 6, *COLOURS)
    try_see(answer, some_numbers(3, 7, 9).sigmoid(), 3, *COLOURS)


def see_grey(answer):
    try_see(answer, some_numbers(1, 6, 8).sigmoid(), 4, (0.3,), (0.2,))


# A linear probe


def check_probe(answer):
    """Mark a function (model, num_classes) -> a model that keeps its body and learns a new head alone."""
    ideas = [
        ("a head of zeros for the new classes", probe_head),
        ("the features stay as they were", probe_features),
        ("the head learns, and nothing else", probe_frozen),
    ]
    return marks.check("probe", answer, ideas)


def probe_model():
    torch.manual_seed(0)
    model = ViT(ViTConfig.from_name("mini/4", image_size=8, in_chans=1, num_classes=10))
    torch.nn.init.normal_(model.head.weight)
    return model.eval()


def try_probe(answer, num_classes=4):
    model = probe_model()
    got = answer(model, num_classes)
    slip(got is None, "gives nothing back: does it end with return? Hand the model over, also if you changed it in place")
    slip(not isinstance(got, torch.nn.Module), f"gives {marks.short(got)}; it should give a model")
    slip(isinstance(got, torch.nn.Linear), "gives the head alone; it should give the whole model")
    return got


def probe_head(answer):
    for K in (4, 3):
        images = some_numbers(5, 1, 8, 8)
        got = try_probe(answer, K)
        logits = got(images)
        slip(tuple(logits.shape) == (5, 10), f"still has the 10 classes of old; {K} were wanted")
        expect_tensor(logits, (5, K), f"for 5 images and {K} classes")
        head = getattr(got, "head", None)
        bias_only = isinstance(head, torch.nn.Linear) and not head.weight.any() and logits.any()
        slip(bias_only, "leaves torch's random start in the head's bias; zeros are wanted there too")
        slip(logits.detach().abs().max() > 1e-6,
             "starts with a head of random numbers; the paper starts fine-tuning from zeros (section 3.2), so that the "
             "first loss is ln K")  # fmt: skip


def probe_features(answer):
    images = some_numbers(5, 1, 8, 8)
    wanted, got = probe_model().forward_features(images), try_probe(answer)
    slip(not hasattr(got, "forward_features"), "gives another kind of model; keep the ViT and change its head")
    features = got.eval().forward_features(images)
    slip(
        not marks.same(features, wanted), "gives other features than before: was a new model made, without the old weights?"
    )


def probe_frozen(answer):
    got = try_probe(answer)
    learns = {name for name, p in got.named_parameters() if p.requires_grad}
    slip(not learns, "freezes everything, the new head too: put the head in after freezing, or thaw it")
    rest = sorted(name for name in learns if not name.startswith("head."))
    slip(len(rest) == len([n for n, _ in got.named_parameters() if not n.startswith("head.")]),
         "lets the whole model learn: requires_grad_(False) on all that is to stay")  # fmt: skip
    slip(rest, f"lets {len(rest)} parameters of the body learn: {', '.join(rest[:3])}")
    slip(
        learns != {"head.weight", "head.bias"}, f"lets only {', '.join(sorted(learns))} learn; the head has weight and bias"
    )
    got(some_numbers(2, 1, 8, 8)).sum().backward()
    slip(got.head.weight.grad is None, "passes no gradient to the head")


# LoRA


def check_lora(answer):
    """Mark a function (x, W, b, A, B, scale) -> a frozen linear map plus a thin one that learns."""
    ideas = [
        ("with B of zeros, the linear map as it was", lora_start),
        ("the thin product, scaled, beside it", lora_step),
        ("gradients for A and B", lora_gradient),
    ]
    return marks.check("lora", answer, ideas)


def lora_parts(n, m, r, zero=False):
    W, b, A, B = some_numbers(m, n), some_numbers(m, seed=4), some_numbers(r, n, seed=5), some_numbers(m, r, seed=6)
    return W, b, A, torch.zeros_like(B) if zero else B


def right_lora(x, W, b, A, B, scale):
    return x @ W.T + b + scale * (x @ A.T) @ B.T


def try_lora(answer, shape, m, r, scale, zero=False):
    n = shape[-1]
    x, parts = some_numbers(*shape, seed=7), lora_parts(n, m, r, zero)
    when = f"for x {shape}, W ({m}, {n}), A ({r}, {n}), B ({m}, {r})" + (", all of B 0" if zero else f", scale {scale}")
    got = marks.untouched(lambda *given: answer(*given, scale), x, *parts)
    expect_tensor(got, (*shape[:-1], m), when)
    wanted = right_lora(x, *parts, scale)
    if marks.differ(got, wanted):
        W, b, A, B = parts
        plain, thin = x @ W.T, (x @ A.T) @ B.T
        name_slip(
            got,
            [
                (f"forgets the bias {when}", plain + scale * thin),
                (f"forgets the bias, and the thin product {when}", plain),
                (f"leaves the thin product out {when}", plain + b),
                (f"forgets the scale {when}", plain + b + thin),
                (f"scales all of it {when}; only the thin product is scaled", scale * (plain + b + thin)),
                (f"scales the matrix and not the thin product {when}", scale * (plain + b) + thin),
                (f"divides by the scale {when}", plain + b + thin / scale),
                (f"leaves the frozen map out {when}: LoRA adds to it", scale * thin),
                (f"leaves W x out {when}", scale * thin + b),
                (f"adds the bias twice {when}", plain + 2 * b + scale * thin),
                (f"scales the bias too {when}", plain + scale * (thin + b)),
                (f"subtracts the thin product {when}", plain + b - scale * thin),
            ],
        )
        slip(True, f"gives other numbers {when} than W x + b + scale B A x")


def lora_start(answer):
    try_lora(answer, (5, 6), 4, 2, 1.0, zero=True)


def lora_step(answer):
    for shape, m, r, scale in (((5, 6), 4, 2, 0.5), ((2, 3, 8), 24, 1, 2.0), ((4, 4), 4, 4, 3.0)):
        try_lora(answer, shape, m, r, scale)


def lora_gradient(answer):
    x, (W, b, A, B) = some_numbers(5, 6, seed=7), lora_parts(6, 4, 2)
    for thin in (A, B):
        thin.requires_grad_()
        expect_gradient(answer(x, W, b, A, B, 0.5), right_lora(x, W, b, A, B, 0.5), thin)
        thin.requires_grad_(False)


# Rates by layer


def check_rates(answer):
    """Mark a function (lr, decay, depth) -> depth + 2 learning rates, from the embedding to the head."""
    ideas = [
        ("one rate for the embedding, for each block, and for the head", rates_count),
        ("the head at the full rate, each layer below it slower by the same factor", rates_fall),
        ("a decay of 1 leaves all alike", rates_even),
    ]
    return marks.check("rates", answer, ideas)


def try_rates(answer, lr, decay, depth):
    when = f"for lr {lr}, decay {decay}, {depth} blocks"
    got = [as_number(x, when) for x in as_list(answer(lr, decay, depth), when, f"{depth + 2} learning rates")]
    wanted = [lr * decay ** (depth + 1 - i) for i in range(depth + 2)]
    slip(len(got) == depth, f"gives a rate for each block alone {when}; the embedding and the head have rates too")
    slip(len(got) != depth + 2, f"gives {len(got)} rates {when}: embedding, {depth} blocks, head are {depth + 2}")

    def like(values):
        return all(close(a, b) for a, b in zip(got, values, strict=True))

    if not like(wanted):
        n = range(depth + 2)
        for words, wrong in (
            ("runs the wrong way: the head is to learn fastest", wanted[::-1]),
            ("decays the head too; it has the full rate", [x * decay for x in wanted]),
            ("stops one layer short: the embedding is decayed depth + 1 times", [x / decay for x in wanted[:-1]] + [lr]),
            ("divides by decay where it should multiply", [lr / decay ** (depth + 1 - i) for i in n]),
            ("gives the head more than lr: its exponent is 0, the embedding's depth + 1", [x / decay for x in wanted]),
            ("falls by equal steps; each layer has the one above times decay",
             [lr * (1 - (1 - decay) * (depth + 1 - i)) for i in n]),
            ("gives all the same rate", [lr] * (depth + 2)),
            ("leaves lr out", [x / lr for x in wanted]),
            ("decays once for all below the head", [lr * decay] * (depth + 1) + [lr]),
        ):  # fmt: skip
            slip(like(wrong), f"{words} {when}")
        slip(True, f"gives {', '.join(f'{x:.4g}' for x in got)} {when}, not {', '.join(f'{x:.4g}' for x in wanted)}")


def rates_count(answer):
    when = "for 3 blocks"
    got = as_list(answer(1.0, 0.5, 3), when, "5 learning rates")
    slip(len(got) == 3, f"gives a rate for each block alone {when}; the embedding and the head have rates too")
    slip(len(got) != 5, f"gives {len(got)} rates {when}: embedding, 3 blocks, head are 5")


def rates_fall(answer):
    for lr, decay, depth in ((1.0, 0.5, 2), (3e-3, 0.75, 4), (0.1, 0.9, 12)):
        try_rates(answer, lr, decay, depth)


def rates_even(answer):
    try_rates(answer, 2e-3, 1.0, 3)


# The loss of a masked autoencoder


def check_masked_loss(answer):
    """Mark a function (painted, patches, hidden) -> the mean squared error on hidden patches, each against its own."""
    ideas = [
        ("0 when every hidden patch is painted as it is", masked_right),
        ("the mean square on hidden patches, each image by its own list", masked_mean),
        ("the gradient that goes with it", masked_gradient),
    ]
    return marks.check("masked_loss", answer, ideas)


def masked_case():
    patches, B, N = some_numbers(3, 6, 4), 3, 6
    hidden = torch.tensor([[5, 0, 2, 3], [1, 4, 0, 5], [3, 1, 2, 4]])
    wanted = torch.stack([patches[i][hidden[i]] for i in range(B)])
    return patches, hidden, wanted, N


def try_masked(answer, painted, patches, hidden, wanted, when):
    result = marks.untouched(answer, painted, patches, hidden)
    got, right = as_number(result, when), (painted - wanted).square().mean().item()
    slip(math.isnan(got), f"gives NaN {when}")
    if not close(got, right):
        for words, wrong in masked_slips(painted, patches, hidden, wanted):
            slip(close(got, wrong.item()), f"{words} ({when})")
        slip(True, f"gives {got:.4f} {when}; it should give {right:.4f}")


def masked_slips(painted, patches, hidden, wanted):
    M, N, n = hidden.shape[1], patches.shape[1], patches.shape[2]
    square = (painted - wanted).square()
    seen = torch.ones(patches.shape[:2], dtype=torch.bool).scatter(1, hidden, False)
    by_order = torch.stack([patches[i][~seen[i]] for i in range(len(patches))])
    laid = patches.scatter(1, hidden[:, :, None].expand(-1, -1, n), painted)
    zeros = torch.zeros_like(patches).scatter(1, hidden[:, :, None].expand(-1, -1, n), painted)
    return [
        ("compares the first patches, whichever are hidden", (painted - patches[:, :M]).square().mean()),
        ("takes the first image's list for all: each image hides its own",
         (painted - patches[:, hidden[0]]).square().mean()),
        ("compares with the hidden patches in the order of the image; painted ones come in the order of `hidden`",
         (painted - by_order).square().mean()),
        ("picks one pixel of each patch: the index for gather must be as wide as a patch, expand it",
         (painted - patches.gather(1, hidden[:, :, None])).square().mean()),
        ("picks every image's list for every image: patches[:, hidden] is too much, index images and patches together",
         (painted - patches[:, hidden]).square().mean()),
        ("divides by the patches of one image, though it sums over all images", square.sum() / (M * n)),
        ("divides by all patches, though only the hidden ones count", (laid - patches).square().mean()),
        ("counts visible patches as wrong: nobody painted them", (zeros - patches).square().mean()),
        ("gives the sum, not the mean: it then depends on the batch", square.sum()),
        ("sums over the pixels of a patch, and takes the mean of that", square.sum() / (square.numel() / n)),
        ("sums over patches and pixels, and takes the mean over images", square.sum() / len(patches)),
        ("takes the root", square.mean().sqrt()),
        ("takes absolute differences; squares are wanted", (painted - wanted).abs().mean()),
        ("gives the mean difference, where too bright and too dark cancel", (painted - wanted).mean()),
        ("gives the mean difference, where too bright and too dark cancel", (wanted - painted).mean()),
        ("halves it", square.mean() / 2),
        ("counts each hidden patch as one of all", square.mean() * N / M),
    ]  # fmt: skip


def masked_right(answer):
    patches, hidden, wanted, _ = masked_case()
    try_masked(answer, wanted.clone(), patches, hidden, wanted, "for patches painted as they are")


def masked_mean(answer):
    patches, hidden, wanted, _ = masked_case()
    try_masked(
        answer, some_numbers(3, 4, 4, seed=9), patches, hidden, wanted, "for 3 images of 6 patches, of which 4 are hidden"
    )
    one = hidden[:, :1]
    painted = some_numbers(3, 1, 4, seed=10)
    try_masked(answer, painted, patches, one, wanted[:, :1], "for 3 images, each with one hidden patch")


def masked_gradient(answer):
    patches, hidden, wanted, _ = masked_case()
    painted = some_numbers(3, 4, 4, seed=9).requires_grad_()
    got = answer(painted, patches, hidden)
    slip(not isinstance(got, torch.Tensor), f"gives {marks.short(got)}, which passes no gradient on: leave .item() out")
    expect_gradient(got, (painted - wanted).square().mean(), painted)
