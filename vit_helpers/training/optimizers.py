"""Optimizers by name, and the parameter groups they share: AdamW, SGD, Adam with L2 and Muon.

The gradient of a matrix has a few strong directions and many weak ones, and Adam follows the
strong. Muon (Jordan et al. 2024) makes the singular values of every step (nearly) equal, so that
the weak ones count too. https://kellerjordan.github.io/posts/muon/
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from vit_helpers.distributed import plain_name, unwrap

# a x + b x^3 + c x^5, applied five times, moves singular values in 0 .. 1 to about 1
QUINTIC = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95
Group = dict[str, Any]


def param_groups(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float
) -> list[Group]:
    """Group parameters by learning rate and decay: matrices, vectors, tokens, if there are any.

    The shape tells them apart: class token and position embeddings are (1, T, D), a bias or a norm
    has one axis, and the rest are matrices and kernels. Only those decay, but for what a module
    names in a method `no_weight_decay`, as in timm.
    token_lr_mult: the tokens' learning rate divided by lr
    """
    excluded = without_decay(model)
    matrices: Group = {"params": [], "lr": lr, "weight_decay": weight_decay}
    vectors: Group = {"params": [], "lr": lr, "weight_decay": 0.0}
    tokens: Group = {"params": [], "lr": token_lr_mult * lr, "weight_decay": 0.0}
    for p in model.parameters():
        if p.ndim == 3 and p.shape[0] == 1:
            tokens["params"].append(p)
        elif p.ndim < 2 or p in excluded:
            vectors["params"].append(p)
        else:
            matrices["params"].append(p)
    return [group for group in (matrices, vectors, tokens) if group["params"]]


def without_decay(model: nn.Module) -> set[nn.Parameter]:
    """Collect the parameters that a model's modules name in a method `no_weight_decay`."""
    excluded = set[nn.Parameter]()
    for module in unwrap(model).modules():
        if callable(names := getattr(module, "no_weight_decay", None)):
            own = {plain_name(name): p for name, p in module.named_parameters()}
            excluded |= {own[name] for name in names() if name in own}
    return excluded


def output_layer(model: nn.Module) -> nn.Module:
    """Find the head of a model, wrapped or not: `head`, or else its last linear layer."""
    model = unwrap(model)
    if isinstance(head := getattr(model, "head", None), nn.Module):
        return head
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return layers[-1] if layers else nn.Identity()


def adamw(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make AdamW (Loshchilov and Hutter, arXiv 1711.05101) with the groups of `param_groups`."""
    return torch.optim.AdamW(param_groups(model, lr, weight_decay, token_lr_mult), fused=True)


def sgd(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make SGD with momentum 0.9, as in the paper's fine-tuning (Table 4), with the same groups."""
    return torch.optim.SGD(param_groups(model, lr, weight_decay, token_lr_mult), momentum=0.9)


def adam_coupled(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make Adam with L2 on the matrices that decay in `adamw`.

    The decay is added to their gradient, before Adam divides by its size.
    """
    return torch.optim.Adam(param_groups(model, lr, weight_decay, token_lr_mult), fused=True)


def adam_l2(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make Adam with L2 on every parameter, often published as the paper's weight decay.

    Adam divides the L2 term by the gradient's size, so it pulls hardest where that is small.
    raises: ValueError unless token_lr_mult is 1, since all parameters are in one group
    """
    return torch.optim.Adam(
        one_group("adam_l2", model, token_lr_mult), lr=lr, weight_decay=weight_decay, fused=True
    )


def adamw_all(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make AdamW with decay on every parameter: as Adam in `adam_l2`, with its errors."""
    return torch.optim.AdamW(
        one_group("adamw_all", model, token_lr_mult), lr=lr, weight_decay=weight_decay, fused=True
    )


def one_group(optimizer: str, model: nn.Module, token_lr_mult: float) -> Iterable[nn.Parameter]:
    """Return all parameters, for one learning rate: ValueError for another of the tokens."""
    if token_lr_mult != 1:
        raise ValueError(
            f"{optimizer} treats all parameters alike: token_lr_mult must be 1, got {token_lr_mult}"
        )
    return model.parameters()


def muon(
    model: nn.Module, lr: float, weight_decay: float, token_lr_mult: float = 1.0
) -> torch.optim.Optimizer:
    """Make Muon for every matrix but those of the head and of embeddings, AdamW for the rest.

    AdamW is that of `adamw`, also for matrices that it does not decay.
    """
    excluded = without_decay(model) | set(output_layer(model).parameters())
    for module in model.modules():
        if isinstance(module, nn.Embedding):  # its rows are vectors
            excluded |= set(module.parameters())
    hidden = {p: None for p in model.parameters() if p.ndim == 2 and p not in excluded}
    groups = param_groups(model, lr, weight_decay, token_lr_mult)
    for group in groups:
        group["params"] = [p for p in group["params"] if p not in hidden]
    groups.insert(
        0, {"params": list(hidden), "lr": lr, "weight_decay": weight_decay, "orthogonal": True}
    )
    return Muon([group for group in groups if group["params"]])


Maker = Callable[[nn.Module, float, float, float], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Maker] = {
    make.__name__: make for make in (adamw, adamw_all, adam_l2, adam_coupled, sgd, muon)
}


class Muon(torch.optim.AdamW):
    """AdamW, except for groups with `"orthogonal": True`, whose parameters are matrices (m, n).

    A matrix moves by 0.2 sqrt(max(m, n)) lr times an orthogonal one, so that its entries move about
    as far as under AdamW (arXiv 2502.16982); its gradient is None afterwards. torch.optim.Muon
    needs bfloat16, which is slow on most CPUs.
    """

    def __init__(
        self, groups: Iterable[Group], lr: float = 1e-3, momentum: float = MOMENTUM
    ) -> None:
        groups = [{"orthogonal": False, "momentum": momentum} | group for group in groups]
        super().__init__(groups, lr, fused=True)

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Move all parameters. A closure computes the gradients, before any weight moves."""
        loss = torch.enable_grad()(closure)() if closure else None
        for group in self.param_groups:
            for matrix in group["params"] if group["orthogonal"] else ():
                if matrix.grad is not None:
                    self.step_matrix(matrix, matrix.grad, group)
                    matrix.grad = None  # so that AdamW leaves it alone
        super().step()
        return loss

    def step_matrix(self, matrix: Tensor, grad: Tensor, group: Group) -> None:
        """Decay a matrix, then move it along the averaged gradient made orthogonal."""
        state, momentum, lr = self.state[matrix], group["momentum"], group["lr"]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
            state["step"] = torch.zeros(())  # AdamW looks for it
        mean = state["momentum"].lerp_(grad, 1 - momentum)
        ahead = grad.lerp(mean, momentum)  # Nesterov's look ahead
        size = 0.2 * max(matrix.shape) ** 0.5
        matrix.mul_(1 - lr * group["weight_decay"]).add_(orthogonal(ahead), alpha=-lr * size)


def orthogonal(matrix: Tensor) -> Tensor:
    """Compute about U V^T of the singular value decomposition U S V^T: (m, n) -> (m, n)

    That takes matrix products alone (Newton-Schulz).
    >>> strong_and_weak = torch.diag(torch.tensor([1.0, 0.1]))
    >>> orthogonal(strong_and_weak).diag().sub(1).abs().max() < 0.35
    tensor(True)
    """
    a, b, c = QUINTIC
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        square = x @ x.T
        factor = torch.addmm(square, square, square, beta=b, alpha=c)  # b s + c s s
        x = torch.addmm(x, factor, x, beta=a)
    return x if wide else x.T
