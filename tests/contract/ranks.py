"""What each of two gloo ranks does in the contract tests of parallel techniques; results go to a JSON file a rank.

Ranks are fresh processes: everything here is at module level, and nothing touches the network but localhost.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tiny_models import MODELS, VOCAB, a_job
from torch.nn import functional

from stoker.core.ledger import ModelArch
from stoker.core.run_config import Parallel
from stoker.techniques.adapter import adapter
from stoker.techniques.optimizer import optimizer
from stoker.techniques.parallel import parallel
from stoker.techniques.precision import precision
from stoker.techniques.precision.masters import MasterWeightOptimizer
from stoker.techniques.recompute import recompute

WORLD = 2
# one rank's tokens count nine times the other's: a mean of means would be wrong (case 16)
SHAPES = ((1, 6), (3, 18))


def tokens_of(rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank)
    return torch.randint(1, VOCAB, SHAPES[rank], generator=draw)


def loss_sum(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Summed next-token loss in fp32."""
    logits = model(input_ids=ids).logits[:, :-1].float()
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")


def counted() -> int:
    """Tokens of the step over all ranks."""
    return sum(rows * (width - 1) for rows, width in SHAPES)


def build(method: str, number_format: str, recomputed: bool, *, unused_head: bool = False) -> tuple[Any, ModelArch]:
    """The tiny Llama under these techniques, equal in every process."""
    model, arch = MODELS["llama"]()
    torch.manual_seed(7)
    model = adapter(method).attach(model, a_job(arch, method=method, rank=4).tune)
    if method == "lora":  # fresh adapters start at zero, which would hide a wrong gradient of A
        for name, param in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(param, std=0.1)
    if unused_head:
        model.spare_head = torch.nn.Linear(4, 4)
    precision(number_format).convert(model)
    recompute("full" if recomputed else "none").attach(model)
    return model.train(), arch


def in_rank(rank: int, jobs: list[tuple[str, str, dict[str, Any]]], folder: str) -> None:
    """Entry point of a rank: `jobs` (name, task, options), one after the other."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    try:
        results = {name: TASKS[task](rank, **options) for name, task, options in jobs}
        Path(folder, f"rank{rank}.json").write_text(json.dumps(results), encoding="utf-8")
    finally:
        dist.destroy_process_group()


def ddp(rank: int, *, method: str, recomputed: bool, unused_head: bool) -> dict[str, Any]:
    """Gradients after one step under DDP, and the bytes that its buckets sent."""
    model, _arch = build(method, "fp32", recomputed, unused_head=unused_head)
    idle = []
    if unused_head:
        loss_sum(model, tokens_of(rank)).backward()  # the pre-flight of one step
        idle = [name for name, param in model.named_parameters() if param.requires_grad and param.grad is None]
        model.zero_grad()
        for name, param in model.named_parameters():
            if name in idle:
                param.requires_grad_(False)
    wrapped: Any = parallel(Parallel(dp_replicate=WORLD)).attach(model, Parallel(dp_replicate=WORLD))
    sent: list[int] = []

    def hook(_state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        sent.append(bucket.buffer().numel() * bucket.buffer().element_size())
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0] / WORLD)

    wrapped.register_comm_hook(None, hook)
    (loss_sum(wrapped, tokens_of(rank)) * WORLD / counted()).backward()
    grads = {n: p.grad.tolist() for n, p in model.named_parameters() if p.grad is not None}
    return {"grads": grads, "sent": sent, "idle": idle}


def fsdp(rank: int, *, method: str, number_format: str, micro_batches: int) -> dict[str, Any]:
    """Bytes of parameters, gradients, masters and state on this rank, collectives, and whole gradients."""
    model, _arch = build(method, number_format, recomputed=False)
    with _counted_collectives() as calls:
        return _fsdp(rank, model, calls, number_format, micro_batches)


def _fsdp(rank: int, model: Any, calls: dict[str, list[int]], number_format: str, micro_batches: int) -> dict[str, Any]:
    degrees = Parallel(dp_shard=WORLD)
    sharded = parallel(degrees).attach(model, degrees)
    params = [p for p in sharded.parameters() if p.requires_grad]
    weights = sum(_local_bytes(p) for p in sharded.parameters())
    for _ in range(micro_batches):
        (loss_sum(sharded, tokens_of(rank)) * WORLD / counted() / micro_batches).backward()
    grads = {n: p.grad.full_tensor().float().tolist() for n, p in sharded.named_parameters() if p.grad is not None}
    sent = dict(calls)
    grad_bytes = sum(_local_bytes(p.grad) for p in params if p.grad is not None)
    stepper = precision(number_format).wrap_optimizer(
        optimizer("adamw"), [{"params": params, "lr": 1e-3, "weight_decay": 0.01}]
    )
    stepper.step()
    inner = stepper.inner if isinstance(stepper, MasterWeightOptimizer) else (stepper,)
    state = sum(
        _local_bytes(value) for o in inner for s in o.state.values() for key, value in s.items() if key != "step"
    )
    masters = stepper.masters.values() if isinstance(stepper, MasterWeightOptimizer) else ()
    return {
        "weights": weights,
        "grad_bytes": grad_bytes,
        "state": state,
        "masters": sum(_local_bytes(m) for m in masters),
        "sent": sent,
        "grads": grads,
    }


def _local_bytes(tensor: Any) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())


@contextmanager
def _counted_collectives() -> Iterator[dict[str, list[int]]]:
    """Patches the two collectives that FSDP2 calls; values: bytes of the full tensor of each call.

    torch 2.13 calls them `..._single`, earlier ones `..._tensor`.
    """
    calls: dict[str, list[int]] = {"all_gather": [], "reduce_scatter": []}
    originals: dict[str, Any] = {}

    def counted(kind: str, original: Any, full: str, position: int) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            tensor = kwargs[full] if full in kwargs else args[position]
            calls[kind].append(tensor.numel() * tensor.element_size())
            return original(*args, **kwargs)

        return call

    for kind, names, full, position in (
        ("all_gather", ("all_gather_single", "all_gather_into_tensor"), "output_tensor", 0),
        ("reduce_scatter", ("reduce_scatter_single", "reduce_scatter_tensor"), "input", 1),
    ):
        name = next(name for name in names if hasattr(dist, name))
        originals[name] = getattr(dist, name)
        setattr(dist, name, counted(kind, originals[name], full, position))
    try:
        yield calls
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


TASKS = {"ddp": ddp, "fsdp": fsdp}
