"""The GPU table: one row a product, form factor kept apart, from data/gpus.csv and data/gpu_aliases.csv.

Peaks are dense FLOP/s at the fp32-accumulate rate; sizes are bytes; speeds are bytes/s in one direction. Every row
names its sources. A name that fits several products is an error that lists them: their peaks differ by up to a third.
Tables of measurements name no form (`A100-80GB`): `published_device` reads those for `stoker validate`.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import replace

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

# How tables write a GPU: its size, how many, its form, or only a size
_STATED_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*-?\s*gi?b\b", re.IGNORECASE)
_GPU_COUNT = re.compile(r"^\s*\d+\s*[x*]\s*(?=[a-z])|\s+[x*]\s*\d{1,3}\s*$", re.IGNORECASE)
_FORM_WORDS = re.compile(r"\b(sxm\d?|pcie|pci-e|nvl|oam|hbm\d?e?|gddr\d?x?|ecc|hgx|dgx|gpus?)\b", re.IGNORECASE)
_ANY_CARD = re.compile(r"^\s*(any|a|an|some|generic|one)\b.*\b(card|gpu|device)s?\b", re.IGNORECASE)
_SIZE_TOLERANCE = 0.08  # 40 GB is not 48 GB; 141 GB and 139.8 GiB are one product
# A typical training card of each size, in GB, for rows that name only the size
_TYPICAL = (
    (8, "RTX3070"), (12, "RTX3060-12GB"), (16, "RTX4080"), (24, "RTX4090"), (32, "RTX5090"), (40, "A100-SXM4-40GB"),
    (48, "L40S"), (80, "A100-SXM4-80GB"), (94, "H100-NVL-94GB"), (141, "H200-SXM-141GB"), (180, "B200-SXM-180GB"),
)  # fmt: skip


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
        rated_clock_frac=number(row["rated_clock_frac"]) or 1.0,
        launch_year=int(row["launch_year"]),
        note=row["note"],
        link_max_gpus=link.max_gpus,
        visible_source=Source(row["visible_source"]),
        peer_to_peer=link.kind != "bounce",
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
    if len(found) > 1 and "pcie" not in name.lower():  # drivers write PCIe; a module may be `NVIDIA H800`
        found = tuple(device for device in found if "-PCIe-" not in device.name)
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=1024)
def published_device(name: str, gpu_mem_gb: float | None = None) -> tuple[Device, bool] | None:
    """(the device that a table calls `name`, whether it is certain), or None for a name that means no product.

    `gpu_mem_gb`: the sold size beside the name, which tells siblings apart. An inexact device wants a wider interval.
    """
    plain = _GPU_COUNT.sub("", name).strip()
    stated = _STATED_SIZE.search(plain)
    size_gb = float(stated[1]) if stated else gpu_mem_gb
    if _ANY_CARD.match(plain):
        return (_assumed_card(size_gb), False) if size_gb else None
    found = matching_devices(plain) or _by_words(plain)
    fitting = _of_size(found, size_gb) if size_gb else found
    if not fitting:
        return None
    chosen = _of_form(fitting, plain)
    if not chosen[0].peak_flops_per_s:
        return _with_assumed_peaks(chosen[0]), False
    return chosen[0], len(chosen) == 1


def _by_words(name: str) -> tuple[Device, ...]:
    """Products of the chip that `name` states, its size and form set aside."""
    chip = _FORM_WORDS.sub(" ", _STATED_SIZE.sub(" ", name.replace("_", " ").replace("-", " "))).strip()
    return matching_devices(chip) if chip else ()


def _of_size(devices: Sequence[Device], size_gb: float) -> tuple[Device, ...]:
    """Those of about `size_gb`, which tables print as sold or as the driver shows it."""
    return tuple(
        device
        for device in devices
        if abs(device.sold_bytes / GB - size_gb) <= _SIZE_TOLERANCE * size_gb
        or abs(device.visible_bytes / GIB - size_gb) <= _SIZE_TOLERANCE * size_gb
        or ("-GCD-" in device.name and device.sold_bytes == size_gb / 2 * GB)  # the module's size, two devices
    )


def _of_form(devices: Sequence[Device], name: str) -> tuple[Device, ...]:
    """Those of the form that `name` states; without one all of them, the module (SXM) first."""
    stated = re.findall(r"sxm|pcie|nvl", name.lower())
    of_form = tuple(device for device in devices if any(form in device.name.lower() for form in stated))
    return of_form or tuple(sorted(devices, key=lambda device: "SXM" not in device.name))


def _with_assumed_peaks(device: Device) -> Device:
    """A Hopper module whose peak is not published: torchtitan's note puts it between SXM and NVL, so their mean."""
    sxm, nvl = find_device("H100-SXM5-80GB").peak_flops_per_s, find_device("H100-NVL-94GB").peak_flops_per_s
    mean = {dtype: (sxm[dtype] + nvl[dtype]) / 2 for dtype in sxm if dtype in nvl}
    return replace(device, peak_flops_per_s=mean, source=Source.ASSUMED)


def _assumed_card(size_gb: float) -> Device:
    """The typical card nearest in size, with exactly `size_gb` of memory."""
    _size, name = min(_TYPICAL, key=lambda row: abs(row[0] - size_gb))
    model = next(device for device in all_devices() if device.name == name)
    return replace(
        model,
        name=f"any-{size_gb:g}GB",
        sold_bytes=round(size_gb * GB),
        visible_bytes=round(size_gb * _VISIBLE_GIB_PER_SOLD_GB["gddr"] * GIB),
        source=Source.ASSUMED,
        note=f"assumed: rates of {name}",
    )
