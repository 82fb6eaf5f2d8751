"""The tensors that an optimizer steps, by shape: what its state hangs on where bytes are not a figure a parameter.

Matrices are the group's linears, its look-up tables and its adapters' factors; everything else counts as vectors
(biases, norms; an encoder's position table too, and kernels of convolutions: both a bound, and said so where used).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stoker.core.ledger import ModuleGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class SteppedTensor:
    """`count` matrices of rows x columns in one tensor; a vector has one row. `bytes_per_element`: as stepped.

    `hidden`: a plain 2-D matrix inside a block (what Muon takes). `table`: of an embedding.
    """

    rows: int
    columns: int
    bytes_per_element: float
    count: int = 1
    hidden: bool = False
    table: bool = False

    @property
    def elements(self) -> int:
        return self.count * self.rows * self.columns

    @property
    def is_vector(self) -> bool:
        return self.rows == 1 and self.columns == self.elements


def stepped_tensors(group: ModuleGroup) -> Iterator[SteppedTensor]:
    """Tensors of one copy of `group` that learn, in no order; their elements sum to `group.trainable`."""
    if group.base_trainable:
        yield from _base_tensors(group)
    adapter_bytes = group.adapter_bytes_per_param
    for shape in group.adapter_shapes:
        rows, columns = shape if len(shape) == 2 else (1, shape[0])
        yield SteppedTensor(rows=rows, columns=columns, bytes_per_element=adapter_bytes, hidden=len(shape) == 2)
    known = sum(_product(shape) for shape in group.adapter_shapes)
    if group.adapter_params > known:
        yield SteppedTensor(rows=1, columns=group.adapter_params - known, bytes_per_element=adapter_bytes)


def _base_tensors(group: ModuleGroup) -> Iterator[SteppedTensor]:
    """The group's own: a tied head has a linear but no parameters, so what exceeds them is another group's."""
    width = group.master_bytes_per_param or group.weight_bytes_per_param
    left = group.base_trainable
    for rows, columns in group.tables:
        if rows * columns <= left:
            left -= rows * columns
            yield SteppedTensor(rows=rows, columns=columns, bytes_per_element=width, table=True)
    for linear in group.linears:
        size = linear.count * linear.in_features * linear.out_features
        if size <= left:
            left -= size
            yield SteppedTensor(
                rows=linear.out_features,
                columns=linear.in_features,
                bytes_per_element=width,
                count=linear.count,
                hidden=group.kind == "block" and linear.count == 1,
            )
    if left:
        yield SteppedTensor(rows=1, columns=left, bytes_per_element=width)


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result
