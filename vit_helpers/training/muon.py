"""Muon: AdamW, but a hidden matrix takes a step of one length in every direction (Jordan et al. 2024).

The gradient of a matrix has a few strong directions and many weak ones, and Adam follows the strong. Muon makes the
singular values of every step (nearly) equal, so that the weak ones count too. https://kellerjordan.github.io/posts/muon/
"""

import torch

QUINTIC = (3.4445, -4.7750, 2.0315)  # a x + b x^3 + c x^5 drives singular values from 0 .. 1 to about 1, five times applied


class Muon(torch.optim.AdamW):
    """AdamW for all groups of parameters but those with `"orthogonal": True`, whose parameters are matrices (m, n).

    A matrix moves by 0.2 sqrt(max(m, n)) lr times an orthogonal one, so that its entries move about as far as under AdamW
    (Liu et al., arXiv 2502.16982). torch.optim.Muon does the same in bfloat16, which is slow on most CPUs. A step
    uses up the gradients of the matrices: they are None afterwards.
    """

    def __init__(self, groups, lr=1e-3, momentum=0.95):
        super().__init__(groups, lr, fused=True)
        self.momentum = momentum

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if group.get("orthogonal"):
                for matrix in group["params"]:
                    self.turn(matrix, group["lr"], group["weight_decay"])
                    matrix.grad = None  # so that AdamW leaves it alone
        return super().step(closure)

    def turn(self, matrix, lr, weight_decay):
        """One step of a matrix that has a gradient: decay, then along the averaged gradient made orthogonal"""
        if matrix.grad is None:
            return
        state = self.state[matrix]
        if not state:
            state.update({"momentum": torch.zeros_like(matrix), "step": torch.zeros(())})  # AdamW looks for its own "step"
        mean = state["momentum"].lerp_(matrix.grad, 1 - self.momentum)
        ahead = matrix.grad.lerp(mean, self.momentum)  # Nesterov's look ahead
        size = 0.2 * max(matrix.shape) ** 0.5
        matrix.mul_(1 - lr * weight_decay).add_(orthogonal(ahead), alpha=-lr * size)


def orthogonal(matrix, steps=5):
    """About U V^T of the singular value decomposition U S V^T: (m, n) -> (m, n), by products alone (Newton and Schulz)

    >>> strong_and_weak = torch.diag(torch.tensor([1.0, 0.1]))
    >>> orthogonal(strong_and_weak).diag().sub(1).abs().max() < 0.35
    tensor(True)
    """
    a, b, c = QUINTIC
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else matrix.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)  # (b s + c s s) x + a x
    return x if wide else x.T
