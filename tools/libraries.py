"""Ours beside the ViTs of four libraries: the same shapes and the same work, in turn, as one table.

What differs: vit-pytorch has no biases for queries, keys and values, norms the pixels of a patch before the projection and
the tokens after it, always writes its attention down, and imports its other models along with the ViT. In inference
torchvision's attention runs in one piece where the heads are even in number (the fast path of `nn.MultiheadAttention`).
"""

import importlib.metadata
import json
import statistics
import subprocess
import sys
from collections import namedtuple
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec

Shape = namedtuple("Shape", "side patch channels width depth heads batch")
SHAPES = {
    "8 px/P2/D64/L2": Shape(8, 2, 1, 64, 2, 4, 64),
    "32 px/P4/D192/L6": Shape(32, 4, 3, 192, 6, 3, 32),
    "Ti/16": Shape(224, 16, 3, 192, 12, 3, 8),
    "B/16": Shape(224, 16, 3, 768, 12, 12, 4),
}
CLASSES = 10
LARGER = 32  # times the batch on a GPU, which a small one leaves idle
MODULES = {  # what is imported for a ViT, the smallest part of each library
    "ours": "vit_helpers.vit",
    "torchvision": "torchvision.models.vision_transformer",
    "timm": "timm.models.vision_transformer",
    "Hugging Face": "transformers.models.vit.modeling_vit",
    "vit-pytorch": "vit_pytorch.vit",
}
COMPILED = ("ours", "timm")  # those that are measured with torch.compile too
SHORT = {"float32": "fp32", "bfloat16": "bf16"}


def ours(s):
    from vit_helpers.vit import ViT, ViTConfig

    return ViT(ViTConfig(s.side, s.patch, s.channels, CLASSES, s.width, s.depth, s.heads))


def torchvision_vit(s):
    import torch
    from torchvision.models.vision_transformer import VisionTransformer

    model = VisionTransformer(s.side, s.patch, s.depth, s.heads, s.width, 4 * s.width, num_classes=CLASSES)
    if s.channels != 3:  # torchvision's builder knows colour pictures only
        model.conv_proj = torch.nn.Conv2d(s.channels, s.width, s.patch, s.patch)
    return model


def timm_vit(s):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(s.side, s.patch, s.channels, CLASSES, embed_dim=s.width, depth=s.depth, num_heads=s.heads)


def huggingface_vit(s):
    from transformers.models.vit.configuration_vit import ViTConfig
    from transformers.models.vit.modeling_vit import ViTForImageClassification

    config = ViTConfig(
        image_size=s.side,
        patch_size=s.patch,
        num_channels=s.channels,
        hidden_size=s.width,
        num_labels=CLASSES,
        num_hidden_layers=s.depth,
        num_attention_heads=s.heads,
        intermediate_size=4 * s.width,
    )
    return ViTForImageClassification(config)


def lucidrains_vit(s):
    """As close as it can be built: see the head of this file for what still differs"""
    import torch
    from vit_pytorch.vit import ViT

    model = ViT(
        image_size=s.side,
        patch_size=s.patch,
        channels=s.channels,
        num_classes=CLASSES,
        dim=s.width,
        depth=s.depth,
        heads=s.heads,
        dim_head=s.width // s.heads,  # 64 if nothing is said
        mlp_dim=4 * s.width,
    )
    for attention, _ in model.transformer.layers if s.heads == 1 else ():  # it leaves the projection out for one head
        attention.to_out = torch.nn.Linear(s.width, s.width)
    return model


MAKERS = dict(zip(MODULES, (ours, torchvision_vit, timm_vit, huggingface_vit, lucidrains_vit), strict=True))


def installed():
    """The names of those that are here, ours first"""
    return [name for name, module in MODULES.items() if find_spec(module.partition(".")[0])]


def versions():
    """The version of every library that is here"""
    import vit_helpers

    distributions = {"Hugging Face": "transformers"}
    return {
        name: vit_helpers.__version__ if name == "ours" else importlib.metadata.version(distributions.get(name, name))
        for name in installed()
    }


def measure(shapes, precisions, rounds, device="cpu", say=print):
    """Everything that a table needs, as a dict that JSON can keep: all rounds' numbers, the machine and the versions.

    shapes    : names in SHAPES
    precisions: of "float32" and "bfloat16"
    rounds    : how many numbers a row has (three at most for memory, which hardly varies)
    say       : is told each row's label when the row is there
    """
    from vit_helpers.scaling.timing import machine

    kept = []
    with products_in_full():
        for row in rows(shapes, precisions, rounds, device):
            say(label(row))
            kept.append(row)
    return {
        "machine": machine(),
        "device": device_name(device),
        "versions": versions(),
        "left_out": [name for name in MODULES if name not in installed()],
        "precisions": list(precisions),
        "bf16_units": "bfloat16" in worth_while(device),
        "rows": kept,
    }


