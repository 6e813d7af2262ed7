"""What is measured: parts of a report, each a list of jobs in settings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.contestants import FLOOR
from benchmarks.jobs import EVERYBODY
from benchmarks.worker import Job, Setting
from benchmarks.workload import Size

SIZES = (  # the goals are set for these
    Size(8, 128, 256, 8),
    Size(4, 512, 512, 8),
    Size(2, 1024, 1024, 16),
    Size(1, 2048, 768, 12),
)
PARTS = ("sizes", "length", "heads", "memory", "shares", "roofline")
MEMORY_LIMIT = 6 * 1024  # MiB; no pass is measured that should take more

# Whose growth is measured: one of each kind, and all whose memory is a goal.
GROWING = (
    FLOOR.name,
    "FusedMHA, no weights",
    "FusedMHA, weights per head",
    "loop over head slices",
    "BatchedMHA",
    "EinsumMHA",  # up to LONGEST_EINSUM: beyond, one pass takes a minute and 10 GiB
)
LONGEST_EINSUM = 4096
IN_MEMORY = (
    FLOOR.name,
    "FusedMHA, no weights",
    "mha_lib.MultiheadAttention, no weights",
    "nn.MultiheadAttention, no weights",
    "nn.MultiheadAttention, weights averaged",
    "mha_lib.MultiheadAttention, weights averaged",
    "FusedMHA, weights per head",
    "loop over head slices",
    "BatchedMHA",
)
IN_SHARES = (
    FLOOR.name,
    "loop over head slices",
    "FusedMHA, weights per head",
    "BatchedMHA",
    "EinsumMHA",
    "nn.MultiheadAttention, no weights",
)
ON_THE_ROOF = (
    FLOOR.name,
    "loop over head slices",
    "FusedMHA, weights per head",
    "PerHeadMHA",
    "BatchedMHA",
    "EinsumMHA",
    "SplitConcatMHA",
)
ON_CUDA = {
    "threads": (1,),  # a GPU knows neither threads
    "allocators": ("system",),  # nor the C library's allocator
    "dtypes": ("bfloat16", "float32"),  # the first is what a GPU is used for
    "sizes": (*SIZES, Size(8, 1024, 768, 12), Size(2, 4096, 2048, 16)),
}


@dataclass(frozen=True)
class Plan:
    """What is to be measured. The defaults take forty minutes on two slow cores."""

    device: str = "cpu"
    parts: tuple[str, ...] = PARTS
    sizes: tuple[Size, ...] = SIZES
    masks: tuple[bool, ...] = (False, True)
    runs: tuple[str, ...] = ("forward", "training")
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    threads: tuple[int, ...] = (1, 2)
    allocators: tuple[str, ...] = ("system", "keeps pages")
    only: tuple[str, ...] = ()
    thorough: bool = False
    budget: float = 3.0
    growing: Size = Size(1, 0, 512, 8)  # T varies
    lengths: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192)
    with_heads: Size = Size(4, 512, 512, 0)  # H varies
    heads: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    memory_lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    profiled: Size = Size(1, 2048, 768, 12)

    def names(self, among: tuple[str, ...] = tuple(EVERYBODY)) -> list[str]:
        """Those of ``among`` that are asked for."""
        asked = [word.lower() for word in self.only]
        return [
            name
            for name in among
            if not asked or any(word in name.lower() for word in asked)
        ]

    def groups(self) -> Iterator[tuple[Setting, list[Job]]]:
        """All jobs but those of memory, which need a process each.

        In the first setting everybody is timed; in the others, who has to be. The
        allocator is varied for one setting alone, without masks.
        """
        dtype, *other_dtypes = self.dtypes
        threads, *other_threads = self.threads
        first = Setting(threads, self.allocators[0], self.device)
        if "sizes" in self.parts:
            yield first, self.races(dtype, self.masks, everybody=True)
            for allocator in self.allocators[1:]:
                setting = replace(first, allocator=allocator)
                yield setting, self.races(dtype, self.masks[:1])
            for dtype in other_dtypes:
                yield first, self.races(dtype, self.masks)
            for threads in other_threads:
                for dtype in self.dtypes:
                    setting = replace(first, threads=threads)
                    yield setting, self.races(dtype, self.masks)
        if "length" in self.parts:
            yield (
                first,
                [self.race("length", self.growing._replace(T=T)) for T in self.lengths],
            )
        if "heads" in self.parts:
            yield (
                first,
                [self.race("heads", self.with_heads._replace(H=H)) for H in self.heads],
            )
        if "shares" in self.parts and self.device == "cpu":
            yield (
                first,
                [
                    self.about("shares", "shares", name)
                    for name in self.names(IN_SHARES)
                ],
            )
        if "roofline" in self.parts:
            jobs = [Job("roofline", "limits", {"dtype": d}) for d in self.dtypes]
            names = self.names(ON_THE_ROOF)
            jobs += [self.about("roofline", "moved", name) for name in names]
            yield first, jobs

    def races(
        self, dtype: str, masks: tuple[bool, ...], everybody: bool = False
    ) -> list[Job]:
        """The cells of one setting: sizes, masks, forward and training."""
        everybody = everybody or self.thorough
        among = [n for n, c in EVERYBODY.items() if everybody or c.core]
        arguments = {"names": self.names(tuple(among)), "budget": self.budget}
        return [
            Job(
                "sizes",
                "race",
                {
                    "size": list(size),
                    "causal": causal,
                    "run": run,
                    "dtype": dtype,
                    **arguments,
                },
            )
            for size in self.sizes
            for causal in masks
            for run in self.runs
        ]

    def race(self, part: str, size: Size) -> Job:
        """A cell of those whose growth is measured: forward, no mask."""
        growing = GROWING if size.T <= LONGEST_EINSUM else GROWING[:-1]
        return Job(
            part,
            "race",
            {
                "size": list(size),
                "causal": False,
                "run": "forward",
                "dtype": self.dtypes[0],
                "names": self.names(growing),
                "budget": self.budget,
            },
        )

    def about(self, part: str, kind: str, name: str) -> Job:
        return Job(part, kind, {"name": name, "size": list(self.profiled)})

    def memory_series(self) -> Iterator[list[Job]]:
        """For each contestant its points, the shortest first."""
        if "memory" not in self.parts:
            return
        for name in self.names(IN_MEMORY):
            sizes = [list(self.growing._replace(T=T)) for T in self.memory_lengths]
            yield [Job("memory", "memory", {"name": name, "size": s}) for s in sizes]

    def cost(self, job: Job) -> float:
        """About how many seconds a job takes, for the progress bar."""
        if job.kind != "race":
            return 3
        passes = 15 if job.arguments["run"] == "training" else 5
        flops = Size(*job.arguments["size"]).flops
        return self.budget + passes * len(job.arguments["names"]) * flops / 1e11


QUICK = Plan(
    sizes=(Size(4, 64, 64, 4), Size(2, 128, 96, 6)),
    dtypes=("float32",),
    threads=(1,),
    budget=0.2,
    lengths=(128, 256, 512, 1024),
    heads=(1, 4, 16),
    memory_lengths=(512, 1024, 2048),
    profiled=Size(2, 128, 96, 6),
)
