"""Several processes, one training: each has its part of every batch, and all take the same steps.

`torchrun` starts the processes and tells each its number (its *rank*); `join` lets them find one another. In a process
that was started alone, every function here does what one process needs: nothing.
"""

import os
import signal
import sys
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def join(device="cpu"):
    """Meet the other processes that torchrun started; the device of this one comes back.

    They talk by gloo on CPUs and by NCCL on GPUs, where each process has a GPU of its own. When torchrun ends a process,
    because another died, that is a Ctrl-C to this one: what was finished is kept (seen with gloo; not tried with NCCL).
    raises: ValueError when there are more processes than GPUs
    """
    if "RANK" not in os.environ:
        return device
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    backend, more = "gloo", {}
    if device.startswith("cuda"):
        local, here = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= here:
            raise ValueError(f"process {local} of this machine has no GPU of its own: there are {here}")
        backend, device = "nccl", f"cuda:{local}"
        torch.cuda.set_device(device)
        more = {"device_id": torch.device(device)}
    elif device == "mps":
        device = "cpu"  # gloo does not know Apple's GPUs
    if not dist.is_initialized():
        dist.init_process_group(backend, **meeting_place(), **more)
    return device


def meeting_place():
    """Where the processes leave their addresses for one another: torch's own place, but a new one after a restart.

    torchrun keeps its store when it starts processes again, and with it the addresses of the dead (pytorch issue 135712).
    On several machines, which count restarts apart, it takes TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 instead.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    numbers = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    return {"store": dist.PrefixStore(f"attempt {attempt}", store), **numbers}


def leave():
    """Say good-bye to the other processes and end this one, when all is done.

    At once, without the clearing up of an interpreter: a thread of torch that is still ending then may abort the process,
    as it did once in some sixty runs, and torchrun would count the training as failed.
    """
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def lost_touch(error):
    """Whether an error says that another process is gone, and nothing of this one"""
    words = ("onnection", "gloo", "NCCL", "store")
    return world() > 1 and isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def last_words():
    """From here on torchrun's word to end is not heard: what this process has to say is short"""
    if dist.is_initialized():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def world():
    """How many processes train together (the world size)"""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank():
    """The number of this process, 0 .. world() - 1"""
    return dist.get_rank() if dist.is_initialized() else 0


def first():
    """Whether this is the process that prints and writes"""
    return rank() == 0


def together():
    """Wait until every process has come here (a barrier)"""
    if world() > 1:
        dist.barrier()


def agreed(value):
    """What the first process says, in every process (a broadcast)"""
    if world() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def by_first(function):
    """What a function returns in the first process, which alone calls it, in every process; errors are raised in every one

    raises: the ValueError or OSError of the first process
    """
    value = error = None
    if first():
        try:
            value = function()
        except (ValueError, OSError) as raised:
            error = raised
    value, error = agreed((value, error))
    if error is not None:
        raise error
    return value


def total(number):
    """The sum of a number over all processes (an all-reduce)"""
    if world() == 1:
        return number
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    numbers = torch.tensor(number, dtype=torch.float64, device=device)
    dist.all_reduce(numbers)
    return type(number)(numbers.item())


def gathered(rows):
    """The rows of all processes, one after another (an all-gather): (n of this one, ...) -> (n of all, ...)"""
    if world() == 1:
        return rows
    parts = [None] * world()
    dist.all_gather_object(parts, rows)
    return torch.cat(parts)


class Share:
    """Of every batch the images of this process: number rank, rank + world, ...; a small last batch may leave it none.

    Every process draws the same order and the same augmentation, from torch's generator, which therefore has to start from
    the same seed. Between two batches, while the model may draw dropout, each process draws on its own.
    """

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for step, (images, labels) in enumerate(self.batches):
            with own_draws(step):
                yield images[rank() :: world()], labels[rank() :: world()]


@contextmanager
def own_draws(step):
    """Let the generators of this process go their own way for a while, in each step another one"""
    if world() == 1:
        yield
        return
    common = torch.get_rng_state()
    torch.manual_seed(torch.randint(2**40, ()).item() + step * world() + rank())
    yield
    torch.set_rng_state(common)


def mean_loss(logits, labels, label_smoothing, images):
    """Cross-entropy whose mean over the processes is the mean over all images of the step, `images` in number.

    Processes average their gradients; where one has fewer images than another, the average of two means would be wrong.
    """
    if world() == 1:
        return F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    return F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="sum") * world() / images


def in_step(model):
    """The model as it is called in training: on the way back its gradients become the mean over all processes.

    DistributedDataParallel (arXiv 2006.15704) does that, for a whole model in each process; a sharded one does it itself.
    """
    if world() == 1 or is_sharded(model):
        return model
    return nn.parallel.DistributedDataParallel(model)


def shard(model):
    """Leave each process only its part of every weight, gradient and optimiser state (FSDP2, after arXiv 2304.11277).

    A block's weights are brought together when it is their turn, and dropped again. Before the optimiser is made; in one
    process nothing changes. raises: ValueError for a model without `blocks`
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if world() == 1:
        return model
    if not hasattr(model, "blocks"):
        raise ValueError(f"to shard a model block by block it needs `blocks`, {type(model).__name__} has none")
    mesh = init_device_mesh("cuda" if dist.get_backend() == "nccl" else "cpu", (world(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def is_sharded(model):
    """Whether this process holds only its part of the weights"""
    return any(hasattr(p, "full_tensor") for p in model.parameters())


def full(tensor):
    """A tensor in one piece, in every process"""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def full_weights(model):
    """The weights of a model, sharded or not, by name, in one piece, on the CPU"""
    return {name: full(value).cpu() for name, value in model.state_dict().items()}


def save_parts(folder, model, optimizer):
    """Each process writes its part of weights and optimiser; `.metadata`, the last file, says that all is there

    raises: OSError when a part cannot be written
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, states = get_state_dict(model, optimizer)
    with told_plainly("write", folder):
        dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder, no_dist=world() == 1)


def load_parts(folder, model, optimizer):
    """Put back what `save_parts` wrote, in however many processes.  Pickle reads it: only from folders of your own.

    raises: OSError when a part cannot be read
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states}
    with told_plainly("read", folder):
        dcp.load(state, checkpoint_id=folder, no_dist=world() == 1)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


@contextmanager
def told_plainly(doing, folder):
    """Torch wraps what goes wrong in any process into an error of its own, no Exception even: here its cause comes out"""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is", UserWarning)  # that one process works alone: it may
            yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        if any(isinstance(cause, KeyboardInterrupt) for cause in causes):
            raise KeyboardInterrupt from error
        raise OSError(f"could not {doing} {folder}: {causes[0]}") from error
