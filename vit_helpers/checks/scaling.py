"""The exercises of notebook 11."""

import copy
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.contract import contract
from vit_helpers.checks.engine import Case, Exercise
from vit_helpers.checks.learning import as_number, leave_gradients, loss_of, plain
from vit_helpers.checks.report import reject_if, short
from vit_helpers.scaling import multiply_adds, parameters, training_bytes, training_multiply_adds
from vit_helpers.vit import ViTConfig

# What the checks share

B16, S16, L16 = (ViTConfig.from_name(name) for name in ("B/16", "S/16", "L/16"))
SMALL = ViTConfig((24, 40), 4, 3, 10, 64, 2, 4)
AVERAGED = ViTConfig(32, 4, 1, 10, 96, 3, 3, mlp_ratio=2, class_token=False, pool="avg")
KEYS = {"'int' and 'str'": "sum() of a dictionary adds up its keys. sum(... .values()) is meant"}


def cases(*several: tuple) -> list[Case]:
    """A case for each tuple of arguments."""
    return [Case(partial(tuple, given)) for given in several]


def unless_first(first: Any, words: str) -> Callable:
    """Words about a number that no known mistake gives: others where the first case, which has this argument, was right."""
    earlier = "an earlier try was right. Is a number, or a config, fixed in your code?"
    return lambda got, right, *given: words if first in given else earlier


def named(config: ViTConfig) -> str:
    """A config in a few words."""
    H, W = config.image_size
    return f"{config.depth} blocks of width {config.embed_dim}, {H} x {W} pixels in patches of {config.patch_size}"


# One block

EACH, PAIRS = ("qkv", "output", "MLP"), ("scores", "mixing")  # each token through matrices; every token with every token
BLOCKS = [(197, 768, 3072), (50, 192, 1000), (17, 384, 384), (1, 768, 128)]  # T, D, M; D splits into many numbers of heads


def right_parts(T: int, D: int, M: int) -> dict[str, int]:
    """Multiply-adds of one block."""
    return {"qkv": 3 * T * D * D, "scores": T * T * D, "mixing": T * T * D, "output": T * D * D, "MLP": 2 * T * D * M}


def changed(parts: Sequence[str], rule: Callable) -> Callable:
    """The right answer with other numbers for some parts: rule(right number, T, D, M, biases of the part)."""

    def answer(T: int, D: int, M: int) -> dict:
        right, biases = right_parts(T, D, M), {"qkv": 3 * D, "output": D, "MLP": M + D}
        return right | {part: rule(right[part], T, D, M, biases.get(part, 0)) for part in parts}

    return answer


def counted(answer: Callable, T: int, D: int, M: int, look: Sequence[str]) -> dict[str, float]:
    """The numbers for some parts; Mistake unless the answer gives a dictionary of all five."""
    when, parts = f"for T = {T}, D = {D}, M = {M}", list(right_parts(T, D, M))
    got, wanted = answer(T, D, M), ", ".join(f'"{part}"' for part in parts)
    reject_if(got is None, f"gives nothing back {when}: does it end with return?")
    words = f"it should give a dictionary of {wanted}: one by one they show what grows with T"
    reject_if(not isinstance(got, Mapping), f"gives {short(got)} {when}; {words}")
    missing = [part for part in parts if part not in got]
    extra = ", ".join(short(key) for key in got if key not in parts)
    reject_if(missing, f"lacks {', '.join(missing)} (it has also: {extra or 'nothing else'}); the keys are {wanted}")
    reject_if(extra, f"has {extra}, which is none of the five: {wanted}")
    return {part: as_number(got[part], f'as "{part}" {when}') for part in look}


