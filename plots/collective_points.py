"""Points of a benchmark of collectives, and the lines that they make."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class BenchPoint:
    operation: str
    algorithm: str
    transport: str
    ranks: int
    bytes: int
    in_place: bool
    values: dict  # Google Benchmark's entry
    variant: str = ""  # type and reduction
    file: str = ""

    @property
    def best_place(self):
        """In-place, or the only way the operation has."""
        return self.in_place or self.operation in ("all_to_all", "all_to_all_v", "send_recv", "ps")

    @property
    def name(self):
        return "the library's own" if self.algorithm == "vendor" else self.algorithm

    @property
    def measured(self):
        """What two files measured alike."""
        return self.name, self.transport, self.variant


def lines_of(points):
    """The points of each line by size. A line's name holds what distinguishes it from the others."""
    points = [point for point in points if point.best_place]
    transports, variants, files = {}, {}, {}
    for point in points:
        transports.setdefault(point.name, set()).add(point.transport)
        variants.setdefault(point.name, set()).add(point.variant)
        files.setdefault(point.measured, set()).add(point.file)
    lines = {}
    for point in points:
        parts = [point.name]
        parts += [point.transport] if len(transports[point.name]) > 1 else []
        parts += [point.variant] if len(variants[point.name]) > 1 else []
        parts += [point.file] if len(files[point.measured]) > 1 else []
        lines.setdefault(", ".join(parts), {}).setdefault(point.bytes, []).append(point)
    return {name: [_median_point(sizes[size]) for size in sorted(sizes)] for name, sizes in lines.items()}


def _median_point(points):
    """The median of repetitions."""
    return sorted(points, key=lambda point: point.values["p50_us"])[len(points) // 2]


def by_operation_and_ranks(results):
    """The points of each operation and number of ranks, which can be compared with one another."""
    groups = {}
    for run, file in zip(results.benchmarks, results.file_names()):
        for point in run.points():
            if point.bytes > 0:
                groups.setdefault((point.operation, point.ranks), []).append(replace(point, file=file))
    return [(operation, groups[operation, ranks]) for operation, ranks in sorted(groups)]


def setting_of(points):
    """The setting that all points share: "2 ranks, threads"."""
    transports = {point.transport for point in points}
    return ", ".join([f"{points[0].ranks} ranks"] + [*transports] * (len(transports) == 1))
