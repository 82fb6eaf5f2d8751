"""MPT: no biases at all, position by attention bias (ALiBi), which always writes its score matrix.

Source of shapes: modeling_mpt.py of transformers; the code that MosaicML trained with differs in kernels.
"""

from stoker.catalogue.models.family import Family, Shape, Target
from stoker.catalogue.models.lookup.config_reader import ConfigReader
from stoker.catalogue.models.parts.attention import Heads, attention_core, input_of
from stoker.catalogue.models.parts.decoder import decoder_shape, layer_groups
from stoker.catalogue.models.parts.mlp import plain_mlp
from stoker.catalogue.models.parts.norm import layer_norm
from stoker.catalogue.models.parts.part import dense, kernels


def build(config: ConfigReader, target: Target) -> Shape:
    """Groups of an MPT config."""
    hidden = config.size("hidden_size")
    num_heads = config.size("num_attention_heads")
    heads = Heads(
        num_heads=num_heads,
        num_kv_heads=num_heads,
        head_dim=config.divides("hidden_size", "num_attention_heads"),
    )
    block = (
        layer_norm("norm_1", hidden, bias=False)
        + input_of(hidden, "Wqkv")
        + dense("Wqkv", hidden, 3 * hidden)
        + attention_core(heads, always_scores=True)
        + dense("out_proj", hidden, hidden)
        + layer_norm("norm_2", hidden, bias=False)
        + plain_mlp(("up_proj", "down_proj"), hidden, 4 * hidden, "gelu", bias=False)
        + kernels(2)
    )
    return decoder_shape(
        config,
        target,
        layers=layer_groups(heads, [None] * config.layers(), lambda _window: block, hidden, name="blocks"),
        final_norm=layer_norm("norm_f", hidden, bias=False),
        names=("wte", "norm_f", "lm_head"),
    )


FAMILY = Family(
    name="mpt",
    modality="text",
    tasks=("causal_lm", "text_classification"),
    model_types={
        "mpt": {
            "d_model": 2048,
            "n_heads": 16,
            "n_layers": 24,
            "max_seq_len": 2048,
            "vocab_size": 50368,
            "tie_word_embeddings": True,
        }
    },
    build=build,
    renamed={
        "d_model": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
        "max_seq_len": "max_position_embeddings",
    },
)
