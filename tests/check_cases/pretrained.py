"""Answers to the exercises of notebook 09.

Right ones are as people write them, wrong ones are programs with a part exchanged.
"""

from dataclasses import replace

import torch
from torch import nn
from torchvision.transforms import functional as TF

from check_cases import Program
from vit_helpers.pretrained.finetune import freeze, transfer_weights
from vit_helpers.vit import ViT

# kernel_of

KERNEL = Program("""
def answer(k):
    D = k.shape[3]
    weight = rearrange(k, "i j c d -> {{order: d (c i j)}}")
    return {{give: weight}}
""")


def kernel_by_loop(kernel):
    P, _, C, D = kernel.shape
    weight = torch.empty(D, C * P * P)
    for d in range(D):
        weight[d] = torch.stack([kernel[:, :, c, d] for c in range(C)]).flatten()
    return weight


KERNEL_RIGHT = [
    KERNEL(),
    kernel_by_loop,
    KERNEL(give="k.permute(2, 0, 1, 3).reshape(-1, D).T"),
    KERNEL(give="torch.einsum('ijcd->dcij', k).reshape(D, -1)"),
    KERNEL(give="torch.tensor(np.transpose(k.numpy(), (3, 2, 0, 1))).reshape(D, -1)"),
]
KERNEL_WRONG = KERNEL.wrong("order", {
    "pixel by pixel": "d (i j c)",
    "swaps rows and columns: the": "d (c j i)", "flatten each filter": "d c i j",
    "outputs come first": "(c i j) d",
}) | KERNEL.wrong("give", {
    "without moving axes": "k.view(D, -1)",
    "flattens each filter pixel by pixel": "k.reshape(-1, D).T",
    "it should give": ["k.mT.transpose(0, 1).flatten(1)", "k.sum()"],
    "the numbers are not the kernel's": "weight * 2",
    "another order": "weight.flip(0)",
    "gives torch.float16": "weight.half()", "gives torch.float64": "weight.double()",
    "AttributeError": "k.nothing",
})  # fmt: skip

# see

SEE = Program("""
def answer(image, side, mean, std):
    _, H, W = image.shape
    top, left = {{corner: (H - side) // 2, (W - side) // 2}}
    x = image[:, top : top + side, left : left + side]
    m, s = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)
    return {{give: (x - m) / s}}
""", TF=TF)  # fmt: skip
SEE_WRONG = SEE.wrong("give", {
    "does not normalize": "x",
    "and crops the corner": "image[:, :side, :side]", "multiplies by std": "(x - m) * s",
    "divides by std before it subtracts the mean":
        "x / s - m", "adds the mean": "(x + m) / s", "swaps mean and std": "(x - s) / m",
    "does not divide by std":
        "x - m",
    "multiplies the pixels by 255": "(x * 255 - m) / s", "the square of std": "(x - m) / s / s",
    "mirrors the image": "(torch.stack(x.unbind(2)[::-1], 2) - m) / s",
    "first channel's": "(x - mean[0]) / std[0]",
    "uses the crop's own mean and std":
        "(x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)",
    "the whole image's own mean":
        "(x - image.mean((1, 2), keepdim=True)) / image.std((1, 2), keepdim=True)",
    "give them the shape (C, 1, 1)": "(x - m.flatten()) / s.flatten()",
    "one image is (C, H, W)": "TF.normalize(x[None], mean, std)",
    "torch.tensor(...) makes a tensor": "(x - mean) / std",
    "it should give (3, 4, 4)":
        ["(image - m) / s", "(x.permute(1, 2, 0) - m.flatten()) / s.flatten()"],
    "changes its input": "x.sub_(m).div_(s)",
    "the numbers are not those":
        "TF.normalize(F.interpolate(image[None], (side, side), mode='bilinear', "
        "antialias=True)[0], mean, std)",
}) | SEE.wrong("corner", {
    "upper left corner": "0, 0", "lower right corner": "H - side, W - side",
    "computes the left edge from the height and the top edge from the width":
        "(W - side) // 2, (H - side) // 2",
    "for an image (3, 9, 11) and a side of 4: the numbers are not those": [
        "(H - side) // 2 - (H - side) % 2, (W - side) // 2",
        "(H - side) // 2, (W - side + 1) // 2 + (W - side) % 2",
    ],
})  # fmt: skip

# probe


def zeros(*sizes):
    """A layer of zeros."""
    layer = nn.Linear(*sizes)
    layer.load_state_dict({name: torch.zeros_like(p) for name, p in layer.named_parameters()})
    return layer


def old_head(model, num_classes):
    nn.init.zeros_(model.head.weight)
    return freeze(model)


