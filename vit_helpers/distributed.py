"""Distributed training: each process has its slice of every batch, and all take the same steps.

`torchrun` starts the processes and gives each its number (its *rank*); `init_distributed` connects
them. In a process that was started alone, every function here does what one process needs: nothing.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol, TypeVar, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

T = TypeVar("T")
Number = TypeVar("Number", int, float)
# what calls a model as its `module`; a compiled one has it as `_orig_mod`
MODULE_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel, AveragedModel)
# in the messages of gloo, whose errors are RuntimeErrors, and of NCCL
PEER_FAILURE = re.compile(r"\bgloo\b|\bNCCL\b|[Cc]onnection (closed|reset|refused)|Broken pipe")


def init_distributed(device: str = "cpu") -> str:
    """Connect to the other processes that torchrun started, and return this one's device.

    They speak by gloo on CPUs and by NCCL on GPUs. When torchrun ends a process because another
    died, that acts as a Ctrl-C: finished epochs are kept (not tried with NCCL). Before several
    machines, which count restarts separately, restart, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.
    raises: ValueError when there are more processes than GPUs
    """
    if "RANK" not in os.environ:
        return device
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    backend, gpu = "gloo", None  # gloo does not know Apple's GPUs
    if device.startswith("cuda"):
        local, here = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= here:
            raise ValueError(
                f"process {local} of this machine has no GPU of its own: there are {here}"
            )
        backend, gpu = "nccl", torch.device("cuda", local)
        torch.cuda.set_device(gpu)
    if not dist.is_initialized():
        store, number, count = next(dist.rendezvous("env://"))
        # torchrun's own store keeps old addresses (pytorch issue 135712)
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            store = dist.PrefixStore(f"attempt {os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
        dist.init_process_group(backend, store=store, rank=number, world_size=count, device_id=gpu)
    return str(gpu or "cpu")


def shutdown() -> NoReturn:
    """End this process successfully, at once: in Python's cleanup a thread of torch may abort."""
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def is_peer_failure(error: BaseException) -> bool:
    """Say whether an error means that another process has ended, and not that this one failed."""
    lost = isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and PEER_FAILURE.search(str(error))
    )
    return world_size() > 1 and bool(lost)


def world_size() -> int:
    """Return how many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process, 0 .. world_size() - 1."""
    return dist.get_rank() if dist.is_initialized() else 0


def is_main_process() -> bool:
    """Say whether this is the process that prints and writes: the first."""
    return rank() == 0


def barrier() -> None:
    """Wait until every process has reached this line."""
    if world_size() > 1:
        dist.barrier()


def broadcast(value: T) -> T:
    """Return the first process's value, in every process."""
    if world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def on_main(function: Callable[[], T]) -> T:
    """Call a function in the main process alone, and return its result in every process.

    raises: in every process what the function raises
    """
    if world_size() == 1:
        return function()
    result, error = None, None
    if is_main_process():
        try:
            result = function()
        except Exception as raised:
            error = raised
    result, error = broadcast((result, error))
    if error is not None:
        raise error
    return cast(T, result)


def all_reduce_sum(number: Number) -> Number:
    """Return the sum of a number over all processes."""
    if world_size() == 1:
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    total = torch.tensor(number, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return type(number)(total.item())


def all_gather(rows: Tensor) -> Tensor:
    """Return the rows of all processes, one after another: (n, ...) here -> (n of all, ...)."""
    if world_size() == 1:
        return rows
    parts: list[Any] = [None] * world_size()
    dist.all_gather_object(parts, rows)
    return torch.cat(parts)


class SizedBatches(Protocol):
    """Batches that are counted, as in `data.splits`, which may import this module."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]: ...


class ShardedBatches:
    """This process's slice of every batch: images rank, rank + world_size, ...

    Of a small last batch that may be none. All processes start from the same seed, and draw the
    same order and augmentation. Between two batches, while the model may draw dropout, each draws
    on its own.
    """

    def __init__(self, batches: SizedBatches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for step, (images, labels) in enumerate(self.batches):
            with fork_rng(step):
                yield images[rank() :: world_size()], labels[rank() :: world_size()]


def shard_batches(batches: SizedBatches) -> SizedBatches:
    """Return this process's slice of the batches."""
    if world_size() == 1 or hasattr(batches, "set_epoch"):
        return batches  # a stream (`data.stream`) reads its own slice already
    return ShardedBatches(batches)


@contextmanager
def fork_rng(step: int) -> Iterator[None]:
    """Give each process random numbers of its own for a while, others in each step.

    The common state is restored afterwards.
    """
    if world_size() == 1:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**40, ()).item()) + step * world_size() + rank())
        yield