def worth_while(device):
    """The precisions that the machine has units for"""
    from vit_helpers.training.recipe import bf16_units

    return ["float32", "bfloat16"] if device != "cpu" or bf16_units() else ["float32"]


def rows(shapes, precisions, rounds, device):
    """A row a measurement; values are {name: [one number a round]}, in seconds, or bytes for memory"""
    from vit_helpers.scaling.timing import can_measure_memory

    yield {"what": "import", "values": import_seconds(rounds)}
    for shape in shapes:
        yield {"what": "build", "shape": shape, "values": build_seconds(shape, rounds)}
        for precision in precisions:
            if can_measure_memory(device):
                values = memory(shape, precision, device, min(rounds, 3))
                yield {"what": "memory", "shape": shape, "precision": precision, "values": values}
            for compiled in (False,) if device == "cpu" else (False, True):
                yield from speed(shape, precision, device, rounds, compiled)


def import_seconds(rounds):
    """Of torch, in a fresh process each time, and of each library's module after it"""
    code = "import time; a = time.perf_counter(); import torch; b = time.perf_counter(); import {}; c = time.perf_counter()"
    values = {"torch": []} | {name: [] for name in installed()}
    for _ in range(rounds):
        for name in installed():
            first, then = fresh(code.format(MODULES[name]), "[b - a, c - b]")
            values["torch"].append(first)
            values[name].append(then)
    return values


def fresh(code, answer):
    """What an expression is worth after some code, in a process of its own"""
    words = [sys.executable, "-c", f"{code}\nimport json; print(json.dumps({answer}))"]
    return json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def build_seconds(shape, rounds):
    """Of making each model, on the CPU"""
    from vit_helpers.scaling.timing import benchmark_interleaved

    return benchmark_interleaved(
        {name: lambda name=name: MAKERS[name](SHAPES[shape]) for name in installed()}, rounds, seconds=0
    )


def speed(shape, precision, device, rounds, compiled=False):
    """Two rows, inference and training: seconds of a batch, the batch, and what it is worth in multiply-adds"""
    import torch

    from vit_helpers.scaling import multiply_adds, training_multiply_adds
    from vit_helpers.scaling.timing import benchmark_interleaved, matmul_peak

    torch.compiler.reset()  # it gives up on a model that it has compiled for many shapes, without a word
    names = [name for name in installed() if name in COMPILED or not compiled]
    models = {name: MAKERS[name](SHAPES[shape]).to(device) for name in names}
    config, batch = ours(SHAPES[shape]).config, some_images(shape, device)
    size = 1024 if device == "cpu" else 8192
    work = {"inference": multiply_adds(config), "training": training_multiply_adds(config, fused=False)}
    for what, step in (("inference", infer), ("training", train_step)):
        steps = {name: step(model, batch, precision, compiled) for name, model in models.items()}
        yield {
            "what": what,
            "shape": shape,
            "precision": precision,
            "compiled": compiled,
            "batch": len(batch[0]),
            "multiply_adds": sum(work[what].values()),  # of one image
            "peak": matmul_peak(getattr(torch, precision), device, size),  # multiply-adds a second
            "values": benchmark_interleaved(steps, rounds),
        }


def some_images(shape, device):
    """Random images and labels, a batch of a shape's size"""
    import torch

    s = SHAPES[shape]
    batch = s.batch if device == "cpu" else LARGER * s.batch
    images = torch.randn(batch, s.channels, s.side, s.side, device=device)
    return images, torch.randint(CLASSES, (batch,), device=device)


def infer(model, batch, precision, compiled=False):
    """A function that runs a batch through the model"""
    import torch

    forward = in_precision(model.eval(), batch[0], precision, compiled)

    def step():
        with torch.inference_mode():
            forward()

    return step


