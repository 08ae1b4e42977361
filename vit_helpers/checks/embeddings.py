"""The exercises of notebook 02.

The projection is in projection.py, fixed and resized positions are in positions.py.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_helpers.checks.engine import modules
from vit_helpers.checks.engine.compare import same
from vit_helpers.checks.engine.modules import ModuleExercise
from vit_helpers.checks.engine.report import Function, reject_if
from vit_helpers.checks.positions import RESIZE_POSITIONS, SINCOS
from vit_helpers.checks.projection import (
    PATCH_EMBED,
    UNREGISTERED,
    readable,
    registered,
    steady,
    tokens_shape,
)
from vit_helpers.embeddings import TokenEmbed

check_patch_embed, check_sincos, check_resize_positions = (
    PATCH_EMBED.check,
    SINCOS.check,
    RESIZE_POSITIONS.check,
)

# The class token


class ClassToken(TokenEmbed):
    """The right module."""

    def __init__(self, D: int) -> None:
        super().__init__((1, 1), D, positions="none")


def front(x: Tensor, token: Tensor, *positions: Tensor) -> Tensor:
    """Put the class token in front of every image: (B, N, D) -> (B, N + 1, D)."""
    return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


def end(x: Tensor, token: Tensor, *positions: Tensor) -> Tensor:
    return torch.cat([x, token.expand(len(x), 1, -1)], dim=1)


def joined(times: Callable[[int, int], int]) -> Function:
    """Make an answer with the class token repeated in front.

    How often follows from the numbers of images and tokens.
    """
    return lambda x, token, *positions: torch.cat(
        [token.expand(len(x), times(*x.shape[:2]), -1), x], dim=1
    )


END = "the class token is at the end, but it should be token 0"
SHAPES = {
    "the class token is an additional token: put it in front with torch.cat":
        lambda x, token, *positions: x + token,
    "concatenated along the batch, but tokens are along dim=1":
        lambda x, token, *positions: torch.cat([token.expand(1, *x.shape[1:]), x]),
    "concatenated along the batch, one copy for each image, but tokens are along dim=1":
        lambda x, token, *positions: torch.cat([token.expand_as(x), x]),
    "one class token for each image, not B of them": joined(lambda B, N: B),
    "one class token for each image, not one for each patch": joined(lambda B, N: N),
    "concatenated along the width, but tokens are along dim=1":
        lambda x, token, *positions: F.pad(x, (1, 0)),
}  # fmt: skip


def class_token_reading(module: nn.Module, D: int) -> Iterator[tuple[Tensor]]:
    """Yield the one parameter of D numbers."""
    parameters = list(module.parameters())
    if [p.numel() for p in parameters] == [D]:
        yield (parameters[0].flatten(),)


def in_front(exercise: ModuleExercise, answer: Function) -> None:
    """Raise Mistake unless the same vector is in front of every image.

    The patches must be unchanged.
    """
    for sizes, shape in exercise.cases:
        module, x = modules.made(answer, sizes, shape)
        got = modules.output(module, x, "for (B, N, D)", modules.right_shape(exercise, sizes, x))
        reject_if(same(got[:, :-1], x), END)
        changed = (
            "the patches after the class token have changed, "
            "but nothing should be added to them here"
        )
        reject_if(not same(got[:, 1:], x), changed)
        each = (
            "the images of a batch get different class tokens, "
            "but it is one learned vector for all of them. Use expand"
        )
        reject_if(not same(got[:, 0], got[:1, 0].expand_as(got[:, 0])), each)


BATCHES = [(6, (4, 5, 6)), (4, (1, 9, 4)), (8, (3, 2, 8)), (6, (7, 5, 6)), (6, (5, 4, 6))]
SEVERAL_VECTORS = (
    "learns {got} numbers, as many as {times} vectors, "
    "but the class token is one vector of D = {D}, whatever the batch size"
)
ADD_CLASS_TOKEN = ModuleExercise(
    name="add_class_token",
    module=ClassToken,
    function=front,
    readings=class_token_reading,
    ideas={
        "adds one token, for every batch size": [tokens_shape],
        "puts the same vector in front of every image": [steady, in_front],
        "it is one registered vector": [
            partial(registered, several=SEVERAL_VECTORS),
            readable,
            modules.numbers,
        ],
        "gradients reach it and the patches": [modules.other_sizes, modules.every_gradient],
    },
    mistakes=SHAPES | {END: end},
    structures={f"the class token {UNREGISTERED}": lambda D: []},
    cases=[((D,), shape) for D, shape in BATCHES],
    count="(B, N + 1, D)",
    advice=(
        "The token is one vector, (1, 1, D); expand it to the size of the batch, "
        "x.shape[0], inside forward"
    ),
    unknown=(
        "token 0 is not the learned vector: "
        "use the vector as it is (an average of patches is not a class token)"
    ),
    unread="keeps the vector in several parts: store it in one parameter of D numbers",
)
check_add_class_token = ADD_CLASS_TOKEN.check


# Class token and positions: the fixed module


class Tokens(nn.Module):
    """The right module."""

    def __init__(self, N: int, D: int) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, D))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, N + 1, D))

    def forward(self, x: Tensor) -> Tensor:
        return front(x, self.cls_token) + self.pos_embed


def token_readings(module: nn.Module, N: int, D: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield class token and positions among the parameters, distinguished by their size."""
    by_size = {p.numel(): p for p in module.parameters()}
    if set(by_size) == {D, (N + 1) * D}:
        yield by_size[D].flatten(), by_size[(N + 1) * D].reshape(N + 1, D)


