"""Building blocks that families are put together from; each adds its parameters, FLOPs and saved tensors."""