PROBE = Program("""
def answer(model, K):
    {{new: new = copy.deepcopy(model)}}
    new.head = {{head: zeros(64, K)}}
    for name, parameter in new.named_parameters():
        parameter.requires_grad = {{learns: name.startswith("head")}}
    {{after: pass}}
    return {{give: new}}
""", zeros=zeros, freeze=freeze, transfer_weights=transfer_weights, replace=replace, ViT=ViT,
)  # fmt: skip
PROBE_RIGHT = [
    PROBE(),
    lambda model, num_classes: freeze(transfer_weights(model, num_classes=num_classes)),
    PROBE(
        new="new = model.requires_grad_(False)",
        learns="parameter.requires_grad or name.startswith('head')",
    ),
    PROBE(head="nn.Sequential(nn.Dropout(0.0), zeros(64, K))"),
]
PROBE_WRONG = PROBE.wrong("learns", {
    "lets the whole model learn": "True", "freezes everything": "False",
    "learn, but the head has a weight and a": "name == 'head.weight'",
    "parameters of the backbone learn": "not name.startswith('blocks')",
}) | PROBE.wrong("give", {
    "head alone": "new.head",
    "it should give a model": "'model'", "another kind of model": "nn.Sequential(new)",
}) | {
    "a head that is not zero": PROBE(head="nn.Linear(64, K)"),
    "a head whose bias is not zero": PROBE(after="nn.init.ones_(new.head.bias)"),
    "bias is not zero": PROBE(after="nn.init.normal_(new.head.bias)"),
    "gives different features from before":
        [PROBE(new="new = ViT(replace(model.config, num_classes=K))"),
            PROBE(after="new.norm = nn.Identity()")],
    "still has the 10 classes": old_head,
}  # fmt: skip

# lora

LORA = Program("""
def answer(x, W, b, A, B, s):
    y, thin = {{wide: F.linear(x, W)}}, {{thin: F.linear(F.linear(x, A), B)}}
    return {{give: y + b + s * thin}}
""")
LORA_RIGHT = [
    LORA(),
    LORA(thin="torch.einsum('...n, rn, mr -> ...m', x, A, B)"),
    LORA(wide="(W @ x.mT).mT if x.ndim > 1 else W @ x", thin="x @ A.T @ B.mT"),
]
LORA_WRONG = LORA.wrong("give", {
    ": forgets the bias": "y + s * thin", "forgets the bias": "F.linear(x, W + s * B @ A)",
    "forgets the bias and the low-rank term": "F.linear(x, W)",
    "leaves out the low-rank term": "F.linear(x, W, b)",
    "forgets the scale": "F.linear(x, W + B @ A, b)",
    "scales the whole result": "s * F.linear(x, W + B @ A, b)",
    "scales the frozen layer instead of the low-rank term":
        "s * F.linear(x, W, b) + thin", "divides by the scale": "F.linear(x, W + B @ A / s, b)",
    "leaves out the frozen layer": "s * thin", "leaves out W x": "F.linear(x, s * B @ A, b)",
    "adds the bias twice": "y + b + F.linear(x, s * B @ A, b)",
    "subtracts": "F.linear(x, W - s * B @ A, b)",
    "scales the bias too": "F.linear(x, W + s * B @ A, s * b)",
    "no gradient": "(y + b + s * thin).detach()",
    "from the right, transposed, and then B what A gives":
        ["x @ W + b + s * x @ A.T @ B.T", "x @ W.T + b + s * x @ B.T @ A.T"],
    ".T turns all around": "(W @ x.T).T + b + s * (B @ (A @ x.T)).T",
    "computes B A, a matrix of 24 x 20 numbers": [
        "F.linear(x, W + s * B @ A, b)", "x @ W.T + b + s * x @ (B @ A).T",
        "x @ W.T + b + s * torch.einsum('...n, mn -> ...m', x, torch.einsum('rn, mr -> mn', A, B))",
    ],
    "by 1 - scale, but LoRA adds": "torch.lerp(y + b, thin, s)",
}) | LORA.wrong("thin", {
    "gradient": [
        "F.linear(F.linear(x, A), B).detach()",
        "F.linear(F.linear(x, A).detach(), B)", "F.linear(F.linear(x.detach(), A), B)",
    ],
    "the result is not W x": "F.linear(F.linear(x, A).relu(), B)",
}) | {"the wrong gradient": LORA(wide="torch.no_grad()(F.linear)(x, W)")}  # fmt: skip

# rates

