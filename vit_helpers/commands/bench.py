"""Measure what the README claims, on this machine: import time, accuracy in a given time, and speed beside the peers.

Each model of a row is built with the same shape, warmed up, and measured in turn in one process, several rounds; the
median round counts. A peer that is not installed is left out. Let nothing else run meanwhile.
"""

import statistics
import subprocess
import sys
import time

from vit_helpers.commands import whole_number

LONG = {"model": "mini/7", "depth": 4, "num_heads": 8, "embed_dim": 64, "augment": "flip_crop", "epochs": 50}
GOALS = {  # data set, changes to its preset, what is wanted
    "digits-3s": ("digits", {"epochs": 8}, "97% in 3 s"),
    "digits": ("digits", {}, "99.0% in 10 s"),
    "digits-60s": ("digits", {"depth": 3, "dropout": 0.1, "epochs": 100}, "99.5% in 60 s"),
    "fashion": ("fashion_mnist", {}, "90% in 120 s"),
    "fashion-20min": ("fashion_mnist", LONG, "the best in 20 minutes"),
}
PARTS = ("import", *GOALS, "speed")
DEFAULT = ("import", "digits-3s", "digits", "digits-60s", "speed")  # those that need no download
SHAPES = {  # image side, patch side, channels, width, depth, heads, batch
    "8 px/P2/D64/L2": (8, 2, 1, 64, 2, 4, 64),
    "32 px/P4/D192/L6": (32, 4, 3, 192, 6, 3, 32),
    "Ti/16": (224, 16, 3, 192, 12, 3, 8),
    "B/16": (224, 16, 3, 768, 12, 12, 4),
}


def add_arguments(parser):
    parser.add_argument("parts", nargs="*", help=f"what to measure: {', '.join(PARTS)} (default: {', '.join(DEFAULT)})")
    parser.add_argument("--seeds", type=whole_number, default=5, help="how many trainings of each goal (default: 5)")
    parser.add_argument("--rounds", type=whole_number, default=7, help="rounds of each import and speed row (default: 7)")
    parser.add_argument("--threads", type=whole_number, default=2, help="threads for torch (default: 2)")


def run(args):
    import torch

    from vit_helpers.timing import machine

    if unknown := set(args.parts) - set(PARTS):
        print(f"error: unknown part {', '.join(sorted(unknown))}, known: {', '.join(PARTS)}", file=sys.stderr)
        return 1
    torch.set_num_threads(args.threads)
    print(machine() + "\n")
    parts = args.parts or DEFAULT
    if "import" in parts:
        bench_import(args.rounds)
    bench_goals({name: goal for name, goal in GOALS.items() if name in parts}, args.seeds)
    if "speed" in parts:
        bench_speed(args.rounds)
    return 0


def bench_import(rounds):
    """Time of an import in a fresh process, and how much of it is not torch's"""

    def seconds(statement):
        code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
        runs = [
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(rounds)
        ]
        return statistics.median(float(r.stdout) for r in runs)

    print(f"import (seconds, fresh process, median of {rounds})")
    print(f"  vit_helpers                      {seconds('import vit_helpers'):.4f}")
    print(
        f"  torch, then vit_helpers.vit      {seconds('import torch'):.3f} + "
        f"{seconds('import torch; t = time.perf_counter(); import vit_helpers.vit'):.4f}\n"
    )


def bench_goals(goals, seeds):
    """Train each goal's settings once a seed, and say how well the test part is read, and after how long"""
    import torch._dynamo  # torch loads it with the first optimiser: seconds that are no training  # noqa: F401

    from vit_helpers.data import load
    from vit_helpers.settings import preset

    for name, (data_name, changes, wanted) in goals.items():
        print(f"{name} ({wanted})")
        data = load(data_name)
        runs = []
        for seed in range(seeds):
            score, seconds = train_once(data, preset(data_name) | changes, seed)
            runs.append((score.accuracy, seconds))
            print(f"  seed {seed}  test accuracy {score.accuracy:.4f}  training {seconds:.1f} s", flush=True)
        scores, times = zip(*runs, strict=True)
        spread = statistics.stdev(scores) if seeds > 1 else 0.0
        print(
            f"  mean    test accuracy {statistics.mean(scores):.4f}, standard deviation {spread:.4f}, "
            f"training {statistics.mean(times):.1f} s (longest {max(times):.1f} s)\n"
        )