def odd_pairs(got: float, right: float, T: int, D: int, M: int, look: Sequence[str]) -> str | None:
    """What is odd about a wrong number of scores or mixing."""
    found = {
        "every pair counts, in both directions, and a token meets itself too: T * T": abs(2 * got - right) in (0, T * D),
        "the number of heads changes nothing: h heads of width D / h do as much as one of width D, T * T * D":
            got and max(got / right, right / got) in (3, 4, 6, 8, 12, 16),
        "softmax or the scale is counted; products of matrices only": (got - right) / (T * T) in (1, 2, 3, 4),
    }  # fmt: skip
    return next((words for words, so in found.items() if so and look == PAIRS), None)


BLOCK = Exercise(
    name="block_multiply_adds",
    reference=right_parts,
    observe=counted,
    when=lambda T, D, M, look: f"for T = {T}, D = {D}, M = {M}",
    says='gives {got:,} as "{part}" {when}; it should give {right:,}: {words}',
    odd=odd_pairs,
    unknown=unless_first(197, "products of matrices, (rows x inner) @ (inner x columns), are counted"),
    rtol=1e-6,
    ideas={
        "a dictionary with a number for each of the five parts":
            [lambda exercise, answer: [exercise.try_form(answer, (*sizes, (*EACH, *PAIRS))) for sizes in BLOCKS]],
        "qkv, output and MLP: each token through matrices": cases(*((*sizes, EACH) for sizes in BLOCKS)),
        "scores and mixing: every token with every token": cases(*((*sizes, PAIRS) for sizes in BLOCKS)),
    },
    mistakes={
        "these are FLOPs: a multiply-add is one product and one sum, so there are half as many":
            changed((*EACH, *PAIRS), lambda n, *_: 2 * n),
        "biases are counted; they are sums without a product": changed(EACH, lambda n, T, D, M, biases: n + T * biases),
        "these are the learned weights: each of them works once a token, so T is missing":
            changed(EACH, lambda n, T, *_: n / T),
        "these are the learned weights and biases: each weight works once a token, so T is missing":
            changed(EACH, lambda n, T, D, M, biases: n / T + biases),
        "every token goes through alone here: T counts once, not squared": changed(EACH, lambda n, T, *_: n * T),
        "one map of three: queries, keys and values have one each": changed(["qkv"], lambda n, *_: n / 3),
        "two maps of three: queries, keys and values have one each": changed(["qkv"], lambda n, *_: n * 2 / 3),
        "one map of D x D puts the heads together; three belong to qkv": changed(["output"], lambda n, *_: 3 * n),
        "one matrix of two: D to M, and M back to D": changed(["MLP"], lambda n, *_: n / 2),
        "M is taken as 4 D, whatever M is": changed(["MLP"], lambda n, T, D, M, _: 8 * T * D * D),
        "one matrix of M x M is counted; there are two, D x M and M x D":
            changed(["MLP"], lambda n, T, D, M, _: T * M * M),
        "the second matrix is taken as M x M; it is M x D": changed(["MLP"], lambda n, T, D, M, _: T * M * (D + M)),
        "two matrices of M x M are counted; the two are D x M and M x D":
            changed(["MLP"], lambda n, T, D, M, _: 2 * T * M * M),
        "two matrices of D x D are counted; the two are D x M and M x D":
            changed(["MLP"], lambda n, T, D, M, _: 2 * T * D * D),
        "GELU is counted; products of matrices only": changed(["MLP"], lambda n, T, D, M, _: n + T * M),
        "T is missing once: every token meets every token, T * T pairs": changed(PAIRS, lambda n, T, *_: n / T),
        "T and D are swapped: T * T pairs, and a sum of D products for each":
            changed(PAIRS, lambda n, T, D, M, _: T * D * D),
        "these are the pairs; each is a sum of D products": changed(PAIRS, lambda n, T, *_: T * T),
    },
)  # fmt: skip
check_block_multiply_adds = BLOCK.check


# Twice the resolution


def cost(config: ViTConfig, count: Callable = multiply_adds, **changes: Any) -> int:
    """The sum of all parts, of a config with changes."""
    return sum(count(replace(config, **changes)).values())


