"""Llama-like families without a classification class in transformers: EXAONE 3, HyperCLOVA X, Granite."""

from stoker.catalogue.models import llama
from stoker.catalogue.models.family import Family

_COMMON = dict(llama.FAMILY.model_types["llama"])

FAMILY = Family(
    name="exaone",
    modality="text",
    tasks=("causal_lm",),
    model_types={
        "exaone": {
            **_COMMON,
            "vocab_size": 102400,
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096,
        },
        "hyperclovax": {**_COMMON, "use_post_norm": True, "residual_multiplier": 1.0},
        "granite": {
            **{key: value for key, value in _COMMON.items() if key != "head_dim"},
            "residual_multiplier": 1.0,
        },
    },
    build=llama.build,
    renamed={"num_layers": "num_hidden_layers", "activation_function": "hidden_act"},
)
