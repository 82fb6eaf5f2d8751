"""A model as a chain of units: a prelude (embedding, masks), blocks, an epilogue (norm, head, loss).

Of a Hugging Face model nothing is asked: its own forward runs with its blocks' forwards replaced by recorders. In the
prelude they note what each block is called with and hand the hidden states through, and the last one stops the forward;
in the epilogue the last one answers with the real result. So embeddings, masks, rotary tables, norms, heads and losses
are the model's own code, under peft and under our pooled heads alike. A probe of a few tokens finds out, once, what
belongs to the prelude, and which of the blocks' side inputs carry gradients (relative positions that learn, say).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils import _pytree as pytree

from stoker.core.errors import ModelError
from stoker.core.i18n import _

LossFunction = Callable[[Any, Any], torch.Tensor]
Named = list[tuple[str, nn.Parameter]]
_CACHES = ("cache", "past_key_values", "past_key_value", "layer_past")


@dataclass(frozen=True, slots=True)
class Call:
    """What a block is called with beside the hidden states: leaves of its arguments, and how they fold together."""

    leaves: tuple[Any, ...]
    spec: Any


@dataclass(frozen=True, slots=True)
class Prelude:
    """What one micro-batch looks like before the first block: hidden states, and the call of each block."""

    hidden: torch.Tensor
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Parameters of each unit by name, in the order of forward. `embedding_first`: units that the prelude needs."""

    names: tuple[str, ...]
    params: tuple[Named, ...]
    prelude_units: tuple[int, ...]
    epilogue_units: tuple[int, ...]
    side_keys: Mapping[tuple[int, int], int] = field(default_factory=dict)


class Program(Protocol):
    """How a chain of units computes. Units 1 to n - 2 are blocks; `side_keys` maps (block, leaf) to a tensor."""

    cut: Cut

    def prelude(self, micro_batch: Any) -> Prelude:
        """Everything before the first block."""

    def block(self, index: int, hidden: torch.Tensor, call: Call) -> torch.Tensor:
        """Block `index`, from 0."""

    def epilogue(self, micro_batch: Any, hidden: torch.Tensor) -> torch.Tensor:
        """The loss summed over the micro-batch, from the last block's output."""

    @property
    def root(self) -> nn.Module:
        """Everything, for training mode, buffers and names."""


class ModuleListProgram:
    """A plain chain: each module takes what the one before gave; the last one's output goes to `loss`(output, batch).

    `inputs` picks the first module's arguments out of a micro-batch. Raises ModelError ST463 for fewer than three
    modules.
    """

    def __init__(
        self, modules: Sequence[nn.Module], loss: LossFunction, inputs: Callable[[Any], Any] | None = None
    ) -> None:
        if len(modules) < 3:
            raise not_a_chain(_("a chain needs at least three modules"))
        self.modules, self._loss = list(modules), loss
        self._inputs = inputs or (lambda batch: batch[0])
        self._root = nn.ModuleList(modules)
        seen: dict[int, int] = {}
        params: list[Named] = [[] for _module in modules]
        for unit, module in enumerate(modules):
            for name, param in module.named_parameters():
                if seen.setdefault(id(param), unit) == unit:
                    params[unit].append((f"{unit}.{name}", param))
        borrowed = {seen[id(p)] for module in modules[1:-1] for p in module.parameters()} - set(
            range(1, len(modules) - 1)
        )
        if borrowed or any(seen[id(p)] != u for u, m in enumerate(modules[1:-1], 1) for p in m.parameters()):
            raise not_a_chain(_("only the first and the last module may share weights"))
        last = len(modules) - 1
        self.cut = Cut(
            names=tuple(f"{i}.{type(module).__name__}" for i, module in enumerate(modules)),
            params=tuple(params),
            prelude_units=(0,),
            epilogue_units=tuple(sorted({last, *(seen[id(p)] for p in modules[-1].parameters())})),
        )

    @property
    def root(self) -> nn.Module:
        return self._root

    def prelude(self, micro_batch: Any) -> Prelude:
        empty = Call((), None)
        return Prelude(self.modules[0](self._inputs(micro_batch)), (empty,) * (len(self.modules) - 2))

    def block(self, index: int, hidden: torch.Tensor, call: Call) -> torch.Tensor:
        result: torch.Tensor = self.modules[1 + index](hidden)
        return result

    def epilogue(self, micro_batch: Any, hidden: torch.Tensor) -> torch.Tensor:
        return self._loss(self.modules[-1](hidden), micro_batch)


class _Stop(Exception):
    """The last block has been called: nothing behind it is wanted."""


