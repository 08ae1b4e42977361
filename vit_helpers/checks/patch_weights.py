"""The exercise of notebook 01 that copies a convolution's weights to a linear layer."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.checks.engine.compare import gradient, same
from vit_helpers.checks.engine.contract import expect_contract
from vit_helpers.checks.engine.exercise import Arguments, Case, Exercise, Outcome, Wording, forms
from vit_helpers.checks.engine.report import Function, reject_if, short
from vit_helpers.checks.engine.traces import ask
from vit_helpers.parity import perturb
from vit_helpers.patches import patchify


def conv_of(C: int, D: int, P: int, bias: bool = True, dtype: torch.dtype = torch.float64) -> Case:
    """Make a convolution and images for it.

    The parameters differ clearly from their initial values.
    """

    def draw() -> Arguments:
        conv = nn.Conv2d(C, D, P, stride=P, bias=bias, dtype=dtype)
        perturb(conv, std=1)
        return conv, torch.randn(2, C, 2 * P, 3 * P, dtype=dtype)

    return Case(draw)


def linear_of(weight: Callable[[Tensor], Tensor]) -> Function:
    """Make an answer that copies the bias, and the weight in a given way."""

    def answer(conv: nn.Conv2d) -> nn.Linear:
        w = weight(conv.weight.detach())
        linear = nn.Linear(w.shape[1], w.shape[0], bias=conv.bias is not None, dtype=w.dtype)
        linear.load_state_dict(conv.state_dict() | {"weight": w})
        return linear

    return answer


def observe_linear(answer: Function, conv: nn.Conv2d, images: Tensor) -> Mapping[str, Any]:
    """Observe weight and bias of the answer's Linear, and what it gives for images."""
    linear = answer(conv)
    reject_if(linear is None, "gives nothing back: does it end with return?")
    reject_if(
        isinstance(linear, Tensor),
        f"gives {short(linear)}; the result should be a whole nn.Linear with weight and bias",
    )
    reject_if(
        not isinstance(linear, nn.Linear),
        f"gives {short(linear)}; the result should be an nn.Linear",
    )
    (D, C, P, _), shape, dtype = conv.weight.shape, tuple(linear.weight.shape), conv.weight.dtype
    wanted = (D, C * P * P)
    reject_if(
        shape == wanted[::-1],
        f"has a weight of shape {shape}; torch's Linear stores (out, in), so it should be {wanted}",
    )
    reject_if(
        shape == (D, C, P, P),
        f"has the convolution's own weight, of shape {shape}; flatten it to {wanted}",
    )
    reject_if(
        shape != wanted,
        f"has a weight of shape {shape} for a convolution of {(D, C, P, P)}; it should be {wanted}",
    )
    types = {p.dtype for p in linear.parameters()} - {dtype}
    reject_if(types, f"has numbers of {', '.join(map(str, types))}; the convolution has {dtype}")
    result = linear(patchify(images.to(dtype), P))
    bias = wrong_bias(linear.bias, conv.bias)
    return {"weight": linear.weight.detach(), "bias": bias, "result": result.detach()}


def wrong_bias(got: Tensor | None, right: Tensor | None) -> str:
    """Say what is wrong with a bias, in words; if the convolution has none, zeros are right too."""
    if right is None:
        adds = got is not None and got.any()
        return (
            "the convolution has no bias, but the Linear adds one: create it with bias=False"
            if adds
            else ""
        )
    if got is None:
        return "the bias is missing: a convolution has one number per filter, and so does a Linear"
    return (
        ""
        if same(got, right)
        else "the weight is right, but the bias is not the convolution's: copy it too"
    )


def can_be_trained(exercise: Exercise, answer: Function) -> None:
    """Raise Mistake unless the Linear has parameters of its own that get a gradient.

    Training it must leave the convolution as it is.
    """
    conv, images = conv_of(3, 8, 4, dtype=torch.float32).draw()
    before = {name: p.clone() for name, p in conv.state_dict().items()}
    linear = ask(answer, conv, model=exercise.wording.model)
    for name in ("weight", "bias"):
        own = getattr(linear, name)
        reject_if(
            not own.requires_grad,
            f"is right, but its {name} is frozen: it gets no gradient and cannot be trained",
        )
        learns = (
            isinstance(own, nn.Parameter) and gradient(linear(patchify(images, 4)), own) is not None
        )
        message = (
            f"is right, but its {name} is not a parameter and would not learn: "
            "use nn.Parameter or copy_"
        )
        reject_if(not learns, message)
        with torch.no_grad():
            own += 1  # as a step of training does
        moved = any(not torch.equal(p, before[key]) for key, p in conv.state_dict().items())
        tied = (
            f"is right, but its {name} shares the convolution's memory, "
            "so training one would silently change the other. "
        )
        reject_if(moved, tied + "Copy the numbers with copy_ or clone()")


TO_LINEAR_MISTAKES: dict[str, Function] = {
    "the weight is flattened with the channels last, "
    "but a patch here has them first: flatten(1) is enough":
        linear_of(lambda w: w.permute(0, 2, 3, 1).flatten(1)),
    "each filter is transposed: y and x are swapped":
        linear_of(lambda w: w.transpose(2, 3).flatten(1)),
    "a reshape is used to transpose the weight, but it moves no numbers":
        linear_of(lambda w: w.flatten(1).t().reshape(len(w), -1)),
    "the filters are mirrored, "
    "but torch's convolution doesn't flip them, so you shouldn't either":
        linear_of(lambda w: w.flip(2, 3).flatten(1)),
    "the filters come in another order, but row i of the Linear must be filter i":
        linear_of(lambda w: w.flip(0).flatten(1)),
    "reshape(-1, D).t() is not the same as reshape(D, -1), and filter i must become row i":
        linear_of(lambda w: w.reshape(-1, len(w)).t()),
}  # fmt: skip
TO_LINEAR = Exercise(
    name="to_linear",
    reference=linear_of(lambda w: w.flatten(1)),
    outcome=Outcome(observe=observe_linear),
    wording=Wording(
        model="convolution",
        when=lambda conv, images: f"for {conv.in_channels} channels and P = {conv.kernel_size[0]}",
        says=lambda part, got, right, message, conv, images: (
            f"for {conv.in_channels} channels and P = {conv.kernel_size[0]}: " * (part != "bias")
            + message
        ),
        unknown={
            "weight": "the rows of the Linear's weight are not the convolution's filters",
            "bias": lambda got, *rest: got,
            "result": "the weights are right, but the Linear gives a different result",
        },
        fresh="the Linear has random weights of its own; copy the convolution's",
    ),
    ideas={
        "a Linear from C*P*P to D numbers": [forms],
        "gives what the convolution gives, for color and gray, with and without a bias": [
            conv_of(3, 8, 4, dtype=torch.float32),
            conv_of(1, 5, 2, dtype=torch.float32),
            conv_of(2, 6, 3, bias=False),
            conv_of(2, 5, 3),
        ],
        "leaves the convolution unchanged, and can be trained": [can_be_trained, expect_contract],
    },
    mistakes=TO_LINEAR_MISTAKES,
)
