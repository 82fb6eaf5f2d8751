"""The GPU table: one row a product, form factor kept apart, from data/gpus.csv and data/gpu_aliases.csv.

Peaks are dense FLOP/s at the fp32-accumulate rate; sizes are bytes; speeds are bytes/s in one direction. Every row
names its sources. A name that fits several products is an error that lists them: their peaks differ by up to a third.
"""

import functools
import re

from stoker.catalogue.links import all_links
from stoker.catalogue.tables import number, read_rows
from stoker.core.errors import PlanningError
from stoker.core.estimate import Source
from stoker.core.hardware import Device, DeviceKind
from stoker.core.i18n import _
from stoker.core.units import GB, GIB, TFLOP

# What a process sees of each sold "GB", in GiB, where no card was measured. HBM cards are sold in binary gigabytes and
# lose 1 % to the driver (79.18 of 80, 139.8 of 141, 178.36 of 180 measured); GDDR with ECC on gives up a sixteenth
# and the driver's share (T4: 14.56 of 16 measured), without ECC only the driver's share (A6000: 47.4 of 48 measured).
_VISIBLE_GIB_PER_SOLD_GB = {"hbm": 0.99, "hbm2_old": 0.985, "gddr": 0.98, "gddr_ecc": 0.92}
_PEAKS = {
    "fp32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "fp16": "fp16_tflops",
    "bf16": "bf16_tflops",
    "fp8": "fp8_tflops",
    "int8": "int8_tops",
    "fp4": "fp4_tflops",
}
_KINDS: dict[str, DeviceKind] = {"cuda": "cuda", "rocm": "rocm"}
_MAKER = re.compile(r"^(nvidia|amd|intel|google|aws|geforce|tesla|instinct|corporation)+")
_DRIVER_MEMORY_TOLERANCE = 0.08  # between a card and its nearest sibling by size (A10 24 GB, 3080 10 and 12 GB): 17 %


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _key(name: str) -> str:
    plain = _plain(name)
    return _MAKER.sub("", plain) or plain


@functools.cache
def all_devices() -> tuple[Device, ...]:
    """Every product of the table, in its order."""
    return tuple(_device(row) for row in read_rows("gpus.csv"))


@functools.cache
def default_devices() -> tuple[Device, ...]:
    """What clouds rent for training: the products that a job considers when it names none."""
    wanted = {row["name"] for row in read_rows("gpus.csv") if row["default"]}
    return tuple(device for device in all_devices() if device.name in wanted)


def _device(row: dict[str, str]) -> Device:
    link, host = all_links()[row["link"]], all_links()[row["host_link"]]
    major, dot, minor = row["compute_capability"].partition(".")
    return Device(
        name=row["name"],
        kind=_KINDS.get(row["kind"], "other"),
        vendor=row["vendor"],
        architecture=row["architecture"],
        compute_capability=(int(major), int(minor)) if dot else None,
        sold_bytes=round(float(row["sold_gb"]) * GB),
        visible_bytes=_visible_bytes(row),
        memory_bytes_per_s=float(row["memory_gb_per_s"]) * GB,
        peak_flops_per_s={name: float(row[column]) * TFLOP for name, column in _PEAKS.items() if row[column]},
        interconnect=link.name,
        link_bytes_per_s=link.bytes_per_s,
        pcie_bytes_per_s=host.bytes_per_s,
        tdp_w=number(row["tdp_w"]),
        launch_year=int(row["launch_year"]),
        note=row["note"],
        link_max_gpus=link.max_gpus,
        visible_source=Source(row["visible_source"]),
        sources=tuple(row["source"].split(";")),
    )


def _visible_bytes(row: dict[str, str]) -> int:
    factor = _VISIBLE_GIB_PER_SOLD_GB.get(row["visible"])
    gib = float(row["sold_gb"]) * factor if factor else float(row["visible"])
    return round(gib * GIB)


@functools.cache
def _by_name() -> dict[str, tuple[Device, ...]]:
    devices = {device.name: device for device in all_devices()}
    names: dict[str, tuple[Device, ...]] = {}
    for row in read_rows("gpu_aliases.csv"):
        key = _key(row["alias"])
        if devices[row["gpu"]] not in names.get(key, ()):
            names[key] = (*names.get(key, ()), devices[row["gpu"]])
    names.update({_key(name): (device,) for name, device in devices.items()})
    return names


@functools.lru_cache(maxsize=1024)
def matching_devices(name: str) -> tuple[Device, ...]:
    """Every product that `name` can mean, none for an unknown name. Case, spaces, dashes and makers do not count."""
    return _by_name().get(_key(name), ())


def find_device(name: str, *, place: str = "") -> Device:
    """The one product that `name` means; `place`: the key or flag that gave it, for errors.

    Raises PlanningError ST301 for a name of several products (naming them) and for an unknown one (naming the nearest).
    """
    found = matching_devices(name)
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanningError(
            "ST301",
            _("{name} is {count} products: {choices}").format(
                name=name, count=len(found), choices=", ".join(_describe(device) for device in found)
            ),
            place=place,
            fix=_("write the one you mean, for example {first}").format(first=found[0].name),
        )
    near = nearest_devices(name)
    raise PlanningError(
        "ST301",
        _("there is no GPU called {name} in the table").format(name=repr(name)[:80]),
        place=place,
        fix=_("did you mean {choices}?").format(choices=", ".join(near))
        if near
        else _("names look like {examples}").format(examples=", ".join(d.name for d in default_devices()[:4])),
    )


def _describe(device: Device) -> str:
    peak = device.peak_flops_per_s.get("bf16") or device.peak_flops_per_s.get("fp16")
    size = f"{device.sold_bytes / GB:g} GB"
    return f"{device.name} ({size}, {peak / TFLOP:g} TFLOP/s)" if peak else f"{device.name} ({size})"


def nearest_devices(name: str, count: int = 3) -> tuple[str, ...]:
    """Canonical names nearest to a mistyped `name`, best first."""
    import difflib  # only on the way to an error

    known = _by_name()
    close = difflib.get_close_matches(_key(name), known, n=4 * count, cutoff=0.6)
    names = dict.fromkeys(device.name for key in close for device in known[key])
    return tuple(names)[:count]


def device_from_driver_name(name: str, memory_bytes: int | None = None) -> Device | None:
    """The product that torch or NVML calls `name` (`NVIDIA H100 80GB HBM3`, `Tesla T4`), or None when in doubt.

    `memory_bytes`: total memory as the driver reports it; it tells siblings of one name apart, and a slice of a GPU
    (MIG, vGPU), whose memory fits no product, is None.
    """
    found = matching_devices(name)
    if memory_bytes is not None:
        found = tuple(
            device
            for device in found
            if abs(memory_bytes - device.visible_bytes) <= _DRIVER_MEMORY_TOLERANCE * device.visible_bytes
        )
    return found[0] if len(found) == 1 else None