RATES = Program("""
def answer(lr, decay, L):
    rates = [lr]
    for _ in range(L + 1):
        rates.insert(0, {{next: rates[0] * decay}})
    return {{give: rates}}
""")
RATES_RIGHT = [RATES(), *(RATES(give=code) for code in (
    "[lr * decay ** (L + 1 - i) for i in range(L + 2)]", "lr * decay ** np.arange(L + 1, -1, -1)",
    "lr * decay ** torch.arange(L + 1, -1, -1)", "(lr * decay**n for n in reversed(range(L + 2)))",
))]  # fmt: skip
RATES_WRONG = RATES.wrong("give", {
    "wrong way": "rates[::-1]", "decays the head too": "[decay * rate for rate in rates]",
    "one layer short": "[*rates[1:], lr]", "more than lr": "[rate / decay for rate in rates]",
    "equal steps":
        "[lr * (1 - (1 - decay) * (L + 1 - i)) for i in range(L + 2)]",
    "gives all layers the same rate": "[lr] * (L + 2)",
    "leaves out lr": "[rate / lr for rate in rates]",
    "once for all": "[lr * decay] * (L + 1) + [lr]",
    "gives rates for the blocks only":
        "rates[1:-1]", "gives 4 rates": "rates[1:]", "gives 1000 rates": "itertools.repeat(lr)",
    "it should give 0.125, 0.25, 0.5, 1":
        "np.sqrt(rates)",
    "5 learning rates": "lr * decay**L", "gives one number": "torch.tensor(lr)",
    "it should give a number": "['slow', *rates[1:]]",
}) | {"where it should multiply": RATES(next="rates[0] / decay")}  # fmt: skip

# masked_loss

MASKED = Program("""
def answer(p, x, h):
    n, wanted = len(p), [image[{{index: hidden}}] for image, hidden in zip(x, h)]
    d = torch.stack([painted - right for painted, right in zip(p, wanted)])
    return {{give: d.square().mean()}}
""")
ON = "F.mse_loss({0}.scatter(1, h[..., None].expand_as(p), p), x)"
MASKED_RIGHT = [MASKED(), *(MASKED(give=code) for code in (
    "F.mse_loss(p, x.gather(1, h[:, :, None].expand(-1, -1, x.shape[2])))",
    "((p - x[torch.arange(n)[:, None], h]) ** 2).mean()",
    "(p - torch.take_along_dim(x, h[..., None], dim=1)).pow(2).mean()",
))]  # fmt: skip
MASKED_WRONG = MASKED.wrong("index", {
    "first patches": ": len(hidden)",
    "first image's list": "h[0]", "order of the image": "hidden.sort().values",
}) | MASKED.wrong("give", {
    "divides by all patches": ON.format("x"),
    "counts the visible patches as wrong": ON.format("torch.zeros_like(x)"),
    "one pixel of each patch": "F.mse_loss(p, x.gather(1, h.unsqueeze(2)).expand_as(p))",
    "applies every image's list to every image": "F.mse_loss(p.expand(n, *p.shape), x[:, h])",
    "patches of one image": "d.square().mean() * n",
    "gives the sum instead of the mean": "d.square().sum()",
    "takes the square root of the mean": "d.square().mean().sqrt()",
    "absolute": "d.abs().mean()", "cancel": "d.mean()",
    "halves": "d.square().mean() / 2", "over the pixels of a patch": "d.square().sum(2).mean()",
    "over patches and pixels":
        "d.square().sum() / n",
    "is too large by the ratio": "d.square().mean() / h.shape[1] * x.shape[1]",
    "takes all patches from the first image":
        "(p.flatten(0, 1) - x.flatten(0, 1)[h.flatten()]).square().mean()",
    "The first axis of patches is the image": "(p - x[h]).square().mean()",
    "must be a column, (B, 1)": "(p - x[torch.arange(n), h]).square().mean()",
    "which passes no gradient on": "d.square().mean().item()",
    "no gradient": "d.detach().square().mean()",
    "it should give a number": "d.square()", "RuntimeError": "((p - x) ** 2).mean()",
})  # fmt: skip
RIGHT = {
    "kernel_of": KERNEL_RIGHT,
    "see": [
        SEE(),
        SEE(give="TF.normalize(TF.center_crop(image, side), mean, std)"),
        *(
            SEE(corner=corner)
            for corner in (
                "-(-(H - side) // 2), -(-(W - side) // 2)",
                "H // 2 - side // 2, W // 2 - side // 2",
                "round((H - side) / 2), (W - side) // 2",
            )
        ),
        SEE(give="torch.stack([(x - m) / s for x, m, s in zip(x, mean, std)])"),
    ],
    "probe": PROBE_RIGHT,
    "lora": LORA_RIGHT,
    "rates": RATES_RIGHT,
    "masked_loss": MASKED_RIGHT,
}
WRONG = {
    "kernel_of": KERNEL_WRONG,
    "see": SEE_WRONG,
    "probe": PROBE_WRONG,
    "lora": LORA_WRONG,
    "rates": RATES_WRONG,
    "masked_loss": MASKED_WRONG,
}
