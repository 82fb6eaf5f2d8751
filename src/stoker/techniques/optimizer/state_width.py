"""Bytes of one element as the optimizer sees it: the master's where there is one, else the weight's."""

from stoker.core.ledger import ModuleGroup


def optimized_bytes(group: ModuleGroup) -> float:
    """Bytes of all trainable elements of one copy of `group`, in the format that the optimizer steps.

    torch.optim makes its state `zeros_like` the parameter it steps, so state has that parameter's format.
    """
    width = group.master_bytes_per_param or group.weight_bytes_per_param
    return group.base_trainable * width + group.adapter_params * group.adapter_bytes_per_param