TOKEN_EMBED_MISTAKES: dict[str, Function] = (
    SHAPES
    | {
        "the positions are never added": front,
        "the positions are added twice":
            lambda x, token, positions: front(x, token) + 2 * positions,
        "the same position vector is added to every token, but each token has its own":
            lambda x, token, positions: front(x, token) + positions[0],
        "the positions are subtracted, but equation 1 adds them":
            lambda x, token, positions: front(x, token) - positions,
        "the tokens are multiplied by the positions, but equation 1 adds them":
            lambda x, token, positions: front(x, token) * positions,
        "the class token has no position: add the positions after the cat":
            lambda x, token, positions: front(x + positions[1:], token),
        END: lambda x, token, positions: end(x, token) + positions,
        "the positions are off by one: row 0 of the table belongs to the class token":
            lambda x, token, positions: front(x, token) + positions.roll(-1, 0),
    }
)  # fmt: skip
TOKEN_EMBED_STRUCTURES: dict[str, Function] = {
    f"neither class token nor positions are learned: each {UNREGISTERED}": lambda N, D: [],
    f"learns only the class token, or one position; the other {UNREGISTERED}": lambda N, D: [D],
    f"learns only the positions: the class token {UNREGISTERED}": lambda N, D: [(N + 1) * D],
    "learns two vectors of D numbers, but besides the class token it should learn positions, "
    "(1, N + 1, D), one vector for each token": lambda N, D: [D, D],
    "learns N positions, which is one too few: "
    "the class token has a position too (E_pos has N + 1 rows)":
        lambda N, D: [D, N * D],
    "learns three vectors of D numbers, but besides the class token each token needs its own "
    "position": lambda N, D: [D, 2 * D],
}  # fmt: skip
TOKEN_EMBED = ModuleExercise(
    name="token_embed",
    module=Tokens,
    function=lambda x, token, positions: front(x, token) + positions,
    readings=token_readings,
    ideas={
        "adds one token, for every batch size": [tokens_shape],
        "one class token and N + 1 positions are learned": [steady, registered],
        "adds its own position embedding to each token, with the right gradients": [
            readable,
            modules.numbers,
            modules.other_sizes,
            modules.every_gradient,
        ],
    },
    mistakes=TOKEN_EMBED_MISTAKES,
    structures=TOKEN_EMBED_STRUCTURES,
    cases=[((shape[1], D), shape) for D, shape in BATCHES],
    count="(B, N + 1, D)",
    advice=(
        "Compare the shapes: the class token is (B, 1, D) after expand, the patches are "
        "(B, N, D), both together (B, N + 1, D); the positions are (1, N + 1, D)"
    ),
    unknown="is not [class token; patches] + positions, equation 1",
    unread=(
        "keep one parameter of D numbers for the class token and one of "
        "(N + 1) * D for the positions"
    ),
)
check_token_embed = TOKEN_EMBED.check
