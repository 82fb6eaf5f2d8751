"""Causal language models: layers by kind of attention (full, sliding), the frame around them, and their two heads."""

from collections import Counter
from collections.abc import Callable, Sequence

from stoker.catalogue.models.family import Shape, Target
from stoker.catalogue.models.lookup.config_reader import MAX_LAYERS, ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of, rotary
from stoker.catalogue.models.parts.head import embedding, language_head, score_head
from stoker.catalogue.models.parts.norm import RmsStyle, layer_norm, rms_norm
from stoker.catalogue.models.parts.part import Part, dense, group, keeps, kernels
from stoker.core.i18n import _
from stoker.core.ledger import ModuleGroup

Window = int | None


def decoder_shape(
    config: ConfigReader,
    target: Target,
    *,
    layers: Sequence[ModuleGroup],
    final_norm: Part,
    names: tuple[str, str, str] = ("embed_tokens", "norm", "lm_head"),
    embedding_extra: Part | None = None,
    head_bias: bool = False,
    logits_extra: Part | None = None,
    dropout: float = 0.0,
) -> Shape:
    """Embedding, `layers`, final norm and the head of the task around them.

    `names`: of embedding, final norm and vocabulary projection. `logits_extra`: what is done to logits (soft cap).
    """
    hidden, vocab = config.size("hidden_size"), config.size("vocab_size")
    tied = config.flag("tie_word_embeddings")
    embed_name, norm_name, head_name = names
    if target.task == "causal_lm":
        head = language_head(head_name, hidden, vocab, tied=tied, bias=head_bias)
        if logits_extra is not None:
            head = _with_saved(head, logits_extra)
        outputs = vocab
    else:
        head, outputs = score_head(hidden, target.num_labels), target.num_labels
    return Shape(
        groups=(
            embedding(embed_name, vocab, hidden, extra=embedding_extra),
            *layers,
            group(norm_name, "norm", final_norm, input_elements=hidden),
            head,
        ),
        hidden_size=hidden,
        num_hidden_layers=config.layers(),
        num_outputs=outputs,
        vocab_size=vocab,
        max_position_embeddings=config.optional_size("max_position_embeddings", most=10**8),
        tie_word_embeddings=tied,
        dropout=dropout,
    )


def _with_saved(head: ModuleGroup, part: Part) -> ModuleGroup:
    from dataclasses import replace

    return replace(head, saved=head.saved + part.saved, num_kernels=head.num_kernels + part.kernels)


def layer_groups(
    heads: Heads,
    windows: Sequence[Window],
    block: Callable[[Window], Part],
    hidden: int,
    *,
    name: str = "layers",
    causal: bool = True,
) -> tuple[ModuleGroup, ...]:
    """One group for each distinct window of `windows` (one entry a layer), in order of first appearance."""
    counts = Counter(windows)
    labels = {window: name if len(counts) == 1 else f"{name}.{'sliding' if window else 'full'}" for window in counts}
    return tuple(
        group(
            labels[window],
            "block",
            block(window),
            repeats=count,
            attention=heads.shape(causal=causal, window=window),
            input_elements=hidden,
        )
        for window, count in counts.items()
    )


def layer_windows(config: ConfigReader, window: Window, *, every: int | None = None) -> list[Window]:
    """The window of each layer: by `layer_types` where the config has it, else full attention every `every` layers.

    `every` None: all layers slide where there is a window. Raises ModelError ST205.
    """
    count = config.layers()
    kinds = config.words("layer_types")
    if kinds is None:
        kinds = tuple(
            "sliding_attention" if every is None or (index + 1) % every else "full_attention" for index in range(count)
        )
    elif len(kinds) != count:
        raise config.wrong("layer_types", _("{length} kinds for {count} layers").format(length=len(kinds), count=count))
    return [window if kind == "sliding_attention" else None for kind in kinds]


def grouped_heads(config: ConfigReader, *, dropout: float = 0.0, head_dim: int | None = None) -> Heads:
    """Heads of a config with num_key_value_heads and (maybe) head_dim. Raises ModelError ST205."""
    num_heads = config.size("num_attention_heads", most=MAX_LAYERS)
    num_kv = config.optional_size("num_key_value_heads", most=MAX_LAYERS) or num_heads
    if num_heads % num_kv:
        raise config.wrong(
            "num_key_value_heads",
            _("num_attention_heads {heads} cannot be divided by {kv}").format(heads=num_heads, kv=num_kv),
        )
    size = head_dim or config.optional_size("head_dim") or config.divides("hidden_size", "num_attention_heads")
    return Heads(num_heads=num_heads, num_kv_heads=num_kv, head_dim=size, dropout=dropout)


def separate_attention(
    heads: Heads,
    hidden: int,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    output: str = "o_proj",
    head_norm: RmsStyle | None = None,
    always_scores: bool = False,
    partial_rotary: bool = False,
) -> Part:
    """Query, key, value and output projections with rotary positions; `head_norm`: RMSNorm over each head.

    `partial_rotary`: the model's code rotates a part of each head and concatenates the rest.
    """
    query, kv = heads.query_width, heads.kv_width
    part = (
        input_of(hidden, "q_proj", "k_proj", "v_proj")
        + dense("q_proj", hidden, query, bias=qkv_bias)
        + dense("k_proj", hidden, kv, bias=qkv_bias)
        + dense("v_proj", hidden, kv, bias=qkv_bias)
        + rotary()
        + attention_core(heads, always_scores=always_scores, copied_for=output if partial_rotary else None)
        + dense(output, query, hidden, bias=output_bias)
    )
    if head_norm is not None:
        part += rms_norm("q_norm", heads.head_dim, copies=heads.num_heads, style=head_norm)
        part += rms_norm("k_norm", heads.head_dim, copies=heads.num_kv_heads, style=head_norm)
    return part


def pre_norm_block(hidden: int, attention: Part, mlp: Part, *, style: RmsStyle = "llama") -> Part:
    """x + attention(norm(x)), then x + mlp(norm(x)), with RMSNorm."""
    return (
        rms_norm("input_layernorm", hidden, style=style)
        + attention
        + rms_norm("post_attention_layernorm", hidden, style=style)
        + mlp
        + kernels(2)
    )


def pre_layer_norm_block(hidden: int, attention: Part, mlp: Part, names: tuple[str, str]) -> Part:
    """The same with LayerNorm."""
    return layer_norm(names[0], hidden) + attention + layer_norm(names[1], hidden) + mlp + kernels(2)


def soft_cap(vocab_size: int) -> Part:
    """tanh over the logits keeps one more logits tensor."""
    return keeps("logits.soft_cap", "other", vocab_size) + kernels(3)