def train_once(data, settings, seed):
    """The score on the test part after training with these settings, and the seconds of training"""
    from vit_helpers.settings import for_test, make_batches, make_network, make_recipe
    from vit_helpers.training import evaluate, fit, set_seed

    set_seed(seed)
    model = make_network(data, settings)
    batches, validation = make_batches(data, settings), data.batches("validation", 512)
    start = time.perf_counter()
    fit(model, batches, validation, make_recipe(settings), report=lambda row: None)
    seconds = time.perf_counter() - start
    return evaluate(for_test(model, settings), data.batches("test", 512)), seconds


def bench_speed(rounds):
    """Images a second, inference and training step, ours beside the peers"""
    import torch

    from vit_helpers.timing import in_turn

    print(
        f"speed (images/s, fp32, median of {rounds} rounds taken in turn; ratio to the best peer, its range over the rounds)"
    )
    for shape, numbers in SHAPES.items():
        batch, channels, side = numbers[6], numbers[2], numbers[0]
        images, labels = torch.randn(batch, channels, side, side), torch.randint(10, (batch,))
        models = {name: make(*numbers[:6]) for name, make in makers().items()}
        for kind, step in (("inference", infer), ("training", train_step)):
            taken = in_turn({name: step(model, images, labels) for name, model in models.items()}, rounds)
            speeds = {name: [batch / seconds for seconds in values] for name, values in taken.items()}
            print(f"  {shape:17s} {kind:9s}  {compare(speeds)}", flush=True)


def compare(speeds):
    """One line: the median of each, and ours over the best peer, round by round"""
    middle = {name: statistics.median(values) for name, values in speeds.items()}
    row = "  ".join(f"{name} {value:,.1f}" for name, value in middle.items())
    peers = {name: value for name, value in middle.items() if name != "ours"}
    if not peers:
        return row
    best = max(peers, key=peers.get)
    ratios = [ours / peer for ours, peer in zip(speeds["ours"], speeds[best], strict=True)]
    return f"{row}  ours/{best} {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def makers():
    """How each library builds a ViT of a shape with 10 classes; the peers that are installed"""
    from importlib.util import find_spec

    known = {
        "ours": (ours, "torch"),
        "torchvision": (torchvision_vit, "torchvision"),
        "timm": (timm_vit, "timm"),
        "Hugging Face": (huggingface_vit, "transformers"),
    }
    return {name: make for name, (make, module) in known.items() if find_spec(module)}


def ours(side, patch, channels, width, depth, heads):
    from vit_helpers.vit import ViT, ViTConfig

    return ViT(ViTConfig(side, patch, channels, 10, width, depth, heads))


def torchvision_vit(side, patch, channels, width, depth, heads):
    import torch
    from torchvision.models import VisionTransformer

    model = VisionTransformer(side, patch, depth, heads, width, 4 * width, num_classes=10)
    if channels != 3:  # torchvision's builder knows colour pictures only
        model.conv_proj = torch.nn.Conv2d(channels, width, patch, patch)
    return model


def timm_vit(side, patch, channels, width, depth, heads):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(side, patch, channels, 10, embed_dim=width, depth=depth, num_heads=heads)


def huggingface_vit(side, patch, channels, width, depth, heads):
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=side,
        patch_size=patch,
        num_channels=channels,
        hidden_size=width,
        num_labels=10,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    return ViTForImageClassification(config)


def logits_of(output):
    return getattr(output, "logits", output)


def infer(model, images, labels):
    import torch

    def step():
        model.eval()
        with torch.inference_mode():
            model(images)

    return step


def train_step(model, images, labels):
    import torch
    import torch.nn.functional as F

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(logits_of(model(images)), labels).backward()
        optimizer.step()

    return step