def cross_entropy(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Compute the cross-entropy as torch does.

    raises: ValueError naming a label that is the number of no class, on the CPU: a GPU cannot
    """
    try:
        return F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction=reduction)
    except IndexError as error:
        if logits.ndim != 2:
            raise
        K = logits.shape[1]
        wrong = [label for label in labels.unique().tolist() if not 0 <= label < K]
        raise ValueError(
            f"the model has {K} classes, whose labels are 0 to {K - 1}, got the label {wrong[-1]}"
        ) from error


def mean_loss(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Compute a cross-entropy whose mean over processes is the mean over all images.

    Processes may have different numbers of images.
    raises: as `cross_entropy`
    """
    if world_size() == 1:
        return cross_entropy(logits.float(), labels, label_smoothing)
    total = cross_entropy(logits.float(), labels, label_smoothing, reduction="sum")
    return total * world_size() / all_reduce_sum(len(labels))


def wrap_ddp(model: nn.Module) -> nn.Module:
    """Return the model as training calls it: backward averages gradients over all processes.

    That is DDP, arXiv 2006.15704.
    """
    if world_size() == 1 or any(map(is_sharded, model.parameters())):
        return model  # a sharded one averages its gradients itself
    return nn.parallel.DistributedDataParallel(model)


def shard(model: nn.Module) -> nn.Module:
    """Leave each process only its part of every weight, gradient and optimizer state.

    That is FSDP2, after arXiv 2304.11277. A block's weights are gathered just before they are
    needed, and dropped again. Call it before the optimizer is made.
    raises: ValueError for a model without `blocks`
    """
    from torch.distributed.device_mesh import init_device_mesh  # a second, for sharding alone
    from torch.distributed.fsdp import fully_shard

    if world_size() == 1:
        return model
    if not isinstance(blocks := getattr(model, "blocks", None), nn.ModuleList):
        raise ValueError(
            f"sharding goes block by block, and {type(model).__name__} has no `blocks`"
        )
    mesh = init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (world_size(),))
    for module in (*blocks, model):
        fully_shard(module, mesh=mesh)
    return model


def is_sharded(value: object) -> bool:
    """Say whether a value is a `DTensor`, a tensor of which each process has a part."""
    return hasattr(value, "full_tensor")


def full_tensor(value: Any) -> Any:
    """Return a whole tensor in every process, sharded or not; any other value as it is."""
    return value.full_tensor() if is_sharded(value) else value


def to_cpu(value: Any) -> Any:
    """Return a whole tensor on the CPU; any other value as it is."""
    return full_tensor(value).cpu() if isinstance(value, Tensor) else value


def shard_like(value: Any, like: Any) -> Any:
    """Return this process's part of a tensor that every process has, if `like` is sharded.

    A value of another shape is returned as it is: an optimizer's state has numbers, too.
    """
    from torch.distributed.tensor import distribute_tensor  # a second, for sharding alone

    if not is_sharded(like) or getattr(value, "shape", None) != like.shape:
        return value
    whole, mesh, placements = value.to(like.device), like.device_mesh, like.placements
    return distribute_tensor(whole, mesh, placements, src_data_rank=None)  # None: nothing is sent


def unwrap(model: nn.Module) -> Any:
    """Return the model inside `torch.compile`, DDP, `DataParallel` or averaged weights.

    That is the model itself where there is no wrapper.
    """
    if isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):  # compiled
        return unwrap(inner)
    return unwrap(model.module) if isinstance(model, MODULE_WRAPPERS) else model


def plain_name(name: str) -> str:
    """Return the name of a weight without what compiled modules, at any depth, add to it.

    >>> plain_name("blocks.0._orig_mod.norm1.weight")
    'blocks.0.norm1.weight'
    """
    return name.replace("_orig_mod.", "")


def plain_state_dict(model: nn.Module) -> dict[str, Any]:
    """Return the weights of a model by the names that they have without wrappers."""
    return {plain_name(name): value for name, value in unwrap(model).state_dict().items()}


def full_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Return the whole weights of a model, sharded or not, by `plain_state_dict`, on the CPU."""
    return {name: to_cpu(value) for name, value in plain_state_dict(model).items()}


def load_full_state_dict(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load whole weights, which every process has, into a model, sharded, wrapped or neither."""
    model = unwrap(model)
    targets = model.state_dict()
    names = {plain_name(name): name for name in targets}
    parts = {names.get(name := plain_name(key), name): value for key, value in state.items()}
    model.load_state_dict(
        {name: shard_like(value, targets.get(name, value)) for name, value in parts.items()}
    )


def full_optimizer_state_dict(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer as `state_dict` does, with whole tensors on the CPU."""
    state = optimizer.state_dict()
    state["state"] = {
        number: {name: to_cpu(value) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    return state


def load_full_optimizer_state_dict(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Load what `full_optimizer_state_dict` returned, in every process, sharded or not."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    parts = {
        number: {name: shard_like(value, parameters[number]) for name, value in values.items()}
        for number, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": parts})
