"""Gradient bytes of a group, base and adapters apart."""

from stoker.core.ledger import ModuleGroup


def gradient_bytes(group: ModuleGroup) -> float:
    """Bytes of the gradients of one copy of `group`, unsharded."""
    return group.base_trainable * group.grad_bytes_per_param + group.adapter_params * group.adapter_bytes_per_param


def weight_bytes(group: ModuleGroup) -> float:
    """Bytes of the weights of one copy of `group`, adapters included, masters not, unsharded."""
    return group.num_params * group.weight_bytes_per_param + group.adapter_params * group.adapter_bytes_per_param
