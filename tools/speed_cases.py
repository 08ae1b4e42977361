"""What `python -m tools.speed` measures: a function a row, whose docstring says when it pays."""

import io
import math
import multiprocessing
import os
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision.transforms.functional import pil_to_tensor

from vit_helpers import attention
from vit_helpers.data import load
from vit_helpers.data.splits import Batches
from vit_helpers.pretrained import load_pretrained
from vit_helpers.scaling import multiply_adds, training_multiply_adds
from vit_helpers.scaling.speedups import (
    accumulate,
    best_precision,
    break_even_steps,
    checkpoint_blocks,
    quantize,
    saved_activation_bytes,
)
from vit_helpers.scaling.timing import benchmark_interleaved, can_measure_memory, peak_memory, reset_peak_memory, seconds_of
from vit_helpers.training import evaluate
from vit_helpers.training.cnn import CNN
from vit_helpers.training.optimizers import adamw
from vit_helpers.training.recipe import PRECISIONS
from vit_helpers.vit import ViT, ViTConfig

CONFIG = ViTConfig(32, 4, 3, 10, 192, 6, 3)  # the model of most rows: 65 tokens, 2.7 million parameters
SIDES = (16, 32, 96)  # images of 17, 65 and 577 tokens, to compare the forms of attention
WIDTHS = (64, 192, 768)  # of the models held against the machine's peak
GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "131072"}  # to glibc: hoard no freed tensors, which would hide what a process needs
SECONDS = 0.3  # of a step in a round, at least one call


class Bench(NamedTuple):
    """Where to measure, and how many rounds of each comparison"""

    device: str
    rounds: int

    @property
    def batch(self):
        """Images of a batch: enough to fill the device"""
        return 32 if self.device == "cpu" else 512

    def model(self, config=None):
        """A model whose head is not zero, so that it has something to say and a gradient everywhere"""
        model = ViT(config or CONFIG)
        nn.init.trunc_normal_(model.head.weight, std=0.02)
        return model.to(self.device)

    def images(self, count, config=None):
        """Noise, and classes drawn for it"""
        config = config or CONFIG
        images = torch.randn(count, config.in_chans, *config.image_size, device=self.device)
        return images, torch.randint(config.num_classes, (count,), device=self.device)

    def compare(self, case, before, after, **more):
        """A row, of two steps measured in turn; before, after: (words, function without arguments)"""
        taken = benchmark_interleaved({"before": before[1], "after": after[1]}, self.rounds, SECONDS)
        return row_of(case, before[0], taken["before"], after[0], taken["after"]) | more


