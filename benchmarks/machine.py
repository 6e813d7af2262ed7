"""Where it was measured, in words: numbers mean nothing without their machine."""

import contextlib
import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import torch

CPUINFO = Path("/proc/cpuinfo")
LIBRARIES = ("torch", "keras", "x-transformers", "jax", "flax", "transformers")


def describe(device: str) -> dict[str, object]:
    """Processor, memory, versions: all that a result may depend on."""
    described = {
        **processor(),
        "cores": cores(),
        "memory_gib": memory(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "blas": blas(),
        "system": f"{platform.system()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
    }
    if device == "cuda":
        described["gpu"] = torch.cuda.get_device_name()
        described["cuda"] = torch.version.cuda
    return described


def sentence(machine: dict[str, object]) -> str:
    """One line for headings and captions."""
    where = machine.get("gpu") or machine["processor"]
    kind = [machine.get(f"processor_{key}") for key in ("family", "model")]
    if all(kind) and "gpu" not in machine:  # older files do not say
        where += f" (family {kind[0]}, model {kind[1]})"
    return (
        f"{where}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"torch {machine['versions']['torch']} ({machine['blas']}, "
        f"{machine['instructions']}), {machine['system']}, {machine['date']}"
    )


def processor() -> dict[str, object]:
    """Its name, and what tells apart processors of one name where Linux knows it."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        first = CPUINFO.read_text().partition("\n\n")[0]
        lines = (line.partition(":") for line in first.splitlines())
        found = {key.strip(): value.strip() for key, _, value in lines}
    name = found.get("model name") or platform.processor() or platform.machine()
    keys = {"processor_family": "cpu family", "processor_model": "model"}
    return {"processor": name, **{k: found[v] for k, v in keys.items() if v in found}}


def cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory() -> int | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def blas() -> str:
    found = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return found[1] if found else "BLAS unknown"


def versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