class HuggingFaceProgram:
    """Any model whose forward passes its hidden states through one list of blocks. `loss`(model, micro-batch) sums.

    Raises ModelError ST463 where the model is no such chain.
    """

    def __init__(self, model: nn.Module, loss: LossFunction, probe: Any | None = None) -> None:
        self.model, self._loss = model, loss
        self._prefix, self.blocks = find_blocks(model)
        self._rest: tuple[Any, ...] | None = None  # what blocks answer beside hidden states: None for a bare tensor
        _without_cache(model)
        self.cut = self._probe(probe if probe is not None else probe_batch(model))

    @property
    def root(self) -> nn.Module:
        return self.model

    def prelude(self, micro_batch: Any) -> Prelude:
        return self._record(lambda: self._loss(self.model, micro_batch))

    def block(self, index: int, hidden: torch.Tensor, call: Call) -> torch.Tensor:
        args, kwargs = pytree.tree_unflatten(list(call.leaves), call.spec)
        result = self.blocks[index](hidden, *args, **kwargs)
        return self._hidden_of(result)

    def epilogue(self, micro_batch: Any, hidden: torch.Tensor) -> torch.Tensor:
        return self._finish(hidden, lambda: self._loss(self.model, micro_batch))

    def _hidden_of(self, result: Any) -> torch.Tensor:
        if isinstance(result, tuple):
            self._rest = result[1:]
            if any(isinstance(other, torch.Tensor) for other in result[1:]):
                raise not_a_chain(_("its blocks hand more than hidden states to each other"))
            result = result[0]
        if not isinstance(result, torch.Tensor):
            raise not_a_chain(_("its blocks do not answer hidden states"))
        return result

    def _record(self, run: Callable[[], Any]) -> Prelude:
        calls: list[Call] = []
        first: list[torch.Tensor] = []
        passing: list[torch.Tensor] = []

        def recorder(index: int) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                hidden, args, kwargs = _split_hidden(args, kwargs)
                if index != len(calls) or (passing and passing[0] is not hidden):
                    raise not_a_chain(_("something happens between its blocks"))
                if not first:
                    first.append(hidden)
                passing[:] = [hidden]
                leaves, spec = pytree.tree_flatten((args, kwargs))
                calls.append(Call(tuple(leaves), spec))
                if len(calls) == len(self.blocks):
                    raise _Stop
                return hidden if self._rest is None else (hidden, *self._rest)

            return forward

        with _replaced(self.blocks, recorder):
            try:
                run()
            except _Stop:
                return Prelude(first[0], tuple(calls))
        raise not_a_chain(_("its forward does not pass all of its blocks"))

    def _finish(self, hidden: torch.Tensor, run: Callable[[], torch.Tensor]) -> torch.Tensor:
        last = len(self.blocks) - 1
        passed: list[int] = []

        def passer(index: int) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                passed.append(index)
                result = hidden if index == last else _split_hidden(args, kwargs)[0]
                return result if self._rest is None else (result, *self._rest)

            return forward

        with _replaced(self.blocks, passer):
            result = run()
        if passed != list(range(len(self.blocks))):
            raise not_a_chain(_("its forward passes some of its blocks more than once, or not at all"))
        return result

    def _probe(self, batch: Mapping[str, torch.Tensor]) -> Cut:
        """Run prelude, one block and epilogue on `batch` to see what belongs where; changes nothing."""
        inside = {id(p): i for i, block in enumerate(self.blocks) for p in block.parameters()}
        shared = [i for i, block in enumerate(self.blocks) for p in block.parameters() if inside[id(p)] != i]
        outer = {id(p) for p in self.model.parameters()} - set(inside)
        if shared:
            raise not_a_chain(_("its blocks share weights"))
        with torch.random.fork_rng(devices=[]), torch.enable_grad(), _touched(self.model, outer) as touched:
            forward = lambda: self.model(**batch)  # noqa: E731
            self._hidden_of_first_block(forward)
            touched.clear()
            record = self._record(forward)
            used = set(touched)
            side, keys = _side_inputs(record)
            used |= _learning_ancestors([record.hidden, *side], self.model, outer)
            with torch.no_grad():
                self._finish(record.hidden, forward)
        prelude: Named = []
        final: Named = []
        blocks: list[Named] = [[] for _block in self.blocks]
        for name, param in self.model.named_parameters():
            if id(param) in inside:
                blocks[inside[id(param)]].append((name, param))
            else:
                (prelude if id(param) in used else final).append((name, param))
        last = len(self.blocks) + 1
        return Cut(
            names=("embedding", *(f"block.{i}" for i in range(len(self.blocks))), "final"),
            params=(prelude, *blocks, final),
            prelude_units=(0,),
            epilogue_units=(0, last),
            side_keys=keys,
        )

    def _hidden_of_first_block(self, forward: Callable[[], Any]) -> None:
        """Learn how the blocks answer (a tensor, or a tuple around it) from one real call of the first."""
        original = self.blocks[0].forward

        def once(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                self._hidden_of(original(*args, **kwargs))
            raise _Stop

        with _replaced(self.blocks[:1], lambda _index: once):
            try:
                forward()
            except _Stop:
                return
        raise not_a_chain(_("its forward does not pass all of its blocks"))


def not_a_chain(why: str) -> ModelError:
    """The error for a model that cannot be cut into units."""
    return ModelError(
        "ST463",
        _("this model cannot be cut into units: {why}").format(why=why),
        place="run.placement: tiers",
        fix=_("use run.placement: hbm; from Python, give TieredTrainer a list of modules"),
    )


def find_blocks(model: nn.Module) -> tuple[str, list[nn.Module]]:
    """(name, modules) of the list of like modules that holds most parameters. Raises ModelError ST463."""
    best: tuple[int, str, list[nn.Module]] = (0, "", [])
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) and len({type(m) for m in module}) == 1:
            size = sum(p.numel() for p in module.parameters())
            if size > best[0]:
                best = (size, name, list(module))
    if len(best[2]) < 1:
        raise not_a_chain(_("it has no list of blocks"))
    return best[1], best[2]