def train_step(model, batch, precision, compiled=False):
    """A function that learns from a batch: AdamW, cross entropy"""
    import torch
    import torch.nn.functional as F

    forward = in_precision(model.train(), batch[0], precision, compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(forward().float(), batch[1]).backward()
        optimizer.step()

    return step


def in_precision(model, images, precision, compiled):
    """A function that gives the logits; products in bfloat16 where that is asked for"""
    import torch

    kind = images.device.type
    model = torch.compile(model) if compiled else model

    def forward():
        with torch.autocast(kind, torch.bfloat16, enabled=precision == "bfloat16"):
            return logits_of(model(images))

    return forward


def logits_of(output):
    return getattr(output, "logits", output)


@contextmanager
def products_in_full():
    """float32 means float32: no TF32 on a GPU, neither in products nor in convolutions"""
    import torch

    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


def memory(shape, precision, device, rounds):
    """Bytes of training each model, measured in a process of its own each time: two would share a peak"""
    import torch

    code = "from tools.libraries import training_memory"
    what = f"{shape!r}, {precision!r}, {device!r}, {torch.get_num_threads()}"
    return {name: [fresh(code, f"training_memory({name!r}, {what})") for _ in range(rounds)] for name in installed()}


def training_memory(name, shape, precision, device, threads):
    """Bytes at the peak of three steps, over what torch (after a first small step), the library and the images take"""
    import torch
    from torch import nn

    from vit_helpers.scaling.timing import peak_memory, reset_peak_memory

    torch.set_num_threads(threads)
    import_module(MODULES[name])
    batch = some_images(shape, device)
    with products_in_full():
        small = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(16 * SHAPES[shape].channels, CLASSES))
        train_step(small.to(device), batch, precision)()
        before = reset_peak_memory(device)
        step = train_step(MAKERS[name](SHAPES[shape]).to(device), batch, precision)
        for _ in range(3):
            step()
        return peak_memory(device) - before


def device_name(device):
    """What the products run on"""
    import torch

    return "CPU" if device == "cpu" else f"{torch.cuda.get_device_name()}, TF32 off"


def markdown(results):
    """The tables of what `measure` gave, ready for a README: speeds, then costs"""
    names = [name for name in MODULES if name in results["versions"]]
    speeds = [speed_line(row, names, results) for row in results["rows"] if "batch" in row]
    costs = [cost_line(row, names) for row in results["rows"] if "batch" not in row]
    speed_head = ["images/s", "", "", *names, "ours / best peer", "spread", "share of peak"]
    cost_head = ["cost", "", *names, "ours / best peer"]
    return "\n".join([*table(speed_head, speeds), "", *table(cost_head, costs), "", *about(results)])


def table(head, lines):
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)]


def speed_line(row, names, results):
    """Images a second; the ratio, above 1 where ours is faster; the widest range of any; what ours makes of the machine"""
    values, batch = row["values"], row["batch"]
    middle = {name: batch / statistics.median(seconds) for name, seconds in values.items()}
    spread = max((max(seconds) - min(seconds)) / statistics.median(seconds) for seconds in values.values())
    alike = [other["peak"] for other in results["rows"] if "peak" in other and other["precision"] == row["precision"]]
    share = middle["ours"] * row["multiply_adds"] / max(alike)
    cells = [short(middle[name]) if name in middle else "" for name in names]
    kind = SHORT[row["precision"]] + ", compiled" * row["compiled"]
    return [row["shape"], row["what"], kind, *cells, ratio(values, faster=True), f"{spread:.0%}", f"{share:.0%}"]


def cost_line(row, names):
    """Seconds or megabytes; the ratio, below 1 where ours costs less"""
    values, unit = row["values"], {"import": 1, "build": 1e-3, "memory": 1e6}[row["what"]]
    cells = [short(statistics.median(values[name]) / unit) for name in names]
    return [label(row), row.get("shape", ""), *cells, ratio({name: values[name] for name in names})]


def label(row):
    """What a row is about, in words"""
    if row["what"] == "import":
        return f"import, s (after torch's {short(statistics.median(row['values']['torch']))})"
    if row["what"] == "build":
        return "build, ms"
    if row["what"] == "memory":
        return f"training's memory, MB, {SHORT[row['precision']]}"
    return f"{row['shape']} {row['what']} {SHORT[row['precision']]}{', compiled' * row['compiled']}"


def ratio(values, faster=False):
    """Ours over the best peer, round by round: the median and the range. faster: of speeds, where values are seconds"""
    middle = {name: statistics.median(numbers) for name, numbers in values.items() if name != "ours"}
    if not middle:
        return ""
    pairs = zip(values["ours"], values[min(middle, key=middle.get)], strict=True)
    ratios = [peer / own if faster else own / peer for own, peer in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def short(number):
    """Three digits that count

    >>> short(24674.6), short(98.765), short(0.012345)
    ('24,700', '98.8', '0.0123')
    """
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:.3g}"


def about(results):
    """Where and with what it was measured, and what is missing"""
    libraries = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines = [f"{results['device']}: {results['machine']}; {libraries}."]
    if results["left_out"]:
        lines.append(f"Not installed, left out: {', '.join(results['left_out'])}.")
    if not results["bf16_units"] and "bfloat16" not in results["precisions"]:
        lines.append("bf16: no bf16 units here: left out.")
    return lines
