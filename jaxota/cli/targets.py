"""Devices that a program can be compiled for although they are not here: TPUs and GPUs by name."""

import importlib.metadata
import importlib.util
import json
import math
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from jaxota.errors import InputError

LIBTPU = "0.0.41"  # the version that was tested with jax 0.10.1
NVCC = "12.9.86"


class Chip(NamedTuple):
    """Figures of one chip, from its maker's data sheet, and the packages that compile for it."""

    kind: str  # JAX's `device_kind`
    memory: float  # bytes
    bandwidth: float  # of that memory, in bytes per second
    clock: float  # in Hz; on TPU one bundle of instructions is issued in each cycle
    config: str = ""  # XLA's description of a GPU; empty for a TPU

    @property
    def gpu(self) -> bool:
        return bool(self.config)

    @property
    def priced(self) -> bool:
        """Whether XLA has a table of this chip's arithmetic, and can price kernels."""
        return "major: 9" in self.config


def _gpu(kind: str, capability: tuple[int, int], memory: float, bandwidth: float, clock: float,
         cores: int, units: int, threads: int, shared: int, l2: int) -> Chip:  # fmt: skip
    major, minor = capability
    config = f"""
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: {threads}
  shared_memory_per_block: 49152 shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {shared - 1024 if major > 7 else shared}
  core_count: {cores} fpus_per_core: {units} clock_rate_ghz: {clock / 1e9}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f} device_memory_size: {memory:.0f} l2_cache_size: {l2}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA" device_description_str: "{kind}"
dnn_version_info {{ major: 9 minor: 8 }} runtime_version {{ major: 12 minor: 8 }}
"""
    return Chip(kind, memory, bandwidth, clock, config)


# The clock of a TPU follows from its peak: v5e does 197e12 operations a second with four arrays of
# 128² multipliers. Of v6e the clock is not published; v5p's is assumed.
CHIPS = {
    "v5e": Chip("TPU v5 lite", 17.2e9, 819e9, 1.5e9),
    "v6e": Chip("TPU v6 lite", 34.4e9, 1640e9, 1.75e9),
    "h100": _gpu(
        "NVIDIA H100 80GB HBM3", (9, 0), 84978434048, 3352320000000, 1.98e9,
        cores=132, units=128, threads=2048, shared=233472, l2=52428800,
    ),
    "t4": _gpu(
        "Tesla T4", (7, 5), 15842934784, 320064000000, 1.59e9,
        cores=40, units=64, threads=1024, shared=65536, l2=4194304,
    ),
}  # fmt: skip


# Settings of a process that finds the compilers, and looks for no hardware; libtpu would refuse to
# be loaded by two processes.
OFFLINE = {"JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
OFFLINE |= {"TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
OFFLINE |= {"TF_CPP_MIN_LOG_LEVEL": "2"}


class Target(NamedTuple):
    """Chips to compile for: how many of which, and how TPUs are laid out."""

    name: str
    chip: Chip
    shape: tuple[int, ...]

    @property
    def chips(self) -> int:
        return math.prod(self.shape)


def parse(name: str) -> Target | None:
    """Return the target of this name, such as v5e:2x2 or h100:8; None for "here"."""
    if name == "here":
        return None
    chip, colon, shape = name.partition(":")
    sizes = tuple(map(int, shape.split("x"))) if re.fullmatch(r"\d+(x\d+)?", shape) else ()
    if chip in CHIPS:
        axes = 1 if CHIPS[chip].gpu else 2
        if not colon or (len(sizes) == axes and 0 not in sizes):
            return Target(name, CHIPS[chip], sizes or (1,) * axes)
    raise InputError(
        "--for must be here, v5e or v6e with a shape (v5e, v5e:2x2), or h100 or t4 with a number "
        f"(h100, h100:8), got {name!r}"
    )


def require(target: Target) -> None:
    """Raise InputError where the compiler for the target is not installed."""
    if target.chip.gpu:
        needed = "jax_cuda12_plugin"
        version = importlib.metadata.version("jax")
        packages = (
            f"--no-deps jax-cuda12-plugin=={version} jax-cuda12-pjrt=={version} "
            f"nvidia-cuda-nvcc-cu12=={NVCC}"
        )
    else:
        needed, packages = "libtpu", f"libtpu=={LIBTPU}"
    if importlib.util.find_spec(needed) is None:
        raise InputError(
            f"--for {target.name} needs the compiler {needed}, which runs without the hardware: "
            f"pip install {packages}"
        )


def environment(target: Target, dump: Path) -> dict[str, str]:
    """Return what to set before a process starts that compiles for the target.

    The compiler writes what `pricing` reads to the folder `dump`.
    """
    if not target.chip.gpu:
        label = "--xla_jf_dump_llo_pass_label_regex=.*final.*"
        flags = f"--xla_jf_dump_to={dump} --xla_jf_dump_llo_text=true {label}"
        return OFFLINE | {"LIBTPU_INIT_ARGS": flags}
    flags = f"--xla_dump_to={dump} --xla_dump_hlo_as_text"
    if target.chip.priced:  # an error for chips of which XLA has no table
        flags += " --xla_gpu_collect_cost_model_stats=true"
    return OFFLINE | {"XLA_FLAGS": flags}


def devices(target: Target | None) -> Any:
    """Return the target's devices, which are to compile for and not to run on; None for here."""
    if target is None:
        return None
    from jax.experimental import topologies

    chip, shape = target.chip, target.shape
    if chip.gpu:
        options: dict[str, Any] = {"target_config": chip.config, "topology": f"1x1x{shape[0]}"}
        found = topologies.get_topology_desc(topology_name="gpu", platform="cuda", **options)
    else:
        name = target.name.partition(":")[0] + ":" + "x".join(map(str, shape))
        host = *(min(2, size) for size in shape), 1
        found = topologies.get_topology_desc(name, "tpu", chips_per_host_bounds=host)
    return found.devices


def compile_into(folder: Path, lowered: Any, **facts: Any) -> None:
    """Compile a program; write its text, its bytes and the time to a folder, with other facts."""
    begun = time.perf_counter()
    done = lowered.compile()
    facts["compile_seconds"] = time.perf_counter() - begun
    memory = done.memory_analysis()
    for name, field in (("arguments", "argument"), ("temporaries", "temp"), ("results", "output")):
        facts[name] = getattr(memory, f"{field}_size_in_bytes")
    (folder / "program.txt").write_text(done.as_text(), encoding="utf-8")
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
