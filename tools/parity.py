"""Hold the model beside torchvision's, timm's and Hugging Face's, weight for weight: the largest differences.

Every model gets random weights, in which no part is zero, in the library's own format; ours takes them over by the same
functions that read published weights. Then both see the same images, and the gradients of the same loss are compared too.
The rows are kept in a CSV file.
"""

import sys
from pathlib import Path

from tools import main, write_rows
from tools.libraries import MAKERS, SHAPES, Shape, find_spec

MORE = {
    "S/16": Shape(224, 16, 3, 384, 12, 6, 4),
    "B/32": Shape(224, 32, 3, 768, 12, 12, 4),
    "L/16": Shape(224, 16, 3, 1024, 24, 16, 2),
    "H/14": Shape(224, 14, 3, 1280, 32, 16, 1),
}
SIZES = dict(sorted((SHAPES | MORE).items(), key=lambda item: item[1].width))
LIBRARIES = {"torchvision": "torchvision", "timm": "timm", "Hugging Face": "transformers"}
KINDS = ("model", "library", "parameters", "largest logit", "logits", "gradients")
IMAGES = 2


def add_arguments(parser):
    parser.add_argument("sizes", nargs="*", help=f"of {', '.join(SIZES)} (default: all; H/14 takes 12 GB of memory)")
    parser.add_argument("--out", type=Path, default=Path("runs/parity.csv"), help="keep it here (default: runs/parity.csv)")


def run(args):
    if unknown := [name for name in args.sizes if name not in SIZES]:
        print(f"error: unknown size {', '.join(unknown)}, known: {', '.join(SIZES)}", file=sys.stderr)
        return 1
    if args.out.is_dir():
        print(f"error: {args.out} is a folder, wanted: a CSV file", file=sys.stderr)
        return 1
    here = [library for library, package in LIBRARIES.items() if find_spec(package)]
    rows = []
    for size in args.sizes or SIZES:
        for library in here:
            rows.append(compare(size, library))
            write_rows(args.out, KINDS, rows)
            print(f"{size}, {library}: largest difference of logits {rows[-1]['logits']:.0e}", file=sys.stderr, flush=True)
    print(markdown(rows))
    print(f"Not installed, left out: {', '.join(LIBRARIES.keys() - here)}\n" * (len(here) < len(LIBRARIES)), end="")
    return 0


def compare(size, library):
    """One size of one library against ours, fp32: a dict with KINDS.

    logits   : the largest difference of any logit of two images
    gradients: the largest difference of any parameter's gradient, over the largest gradient of that parameter
    """
    import torch

    from vit_helpers.pretrained import fill, from_huggingface, from_timm, from_torchvision
    from vit_helpers.vit import ViT, ViTConfig

    torch.manual_seed(0)
    s, renamed = SIZES[size], dict(zip(LIBRARIES, (from_torchvision, from_timm, from_huggingface), strict=True))[library]
    theirs = MAKERS[library](s).eval()
    stir(theirs)
    eps = next(m.eps for m in theirs.modules() if isinstance(m, torch.nn.LayerNorm))
    ours = ViT(ViTConfig(s.side, s.patch, s.channels, 10, s.width, s.depth, s.heads, norm_eps=eps)).eval()
    fill(ours, renamed(theirs.state_dict()))
    images = torch.randn(IMAGES, s.channels, s.side, s.side)
    wanted, mine = gradients(theirs, images), gradients(ours, images)
    expected = renamed(wanted["parameters"])
    return {
        "model": size,
        "library": library,
        "parameters": sum(p.numel() for p in ours.parameters()),
        "largest logit": wanted["logits"].abs().max().item(),
        "logits": (mine["logits"] - wanted["logits"]).abs().max().item(),
        "gradients": max(relative(mine["parameters"][name], expected[name]) for name in expected),
    }


def stir(model):
    """Add a little noise to every parameter, so that none is zero, not even a bias or the head"""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)


def gradients(model, images):
    """The logits, and the gradient of the sum of their squares by every parameter, under the model's own names"""
    logits = model(images)
    logits = getattr(logits, "logits", logits)
    logits.square().sum().backward()
    return {"logits": logits.detach(), "parameters": {name: p.grad for name, p in model.named_parameters()}}


def relative(mine, wanted):
    """The largest difference over the largest value"""
    return ((mine - wanted).abs().max() / wanted.abs().max()).item()


def markdown(rows):
    """The rows as the README's table: a line a size, the libraries side by side"""
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    lines = [
        f"| largest difference of logits; of gradients | parameters | {' | '.join(libraries)} |",
        "|---|---|" + "---|" * len(libraries),
    ]
    for size in dict.fromkeys(row["model"] for row in rows):
        same = {row["library"]: row for row in rows if row["model"] == size}
        cells = [f"{float(row['logits']):.0e}; {float(row['gradients']):.0e}" for row in same.values()]
        lines.append(f"| {size} | {int(next(iter(same.values()))['parameters']):,} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