def probe_batch(model: nn.Module) -> dict[str, torch.Tensor]:
    """A few tokens, or one image, as `model` wants them. Raises ModelError ST463 where that cannot be told."""
    config: Any = getattr(model, "config", None)
    device = next(model.parameters()).device
    base: Any = model
    main = str(getattr(base, "main_input_name", "input_ids"))
    if main == "pixel_values":
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return {main: torch.zeros(1, config.num_channels, height, width, device=device)}
    return {"input_ids": torch.full((1, 4), 3, dtype=torch.long, device=device)}


def _without_cache(model: nn.Module) -> None:
    """A key cache would be filled a second time when a block is computed again."""
    configs: list[Any] = [m.config for m in model.modules() if hasattr(m, "config")]
    for config in configs:
        if getattr(config, "use_cache", False):
            config.use_cache = False
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            module.gradient_checkpointing = False  # type: ignore[assignment]  # nested, each would run a third time


def _split_hidden(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.Tensor, tuple[Any, ...], dict[str, Any]]:
    kwargs = {key: None if key in _CACHES else value for key, value in kwargs.items()}
    if args:
        return args[0], args[1:], kwargs
    return kwargs.pop("hidden_states"), (), kwargs


@contextmanager
def _replaced(blocks: Sequence[nn.Module], make: Callable[[int], Callable[..., Any]]) -> Iterator[None]:
    """The blocks' forwards exchanged for `make`(index) for a while; names and modules stay what they are."""
    for index, block in enumerate(blocks):
        block.__dict__["forward"] = make(index)
    try:
        yield
    finally:
        for block in blocks:
            block.__dict__.pop("forward", None)


@contextmanager
def _touched(model: nn.Module, outer: set[int]) -> Iterator[set[int]]:
    """Ids of outer parameters whose modules are called meanwhile."""
    seen: set[int] = set()

    def note(module: nn.Module, _args: Any) -> None:
        seen.update(id(p) for p in module.parameters(recurse=False) if id(p) in outer)

    handles = [module.register_forward_pre_hook(note) for module in model.modules()]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _side_inputs(record: Prelude) -> tuple[list[torch.Tensor], dict[tuple[int, int], int]]:
    """Tensors beside the hidden states that carry gradients, and where blocks take them."""
    tensors: list[torch.Tensor] = []
    keys: dict[tuple[int, int], int] = {}
    for index, call in enumerate(record.calls):
        for place, leaf in enumerate(call.leaves):
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                key = next((k for k, known in enumerate(tensors) if known is leaf), len(tensors))
                if key == len(tensors):
                    tensors.append(leaf)
                keys[index, place] = key
    return tensors, keys


def _learning_ancestors(outputs: Sequence[torch.Tensor], model: nn.Module, outer: set[int]) -> set[int]:
    """Ids of outer parameters that `outputs` are differentiable functions of."""
    wanted = [p for p in model.parameters() if id(p) in outer and p.requires_grad]
    roots = [output for output in outputs if output.requires_grad]
    if not roots or not wanted:
        return set()
    grads = torch.autograd.grad([root.float().sum() for root in roots], wanted, allow_unused=True)
    return {id(p) for p, grad in zip(wanted, grads, strict=True) if grad is not None}