def row_of(case, before, old, after, new):
    """A row, from the words and the seconds of each round of both"""
    ratios = [a / b for a, b in zip(old, new, strict=True)]
    row = {"case": case, "before": before, "before_ms": 1000 * statistics.median(old)}
    row |= {"after": after, "after_ms": 1000 * statistics.median(new)}
    return row | {"ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios)}


def measure(name, bench):
    """The rows of a name; where it cannot run, one that says why"""
    try:
        for row in MEASURES[name](bench):
            yield {"row": name} | row
    except Exception as error:  # whatever torch or a compiler may raise: the other rows go on
        yield {"row": name, "also": f"not measured: {in_a_line(error)}"}


def in_a_line(error):
    """What an error says first, with its kind"""
    words = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {words[:150]}".replace("|", "/")


def training(model, images, labels, precision="float32", size=None, optimizer=None):
    """Training steps, forward, backward, AdamW, over the images: of `size` images each, or one of all"""
    optimizer = optimizer or adamw(model, lr=1e-4, weight_decay=0.05)
    batches = list(zip(images.split(size or len(images)), labels.split(size or len(images)), strict=True))

    def step():
        model.train()
        for some, their in batches:
            optimizer.zero_grad()
            with autocast(some, precision):
                logits = model(some)
            F.cross_entropy(logits.float(), their).backward()
            optimizer.step()

    return step


def autocast(images, precision):
    """Products in bfloat16 where that is the precision, as `fit` has it"""
    return torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bfloat16")


def answering(model, images, precision="float32", size=None):
    """Passes without a way back, of `size` images each, or one of all"""

    def step():
        model.eval()
        with torch.inference_mode(), autocast(images, precision):
            for some in images.split(size or len(images)):
                model(some)

    return step


def inside(context, step):
    """A step that runs in a context; context: makes one"""

    def run():
        with context():
            step()

    return run


def on_cpu(bench):
    if bench.device != "cpu":
        raise ValueError("a row of the CPU alone")


def kept(model, before, after):
    """What autograd keeps in each of two steps, in megabytes"""
    return {"before_mb": saved_activation_bytes(before, model) / 1e6, "after_mb": saved_activation_bytes(after, model) / 1e6}


def threads(bench):
    """In batches; one image alone gains less, and trainings that run side by side are better off with one thread each."""
    on_cpu(bench)
    most = torch.get_num_threads()
    if most == 1:
        raise ValueError("torch has one thread here")

    def using(count, step):
        def run():
            torch.set_num_threads(count)
            step()

        return f"{count} thread{'s' * (count > 1)}", run

    images, labels = bench.images(bench.batch)
    try:
        for case, step in (
            ("inference, batch 1", answering(bench.model(), images[:1])),
            (f"inference, batch {bench.batch}", answering(bench.model(), images)),
            (f"training step, batch {bench.batch}", training(bench.model(), images, labels)),
        ):
            yield bench.compare(case, using(1, step), using(most, step))
    finally:
        torch.set_num_threads(most)


def batch(bench):
    """Up to the batch that fills the cores; beyond it only memory grows."""
    count, (images, labels) = bench.batch, bench.images(bench.batch)
    for case, make in (
        ("inference", partial(answering, bench.model(), images)),
        ("training", partial(training, bench.model(), images, labels)),
    ):
        row = bench.compare(f"{case}, {count} images", ("one by one", make(size=1)), (f"batch {count}", make()))
        yield row | {"also": images_per_second(count, row["before_ms"], count, row["after_ms"])}


def images_per_second(old, old_ms, new, new_ms):
    """In words, of a number of images and the milliseconds it took, before and after"""
    return f"{1000 * old / old_ms:,.0f} → {1000 * new / new_ms:,.0f} images/s"


def attention_forms(bench):
    """In memory at any length, since the explicit form keeps a number a pair of tokens; in time, ask the machine."""
    for side in SIDES:
        config, count = replace(CONFIG, image_size=side), bench.batch // (8 if side > 32 else 1)
        model = bench.model(config)
        step = training(model, *bench.images(count, config))
        explicit, fused = inside(partial(attention_form, True), step), inside(partial(attention_form, False), step)
        case = f"training step, {config.num_tokens} tokens, batch {count}"
        yield bench.compare(case, ("explicit", explicit), ("fused", fused), **kept(model, explicit, fused))


@contextmanager
def attention_form(explicit):
    """Every attention of ours in one form, whatever its tokens and precision: two plain products, or torch's fused one"""
    ours = attention.use_fused_attention
    attention.use_fused_attention = lambda q: not explicit
    try:
        yield
    finally:
        attention.use_fused_attention = ours


def bf16(bench):
    """Where the processor has units for it, and `best_precision` says so; elsewhere it is slower than float32."""
    best = best_precision(bench.device)
    count = bench.batch if best == "bfloat16" else 4  # the trap takes its time
    model, (images, labels) = bench.model(), bench.images(count)
    before, step = training(model, images, labels), training(model, images, labels, "bfloat16")
    ways = {"bfloat16": step}
    if bench.device == "cpu":  # a second trap: the way back of torch's fused attention
        ways = {"bfloat16, fused attention": inside(partial(attention_form, False), step), "bfloat16, ours": step}
    for words, after in ways.items():
        row = bench.compare(f"training step, batch {count}", ("float32", before), (words, after))
        yield row | kept(model, before, after) | {"also": f"best_precision: {best}"}


def channels_last(bench):
    """For convolutions; our ViT cuts patches by a reshape, where the order of memory decides next to nothing."""
    images, labels = bench.images(bench.batch)
    last = images.to(memory_format=torch.channels_last)
    cnn, vit = CNN(3, 10).to(bench.device), bench.model()
    turned = deepcopy(cnn).to(memory_format=torch.channels_last)
    embed = nn.Conv2d(3, 192, 4, stride=4).to(bench.device)
    turned_embed = deepcopy(embed).to(memory_format=torch.channels_last)
    for case, old, new in (
        ("CNN, training step", training(cnn, images, labels), training(turned, last, labels)),
        ("patches by Conv2d, forward", answering(embed, images), answering(turned_embed, last)),
        ("patches by ours, forward", answering(vit.patch_embed, images), answering(vit.patch_embed, last)),
        ("ViT, training step", training(vit, images, labels), training(vit, last, labels)),
    ):
        yield bench.compare(f"{case}, batch {bench.batch}", ("channels first", old), ("channels last", new))


def optimiser(bench):
    """Always, if not by much: one call for all parameters instead of a dozen for each."""
    model, (images, labels) = bench.model(), bench.images(bench.batch)
    ways = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    made = {way: torch.optim.AdamW(model.parameters(), 1e-6, **words) for way, words in ways.items()}
    F.cross_entropy(model(images), labels).backward()  # gradients to step along
    case = f"AdamW alone, {len(list(model.parameters()))} tensors"
    for way in ("foreach", "fused"):
        yield bench.compare(case, ("for-loop", made["for-loop"].step), (way, made[way].step))
    old, new = ((way, training(model, images, labels, optimizer=made[way])) for way in ("for-loop", "fused"))
    yield bench.compare(f"training step, batch {bench.batch}", old, new)


def compiling(bench):
    """In long runs, from the step named on, when the start-up is won back; more so on a GPU than on a CPU."""
    for kind in ("inference", "training"):
        yield in_own_process(compiled, bench, kind)


def compiled(bench, kind):
    """A row of torch.compile, in a process that has compiled nothing before"""
    make, more = (answering, 0) if kind == "inference" else (training, 1)
    model, batch = bench.model(), bench.images(bench.batch)[: 1 + more]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        old, new = make(model, *batch), make(torch.compile(model), *batch)
        start = seconds_of(new)
        row = bench.compare(f"{kind}, batch {bench.batch}", ("as written", old), ("compiled", new), start_s=start)
    steps = break_even_steps(start, row["before_ms"] / 1000, row["after_ms"] / 1000)
    return row | {"also": f"has paid after {steps:,} steps" if steps < math.inf else "never pays"}


def in_own_process(function, bench, *words):
    """What function(bench, *words) returns in a fresh process, with as many threads as here

    raises: RuntimeError with what its error says
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(with_threads, torch.get_num_threads(), function, bench, *words).result()


def with_threads(count, function, *words):
    torch.set_num_threads(count)
    try:
        return function(*words)
    except Exception as error:  # some of torch's errors cannot travel between processes
        raise RuntimeError(in_a_line(error)) from None


def accumulation(bench):
    """Where the batch you want does not fit into memory; it saves no time."""
    model, (images, labels) = bench.model(), bench.images(bench.batch)
    whole, summed = (gradient(model, images, labels, parts) for parts in (1, 4))
    off = ((whole - summed).abs().max() / whole.abs().max()).item()
    before, after = (partial(accumulate, model, images, labels, parts) for parts in (1, 4))
    words = (f"batch {bench.batch} at once", f"4 parts of {bench.batch // 4}")
    row = bench.compare("gradient", (words[0], before), (words[1], after), **kept(model, before, after))
    yield row | {"also": f"gradients differ by at most {off:.0e} of the largest"}


def gradient(model, images, labels, parts):
    """All numbers of the gradient in a row"""
    accumulate(model, images, labels, parts)
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def checkpointing(bench):
    """Where what autograd keeps does not fit into memory: a third more time for a small part of it."""
    model, (images, labels) = bench.model(), bench.images(bench.batch)
    step = training(model, images, labels)
    again = inside(partial(checkpoint_blocks, model), step)
    row = bench.compare(f"training step, batch {bench.batch}", ("keep all", step), ("recompute blocks", again))
    row |= kept(model, step, again)
    if can_measure_memory() and bench.device == "cpu":
        with patch.dict(os.environ, GIVE_BACK):
            grown = [in_own_process(growth, bench, recompute) for recompute in (False, True)]
        row["also"] = f"the process grows by {grown[0]:,.0f} → {grown[1]:,.0f} MB"
    yield row


def growth(bench, recompute):
    """Megabytes by which three training steps make a fresh process grow, at their highest"""
    model, (images, labels) = bench.model(), bench.images(bench.batch)
    training(model, images[:1], labels[:1])()  # what torch loads for its first step is not meant
    step, before = training(model, images, labels), reset_peak_memory()
    with checkpoint_blocks(model) if recompute else nullcontext():
        for _ in range(3):
            step()
    return (peak_memory() - before) / 1e6


def loader(bench):
    """Workers pay where making a picture takes longer than handing it over; data that fits in memory wants no loader."""
    data = load("digits")
    pairs = TensorDataset(data.normalize(data.train.images), data.train.labels)
    ours = ("slices in memory", over(data.batches("train", 32, shuffle=True)))
    none, two = loading(pairs, 0), loading(pairs, 2)
    case = f"epoch of {len(pairs):,} digits"
    yield bench.compare(case, none, ours)
    yield bench.compare(case, two, ours, start_s=seconds_of(two[1]))  # the first epoch starts the workers
    files = Files(64)
    none, two = loading(files, 0), loading(files, 2)
    yield bench.compare(f"epoch of {len(files)} JPEG files", none, two, start_s=seconds_of(two[1]))


class Files(Dataset):
    """Pictures as they lie in files: each is decoded when it is asked for, (3, side, side)"""

    def __init__(self, count, side=224):
        self.side, self.labels, file = side, range(count), io.BytesIO()
        Image.effect_noise((2 * side, 2 * side), 50).convert("RGB").save(file, "JPEG")
        self.file = file.getvalue()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return pil_to_tensor(Image.open(io.BytesIO(self.file)).resize((self.side, self.side))), self.labels[row]


def loading(dataset, workers):
    """Words and step: a pass through a DataLoader whose workers stay for the next"""
    batches = DataLoader(dataset, 32, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    return f"DataLoader, {workers} workers", over(batches)


def over(batches):
    """A pass over all batches"""

    def step():
        for _ in batches:
            pass

    return step


def quantised(bench):
    """For memory, and for time where the weights take it: wide layers, few images. The rest is to be measured."""
    on_cpu(bench)
    model, (images, _) = bench.model(), bench.images(bench.batch)
    others = {"int8": (quantize(model), images), "bfloat16": (deepcopy(model).bfloat16(), images.bfloat16())}
    right = {"float32": accuracy_of(lambda model: model), "int8": accuracy_of(quantize)}
    said = f"accuracy of a trained model {right['float32']:.3f} → {right['int8']:.3f}"
    for words, (other, pixels) in others.items():
        notes = f"weights {file_mb(model):.1f} → {file_mb(other):.1f} MB, {differ(model(images), other(pixels))}"
        notes += f", {said}" if words == "int8" else ""
        for count in (1, bench.batch):
            before, after = answering(model, images[:count]), answering(other, pixels[:count])
            yield bench.compare(f"inference, batch {count}", ("float32", before), (words, after), also=notes)


def accuracy_of(change):
    """Of a small trained model after a change, on 100 scattered digits that it has never seen"""
    trained, data = load_pretrained("ours:scattered"), load("scattered_digits", n=500)
    return evaluate(change(trained.model), Batches(data.test, 100, trained.preprocess.normalize)).accuracy


def file_mb(model):
    """Megabytes of the weights in a file"""
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    return file.tell() / 1e6


def differ(old, new):
    """In words, how far logits are apart"""
    return f"logits differ by {((old - new).abs().max() / old.std()).item():.2f} of their spread at most"


def latency(bench):
    """One image at a time where somebody waits for it; in batches where only the number of images a second counts."""
    model, (images, _) = bench.model(), bench.images(64)
    for old, new in ((1, 8), (8, 64)):
        before, after = (answering(model, images[:count]) for count in (old, new))
        row = bench.compare("until the answer", (f"batch {old}", before), (f"batch {new}", after))
        yield row | {"also": images_per_second(old, row["before_ms"], new, row["after_ms"])}


def peak(bench):
    """The ratio is the share of the machine's multiply-adds that a model turns into its own: what is left to win."""
    for precision in dict.fromkeys(("float32", best_precision(bench.device))):
        for width in WIDTHS:
            count = bench.batch if width < 768 else bench.batch // 4
            yield from shares(bench, ViTConfig(32, 4, 3, 10, width, 2, width // 64), count, precision)


def shares(bench, config, count, precision):
    """Forward and training of a model beside a large matrix product, in turn"""
    side = 1024 if bench.device == "cpu" else 8192
    a, b = (torch.randn(side, side, device=bench.device, dtype=PRECISIONS[precision]) for _ in range(2))
    model, (images, labels) = bench.model(config), bench.images(count, config)
    fused = attention.use_fused_attention(images.new_empty(1, config.num_tokens, 1, dtype=PRECISIONS[precision]))
    work = {
        "forward": (answering(model, images, precision), multiply_adds(config)),
        "training": (training(model, images, labels, precision), training_multiply_adds(config, fused)),
    }
    steps = {name: step for name, (step, _) in work.items()} | {"product": lambda: torch.mm(a, b)}
    taken = benchmark_interleaved(steps, bench.rounds, SECONDS)
    for name, (_, parts) in work.items():
        share = count * sum(parts.values()) / side**3
        best = [share * seconds for seconds in taken["product"]]
        case = f"{name}, width {config.embed_dim}, batch {count}, {precision}"
        yield row_of(case, "at the peak", best, "measured", taken[name])


MEASURES = {
    "threads": threads,
    "batch": batch,
    "attention": attention_forms,
    "bf16": bf16,
    "channels-last": channels_last,
    "optimiser": optimiser,
    "compile": compiling,
    "accumulation": accumulation,
    "checkpointing": checkpointing,
    "loader": loader,
    "quantised": quantised,
    "latency": latency,
    "peak": peak,
}
