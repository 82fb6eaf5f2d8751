"""Position embeddings of a vision transformer at another image size: the learned grid, resampled.

What Dosovitskiy et al. (2010.11929, section 3.2) do when they fine-tune at a higher resolution; bicubic, as the
authors' code and transformers' `interpolate_pos_encoding` do.
"""

import math
from pathlib import Path

import torch
from safetensors import safe_open
from torch.nn import functional

_NAME = "position_embeddings"


def resample_positions(network: torch.nn.Module, names: set[str], folder: Path) -> set[str]:
    """Fill each position table of `names` (those whose shape differs from the file's) from `folder`.

    Returns the names filled: they are learned, not fresh.
    """
    filled = set()
    parameters = dict(network.named_parameters())
    for name in sorted(n for n in names if n.rsplit(".", 1)[-1] == _NAME and n in parameters):
        learned = _stored(folder, ".".join(name.split(".")[-2:]))
        table = None if learned is None else resampled(learned, parameters[name].shape)
        if table is not None:
            with torch.no_grad():
                parameters[name].copy_(table)
            filled.add(name)
    return filled


def resampled(learned: torch.Tensor, shape: torch.Size) -> torch.Tensor | None:
    """A table [1, prefix + grid^2, width] in `shape`: class tokens stay, the square grid is resampled.

    None where the two are no grids of one width with the same class tokens.
    """
    if learned.ndim != 3 or len(shape) != 3 or learned.shape[-1] != shape[-1]:
        return None
    edge, new_edge = math.isqrt(learned.shape[1]), math.isqrt(shape[1])
    prefix = learned.shape[1] - edge * edge
    if prefix != shape[1] - new_edge * new_edge:
        return None
    grid = learned[:, prefix:].float().reshape(1, edge, edge, -1).permute(0, 3, 1, 2)
    grown = functional.interpolate(grid, size=(new_edge, new_edge), mode="bicubic", align_corners=False)
    return torch.cat([learned[:, :prefix].float(), grown.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def _stored(folder: Path, ending: str) -> torch.Tensor | None:
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="pt") as stored:
            for key in stored.keys():  # noqa: SIM118  # a safetensors file is no mapping
                if key == ending or key.endswith("." + ending):
                    tensor: torch.Tensor = stored.get_tensor(key)
                    return tensor
    return None