def sides(c: ViTConfig, f: int) -> tuple[int, int]:
    """Height and width of the larger image."""
    return f * c.image_size[0], f * c.image_size[1]


def times(changes: Callable, count: Callable = multiply_adds) -> Callable:
    """How many times more a config with changes costs: (config, factor) -> its new fields."""
    return lambda c, f: cost(c, count, **changes(c, f)) / cost(c, count)


def larger(c: ViTConfig, f: int) -> dict[str, tuple]:
    """What changes."""
    return {"image_size": sides(c, f)}


def grown_tokens(c: ViTConfig, f: int) -> float:
    """How many times more tokens the larger image has."""
    return replace(c, **larger(c, f)).num_tokens / c.num_tokens


def rounded(got: float, right: float, *given: Any) -> str | None:
    """What is odd about a number with few digits."""
    if any(got == round(right, digits) for digits in (1, 2, 3)):
        return "leave the rounding to whoever prints it"
    return None


TIMES = Exercise(
    name="times_more",
    reference=times(larger),
    when=lambda config, factor: f"for factor {factor} and {named(config)}",
    says="gives {got:.5g} {when}; it should give {right:.5g}: {words}",
    kind="a number of times",
    odd=rounded,
    unknown=unless_first(B16, "divide the cost of the larger image by that of the smaller one"),
    hints=KEYS,
    ideas={
        "twice the side of B/16: more than 4 times, for attention grows faster": cases((B16, 2)),
        "other models, images that are not square, other factors": cases((SMALL, 2), (SMALL, 3), (S16, 4), (L16, 2)),
        "no class token, and nothing grown": cases((AVERAGED, 2), (AVERAGED, 4), (SMALL, 1)),
    },
    mistakes={
        "the patches grew with the image, so there are as many as before: leave patch_size alone":
            times(lambda c, f: larger(c, f) | {"patch_size": f * c.patch_size}),
        "there are as many patches as before: the cost of a new config is asked": lambda c, f: 1,
        "the patches become smaller here; the image is to become larger":
            times(lambda c, f: {"patch_size": max(c.patch_size // f, 1)}),
        "the tokens grow like that, nearly; scores and mixing grow with T * T": lambda c, f: f**2,
        "the tokens grow like that; scores and mixing grow with T * T": grown_tokens,
        "scores and mixing alone grow like that, nearly; the rest grows with T": lambda c, f: f**4,
        "scores and mixing alone grow like that; the rest grows with T": lambda c, f: grown_tokens(c, f) ** 2,
        "each part grows by its own share of the whole, and the shares are no halves": lambda c, f: (f**2 + f**4) / 2,
        "that is the factor itself; the patches fill an area": lambda c, f: f,
        "one side grew; both do": times(lambda c, f: {"image_size": (sides(c, f)[0], c.image_size[1])}),
        "the height is taken for the width: image_size is a pair (H, W)": times(lambda c, f: {"image_size": sides(c, f)[0]}),
        "the width is taken for the height: image_size is a pair (H, W)": times(lambda c, f: {"image_size": sides(c, f)[1]}),
        "upside down: the larger image belongs above the line": lambda c, f: 1 / times(larger)(c, f),
        "that is what is added, as a share of the cost; how many times as much is asked":
            lambda c, f: times(larger)(c, f) - 1,
        "that is what is added; how many times as much is asked": lambda c, f: cost(c, **larger(c, f)) - cost(c),
        "that is the cost itself; divide by that of the smaller image": lambda c, f: cost(c, **larger(c, f)),
        "the class token is left out": lambda c, f: times(larger)(replace(c, class_token=False, pool="avg"), f),
        "these are parameters; multiply-adds are asked": times(larger, parameters),
        "the way back is counted too; one image through the model is asked": times(larger, training_multiply_adds),
    },
)  # fmt: skip
check_times_more = TIMES.check


# A large batch, part by part


class Watched(nn.Module):
    """A copy of a model that notes how many images it is passed, in which mode, and what is still kept of earlier passes."""

    def __init__(self, start: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(start)
        for mine, p in zip(self.net.parameters(), start.parameters(), strict=True):
            mine.grad = None if p.grad is None else p.grad.clone()
        self.passed, self.modes, self.left, self.kept = [], [], [], []

    def forward(self, images: Tensor) -> Tensor:
        self.passed.append(len(images))
        self.modes.append(self.training)
        self.left.append(sum(kept() is not None for kept in self.kept))
        return self.net(images)

    def keep(self, tensor: Tensor) -> Tensor:
        """What autograd keeps in place of a tensor, noted as long as it does."""
        kept = tensor.detach()
        self.kept.append(weakref.ref(kept))
        return kept


def a_batch(n: int, parts: int, look: str, old: bool = False) -> Case:
    """A model, a batch of n images, and what is compared; `old`: whether an earlier batch left its gradient."""

    def draw() -> tuple:
        model = plain(3)
        if old:
            leave_gradients(model)
        return model, 2 * torch.randn(n, 1, 2, 3), torch.randint(3, (n,)), parts, look

    return Case(draw)


def for_batch(model: nn.Module, images: Tensor, labels: Tensor, parts: int, look: str) -> str:
    """The arguments in words."""
    return f"for {len(images)} images and parts = {parts}"


def flat(tensors: Any) -> Tensor:
    """All numbers of some tensors in a row."""
    return torch.cat([t.detach().flatten() for t in tensors])


def run(answer: Callable, start: nn.Module, images: Tensor, labels: Tensor, parts: int, watch: bool = False) -> tuple:
    """The model that an answer has asked, and what it gave; `watch`: see what autograd keeps."""
    model, when = Watched(start), for_batch(start, images, labels, parts, "")
    with torch.autograd.graph.saved_tensors_hooks(model.keep, lambda kept: kept) if watch else nullcontext():
        got = answer(model, images, labels, parts)
    nothing = ", and gives nothing back: does it end with return?" if got is None else ""
    reject_if(not model.passed, f"never calls the model {when}{nothing}")
    moved = not torch.equal(flat(start.parameters()), flat(model.parameters()))
    reject_if(moved, f"moves the weights {when}: only .grad is wanted, the step is left to whoever calls")
    return model, got


def left_behind(
    answer: Callable, start: nn.Module, images: Tensor, labels: Tensor, parts: int, look: str
) -> dict[str, Tensor]:
    """The gradient that an answer leaves in .grad, or the loss that it gives."""
    model, got = run(answer, start, images, labels, parts)
    when = for_batch(start, images, labels, parts, look)
    if look == "loss":
        words = "the model in evaluation mode, though it came in training mode: dropout would be off"
        reject_if(not all(model.modes), f"passes {words}")
        reject_if(not model.training, f"leaves {words}")
        return {look: torch.tensor(loss_of(got, when, "the mean loss, a number"), dtype=torch.float32)}
    none = [name for name, p in model.named_parameters() if p.grad is None]
    words = "is loss.backward() missing, or was zero_grad() called after it?"
    reject_if(none, f"leaves no gradient in .grad of {', '.join(none)} {when}: {words}")
    return {look: flat(p.grad for p in model.parameters())}


def apart(exercise: Exercise, answer: Callable) -> None:
    """Mistake unless the model gets one part at a time, and nothing of it is kept when the next one comes."""
    for n, parts in ((12, 4), (10, 4), (14, 2)):
        given = a_batch(n, parts, "").draw()
        try:
            model, _ = run(answer, *given[:4], watch=True)
        except RuntimeError as error:
            if "saved tensor hooks" not in str(error):
                raise
            model, _ = run(answer, *given[:4])  # torch.func does not let itself be watched
        passed, size, when = model.passed, math.ceil(n / parts), for_batch(*given)
        whole = "the gradient is right, but no memory is saved"
        reject_if(max(passed) == n, f"passes the model all {n} images at once {when}: {whole}")
        reject_if(max(passed) > size, f"passes the model {max(passed)} images at once {when}; {size} are enough")
        words = "each once is enough. Keep the loss of its pass"
        reject_if(sum(passed) > n, f"passes the model {sum(passed)} images in all {when}: {words}")
        wasted = len(passed) > math.ceil(n / (n // parts))
        reject_if(wasted, f"calls the model {len(passed)} times {when}: parts smaller than asked waste time")
        words = "the gradient is right, but memory holds all parts. Call backward() in the loop, without retain_graph"
        reject_if(any(model.left), f"keeps the numbers of earlier parts when the next one comes {when}: {words}")


def weighed(values: Sequence[Any], weights: Sequence[float]) -> Any:
    """Values times weights, added up."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def by_parts(
    weigh: Callable = lambda n, N, k: n / N,
    zero: str = "before",
    pick: Callable = lambda chunks: chunks,
    mean: Callable = lambda losses, sizes: weighed(losses, sizes) / sum(sizes),
) -> Callable:
    """An answer: weight of a part of n images out of N in k parts, when gradients are set to 0, which parts, which loss."""

    def answer(model: nn.Module, images: Tensor, labels: Tensor, parts: int) -> float:
        if zero == "before":
            model.zero_grad()
        losses, chunks = [], list(zip(images.chunk(parts), labels.chunk(parts), strict=True))
        for x, y in pick(chunks):
            if zero == "inside":
                model.zero_grad()
            losses.append(F.cross_entropy(model(x), y))
            (losses[-1] * weigh(len(y), len(labels), len(chunks))).backward()
        if zero == "after":
            model.zero_grad(set_to_none=False)
        return mean([loss.item() for loss in losses], [len(y) for _, y in pick(chunks)])

    return answer


WEIGH = "weigh each mean loss by its number of images, divide by the number of all ({when})"
LOST = {  # parts that are missing, whatever the others are multiplied by
    "only the last part is in .grad: zero_grad() once, before the loop, for backward() adds up ({when})":
        by_parts(zero="inside"),
    "only the first part is in .grad: does return stand inside the loop? ({when})": by_parts(pick=lambda x: x[:1]),
    "the last part is missing in .grad; take it too, however small it is ({when})": by_parts(pick=lambda x: x[:-1]),
}  # fmt: skip


def multiple(got: Tensor, of: Tensor) -> float:
    """How many times another gradient this one is; 0 where it points elsewhere."""
    factor = (got @ of / (of @ of)).item()
    return factor if factor and (got - factor * of).norm() < 1e-4 * (factor * of).norm() else 0


def other_gradient(got: Tensor, right: Tensor, *given: Any) -> str:
    """What to say of a gradient that no known mistake gives."""
    for words, wrong in LOST.items():
        theirs = ACCUMULATE.tried(wrong, given)
        if theirs and multiple(got, theirs["gradient"]):
            return words
    if factor := multiple(got, right):
        return f"the gradient is {factor:.3g} times what it should be: {WEIGH}"
    off = (got - right).norm() / right.norm()
    return f"another gradient in .grad, off by {off:.0%}: has each part its own labels? ({{when}})"


def accumulate_says(part: str, got: Tensor, right: Tensor, words: str, *given: Any) -> str:
    """The message about a wrong gradient or loss."""
    said = f"gives {got:.5g} as the loss {for_batch(*given)}; it should give {right:.5g}: " if part == "loss" else ""
    return said + words


ACCUMULATE = Exercise(
    name="accumulate",
    reference=by_parts(),
    observe=left_behind,
    when=for_batch,
    says=accumulate_says,
    unknown={"gradient": other_gradient, "loss": "each part's mean loss counts as often as it has images"},
    ideas={
        "equal parts: the gradient of the mean over all images":
            [a_batch(*sizes, "gradient") for sizes in ((12, 4), (6, 1), (12, 2))],
        "a smaller last part: every image counts the same":
            [a_batch(*sizes, "gradient") for sizes in ((10, 4), (9, 4), (7, 2))],
        "starts from zero, whatever an earlier batch left":
            [a_batch(*sizes, "gradient", old=True) for sizes in ((12, 4), (10, 4))],
        "one part at a time, its numbers given back before the next": [apart],
        "the mean loss, and the model in the mode in which it came":
            [*(a_batch(*sizes, "loss") for sizes in ((10, 4), (12, 4), (7, 2))), contract],
    },
    mistakes=LOST | {
        "adds up the means of {3} parts: the gradient is about {3} times too long ({when})":
            by_parts(weigh=lambda n, N, k: 1),
        f"weighs all parts alike, though the last is smaller: {WEIGH}": by_parts(weigh=lambda n, N, k: 1 / k),
        "an earlier batch's gradient is still in .grad: zero_grad() once, before the loop ({when})": by_parts(zero="never"),
        "leaves zeros in .grad: is zero_grad() called after backward()? ({when})": by_parts(zero="after"),
        "that is one part's share; add the parts up": by_parts(mean=lambda x, n: x[-1] * n[-1] / sum(n)),
        "that is one part's mean loss; add up all, weighed by images": by_parts(mean=lambda x, n: x[-1]),
        "that is the sum of the parts' means": by_parts(mean=lambda x, n: sum(x)),
        "that weighs all parts alike; weigh by images": by_parts(mean=lambda x, n: sum(x) / len(x)),
        "that is the sum over images; divide by their number": by_parts(mean=weighed),
        "that is divided twice, by the images and by the parts":
            by_parts(mean=lambda x, n: weighed(x, n) / sum(n) / len(n)),
    },
)  # fmt: skip
check_accumulate = ACCUMULATE.check


# Two processes, one gradient


def processes(counts: Sequence[int], shape: tuple) -> Case:
    """The gradient of each process, and the number of its images."""
    return Case(lambda: ([torch.randn(shape) if n else torch.zeros(shape) for n in counts], list(counts)))


COMBINE = Exercise(
    name="combine",
    reference=lambda gs, ns: weighed(gs, ns) / sum(ns),
    when=lambda gs, ns: f"for processes with {', '.join(map(str, ns))} images",
    says="{words}",
    unknown="gives other numbers {when} than each gradient times its share of the images, added up",
    ideas={
        "two processes: each weighs as much as it has images": [processes((6, 3), (2, 3))],
        "one process, or many, with equal counts too":
            [processes((5, 1, 2, 4), (4,)), processes((7,), (2, 2)), processes((3, 3, 3), (3,))],
        "a process without images changes nothing": [processes((4, 0, 3), (2, 3)), processes((0, 5), (1,))],
    },
    mistakes={
        f"{words} ({{when}})": wrong for words, wrong in {
            "takes the plain mean, where a process with few images weighs as much as one with many":
                lambda gs, ns: sum(gs) / len(ns),
            "adds the gradients up; each is a mean, and the mean of them all is wanted": lambda gs, ns: sum(gs),
            "weighs by the counts, but divides by the number of processes; divide by that of all images":
                lambda gs, ns: weighed(gs, ns) / len(ns),
            "weighs by the counts, but does not divide; divide by the number of all images": weighed,
            "weighs by the counts, but divides by the largest; divide by their sum":
                lambda gs, ns: weighed(gs, ns) / max(ns),
            "divides twice: by the images, and by the processes once more":
                lambda gs, ns: weighed(gs, ns) / sum(ns) / len(ns),
            "divides each by its count; it is a mean already, so multiply by the count and divide by the sum of all":
                lambda gs, ns: sum(g / n for g, n in zip(gs, ns, strict=True)),
            "divides by all images, but weighs by nothing; each gradient is a mean already, so multiply by its count":
                lambda gs, ns: sum(gs) / sum(ns),
            "gives each process the weight of another: in which order are the counts?":
                lambda gs, ns: weighed(gs, ns[::-1]) / sum(ns),
            "gives zeros: c // n leaves nothing, use /": lambda gs, ns: weighed(gs, [n // sum(ns) for n in ns]),
            "combines two processes only": lambda gs, ns: weighed(gs[:2], ns[:2]) / sum(ns[:2]),
            "combines two processes only, though it divides by all images":
                lambda gs, ns: weighed(gs[:2], ns[:2]) / sum(ns),
            "gives the gradient of the first process alone": lambda gs, ns: gs[0],
            "gives the gradient of the last process alone": lambda gs, ns: gs[-1],
            "gives numbers that are not finite: never divide by one process's own count":
                lambda gs, ns: weighed([g / n for g, n in zip(gs, ns, strict=True)], [n * n / sum(ns) for n in ns]),
        }.items()
    },
)  # fmt: skip
check_combine = COMBINE.check


# The largest batch


def fit(
    copies: float = 4, each: float = 0, unit: float = 2**30, count: Callable = math.floor, fused: bool = True
) -> Callable:
    """The images that fit; copies: numbers a parameter that are there once; each: those counted for every image."""

    def answer(config: ViTConfig, gibibytes: float) -> int:
        needs = training_bytes(config, 1, fused=fused)
        if sum(training_bytes(config, 1).values()) > gibibytes * 2**30:
            return 0
        room = gibibytes * unit - copies * needs["weights"]
        return count(room / (needs["activations"] + each * needs["weights"]))

    return answer


def to_the_byte(config: ViTConfig, batch: int) -> list[Case]:
    """Exactly the memory that a batch needs, and a byte less."""
    room, H = sum(training_bytes(config, batch).values()), f"for {named(config)} and "
    return [
        Case(partial(tuple, (config, bytes_ / 2**30)), f"{H}{bytes_ / 2**30:.6g} GiB, {words} a batch of {batch} needs")
        for bytes_, words in ((room, "to the byte what"), (room - 1, "a byte less than"))
    ]


def other_batch(got: float, right: int, config: ViTConfig, gibibytes: float) -> str:
    """What to say of a number that no known mistake gives."""
    if got < 0:
        return "weights, gradients and optimizer alone are too large. That is 0 images"
    if not right:
        return "not even one image fits beside the weights, so 0 is wanted"
    return unless_first(24, "subtract what is there once, then divide by what an image needs")(got, right, gibibytes)


BATCH = Exercise(
    name="largest_batch",
    reference=fit(),
    when=lambda config, gibibytes: f"for {named(config)} and {gibibytes:.6g} GiB",
    says="gives {got:,} {when}; it should give {right:,}: {words}",
    kind="a whole number of images: //, or math.floor",
    unknown=other_batch,
    hints=KEYS,
    ideas={
        "weights, gradients and optimiser once, activations for each image":
            cases((B16, 24), (S16, 8), (L16, 40), (SMALL, 0.5), (AVERAGED, 0.25)),
        "0 where not even one image fits": cases((L16, 4), (B16, 1), (B16, 1.35)),
        "what fits to the last byte fits, and with one byte less it does not":
            [case for config, batch in ((B16, 3), (S16, 10), (SMALL, 1), (SMALL, 0)) for case in to_the_byte(config, batch)],
    },
    mistakes={
        "GB of 10^9 bytes are taken for GiB of 2**30": fit(unit=1e9),
        "one too few: what fits to the last byte fits, <= and not <": fit(count=lambda x: math.ceil(x) - 1),
        "one too many: is it rounded up, or does a loop stop one too late?": fit(count=math.ceil),
        "rounded down to a power of two; the largest batch is asked":
            fit(count=lambda x: 2 ** math.floor(math.log2(x))),
        "with fused=False, attention that writes its weights down; leave the default": fit(fused=False),
        "multiplied by 4: training_bytes counts bytes already": fit(unit=2**28),
        "activations alone are counted; weights, gradients and optimizer take memory too": fit(copies=0),
    } | {
        f"not all four numbers a parameter are counted, but {n}: weight, gradient, and two of AdamW's": fit(copies=n)
        for n in (1, 2, 3)
    } | {
        f"{n} of the four numbers a parameter are counted for every image; weights, gradients, optimizer are there once":
            fit(copies=4 - n, each=n)
        for n in (1, 2, 3, 4)
    },
)  # fmt: skip
check_largest_batch = BATCH.check


# Days


def days(factor: Callable = lambda *given: 1) -> Callable:
    """The right answer, times something that depends on the arguments."""

    def answer(config: ViTConfig, images: int, epochs: int, peak: float, share: float) -> float:
        flops = 2 * images * epochs * cost(config, training_multiply_adds)
        return factor(config, images, epochs, peak, share) * flops / (peak * share) / 86400

    return answer


def every_token(c: ViTConfig) -> float:
    """The share of all multiply-adds that parameters times tokens are."""
    return cost(c, parameters) * c.num_tokens / cost(c)


def odd_unit(got: float, right: float, *given: Any) -> str | None:
    """What is odd about days that are too many or too few by a unit of time."""
    units = {
        "these are seconds, minutes or hours": (86400, 1440, 24),
        "a day has 24 * 60 * 60 seconds": (60, 3600, 1 / 24, 1 / 60),
    }
    return next(
        (words for words, some in units.items() if any(math.isclose(got, right * x, rel_tol=0.02) for x in some)), None
    )


DAYS = Exercise(
    name="training_days",
    reference=days(),
    when=lambda config, images, epochs, peak, share: (
        f"for {images:,} images, {epochs} epochs, {share:g} of {peak:.3g} FLOPs a second, and {named(config)}"
    ),
    says="gives {got:,.5g} {when}; it should give {right:,.5g}: {words}",
    kind="a number of days",
    odd=odd_unit,
    unknown=unless_first(300, "FLOPs of all images and epochs, over those that the GPU reaches in a day"),
    hints=KEYS,
    rtol=0.02,  # attention that writes its weights down costs a little less than fused; both are right
    ideas={
        "B/16 on ImageNet-1k, 300 epochs": cases((B16, 1_281_167, 300, 989e12, 0.45)),
        "other data, another GPU, another share of its peak":
            cases((B16, 1_281_167, 90, 312e12, 0.3), (B16, 14_000_000, 7, 989e12, 0.55), (B16, 60_000, 1, 15e12, 1.0)),
        "other models":
            cases(*((config, 1_281_167, 30, 989e12, 0.35) for config in (S16, L16, replace(B16, image_size=384)))),
    },
    mistakes={
        "multiply-adds over a peak in FLOPs: a multiply-add is two of them": days(lambda *_: 1 / 2),
        "twice too many: a multiply-add is 2 FLOPs, once": days(lambda *_: 2),
        "the way forward alone is counted; back costs about twice as much again": days(lambda *_: 1 / 3),
        "the way forward alone is counted, and multiply-adds for FLOPs": days(lambda *_: 1 / 6),
        "the way back alone is counted; the way forward comes first": days(lambda *_: 2 / 3),
        "three times too long: training_multiply_adds counts the way back already": days(lambda *_: 3),
        "the share is left out: nobody reaches the peak": days(lambda c, images, epochs, peak, share: share),
        "multiplied by the share; divide, for who reaches less takes longer":
            days(lambda c, images, epochs, peak, share: share**2),
        "that is for one epoch": days(lambda c, images, epochs, *_: 1 / epochs),
        "that is for one image an epoch": days(lambda c, images, *_: 1 / images),
        "that is for one token an image": days(lambda c, *_: 1 / c.num_tokens),
        "parameters are counted; each of them works once a token": days(lambda c, *_: every_token(c) / c.num_tokens),
        "parameters times tokens leave out scores and mixing": days(lambda c, *_: every_token(c)),
        "upside down": lambda *given: 1 / days()(*given),
    },
)  # fmt: skip
check_training_days = DAYS.check
