"""Reads Lockstep's files: results of training and of benchmarks, schedules and traces. Recognises them by their content."""

import math
import pathlib
import statistics
from dataclasses import dataclass, field, fields, replace

import forms


class BadInput(Exception):
    """A file that a plot cannot use. The text names the fault, the file and the remedy."""


# Two training runs with the same values of these have the same losses, except for rounding.
SAME_TRAINING = ("model", "init", "data", "order", "seed", "global_batch", "sequence_length", "lr", "warmup_steps",
                 "min_lr", "weight_decay", "grad_clip", "beta1", "beta2", "eps", "steps", "dtype")


AXES = ("tp", "cp", "pp", "dp")


@dataclass(frozen=True)
class TrainRun:
    path: pathlib.Path
    data: dict

    @property
    def config(self):
        return self.data["config"]

    @property
    def name(self):
        ranks, transport, dtype = (self.config[key] for key in ("ranks", "transport", "dtype"))
        parts = [self.config["technique"], *self._variant()]
        parts += [f"{ranks} ranks"] if ranks > 1 else []
        parts += [transport] if transport not in ("threads", "virtual") else []
        parts += [dtype] if dtype != "f32" else []
        return " ".join(parts)

    def _variant(self):
        """The options that distinguish runs of one technique."""
        if self.config["technique"] == "pipeline":
            recompute = self.config["recompute"]
            return [self.config.get("schedule_file") or self.config["schedule"], *([f"recompute {recompute}"] * (recompute != "none"))]
        if self.config["technique"] != "ps":
            return []
        mode, servers = self.config["mode"], self.config.get("servers", 0)
        if mode == "ssp":
            mode += f" {self.config['staleness']},"
        return [mode, "colocated" if self.config["colocated"] else f"{servers} server{'s' if servers > 1 else ''}"]

    @property
    def is_in_step(self):
        """Whether all ranks take each step together. Otherwise losses are not one rank's, and traffic is the whole run's."""
        return not self.data.get("updates")

    @property
    def is_reference(self):
        return self.config["technique"] == "serial"

    def steps(self, key):
        return [step[key] for step in self.data["steps"]]

    def tokens_per_second(self):
        """For the median step: the first steps also warm up."""
        return statistics.median(self.steps("tokens_per_second"))

    def same_training(self, other):
        """Whether both do the same training on the same text. The entropy shows whether the text has changed."""
        return (self.data["unigram_entropy"] == other.data["unigram_entropy"] and
                all(self.config[key] == other.config[key] for key in SAME_TRAINING))


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


@dataclass(frozen=True)
class PipelinePoint:
    """A schedule at one shape. Missing measurements and closed forms are None."""
    schedule: str
    ranks: int
    micro_batches: int
    virtual_stages: int  # of each rank
    simulated: float  # bubble fraction
    expected: float
    measured: float
    tokens_per_second: float
    in_flight: list  # micro-batches, by rank
    activation_bytes: list  # peaks, by rank

    @property
    def ratio(self):
        """Micro-batches per rank: the more, the smaller the bubble."""
        return self.micro_batches / self.ranks


@dataclass(frozen=True)
class TensorPoint:
    """A layer split over tensor-parallel ranks: times, bytes sent and bytes kept of one rank."""
    variant: str
    recompute: str
    link: str
    ranks: int
    forward_seconds: float
    backward_seconds: float
    compute_seconds: float  # of forward and backward; the rest of the time is exposed communication
    exposed_seconds: float
    forward_bytes: int
    expected_forward_bytes: int
    backward_bytes: int
    expected_backward_bytes: int
    activation_bytes: int
    expected_activation_bytes: int
    megatron_activation_bytes: float

    @property
    def seconds(self):
        return self.forward_seconds + self.backward_seconds

    @property
    def exposed(self):
        """The share of the time spent waiting for communication."""
        return self.exposed_seconds / self.seconds


@dataclass(frozen=True)
class ShardedPoint:
    """A strategy of data parallelism: bytes of rank 0, and the time of a step, None if it was only counted."""
    strategy: str
    link: str
    ranks: int
    sent: dict  # by label, in a step
    expected_sent: dict
    peak: dict  # by use, and "total"
    kept: dict  # by use, between steps
    paper_bytes: float  # the kept bytes by ZeRO's formulas; 0 if they do not apply
    step_seconds: float
    link_speed: float  # bytes per second; None if it is infinite or unknown
    whole_blocks: float  # gathered at peak; None if parameters are not sharded


@dataclass(frozen=True)
class Crossover:
    """The speed of links at which two strategies take the same time."""
    strategy: str
    reference: str
    ranks: int
    bytes_per_s: float
    is_faster_above: bool


@dataclass(frozen=True)
class ContextPoint:
    """A way in which ranks share sequences: figures of a step. Of one rank, pairs are empty and nothing is exchanged."""
    method: str
    link: str
    ranks: int
    heads: int
    kv_heads: int
    length: int
    step_seconds: float
    exposed_seconds: float  # the part spent waiting; the ranks' mean
    exchanged_bytes: int  # sent by the busiest rank to share sequences
    expected_exchanged_bytes: int
    pairs: list  # by rank
    expected_pairs: list
    peak: dict  # bytes by use, of the rank with the most
    expected_peak: dict  # only exact closed forms
    scores_bytes: float  # one rank: what the plain form of attention would keep in addition; else None
    link_speed: float  # bytes per second; None if it is infinite

    @property
    def growing_bytes(self):
        """The memory that grows with the sequence: activations and messages."""
        return self.peak["activations"] + self.peak["communication"]

    @property
    def expected_growing_bytes(self):
        """None without exact closed forms."""
        parts = [self.expected_peak.get(use) for use in ("activations", "communication")]
        return None if None in parts else sum(parts)


@dataclass(frozen=True)
class ContextLimit:
    """How many times as long contiguous tokens take as zig-zag ones on the same ring."""
    ranks: int
    heads: int
    kv_heads: int
    length: int
    link: str
    measured: float  # if only attention takes time
    expected: float  # by the closed forms of the pairs
    limit: float  # the limit for long sequences: (2c-1)/c
    of_step: float


@dataclass(frozen=True)
class ContextCrossover:
    """Where Ulysses and a zig-zag ring send as many bytes, or take as long."""
    quantity: str
    over: str  # ranks, length, or link: its bytes per second
    at: float
    ulysses_is_less_above: bool
    ranks: int
    heads: int
    kv_heads: int
    length: int
    link: str


@dataclass(frozen=True)
class ContextMask:
    """The owners of the positions of a short sequence, and each rank's pairs of queries and keys."""
    layout: str
    ranks: int
    owners: list
    pairs: list


@dataclass(frozen=True)
class ContextError:
    """The relative error of attention in bf16 on a ring."""
    accumulation: str
    ranks: int
    output_error: float
    gradient_error: float


@dataclass(frozen=True)
class Factoring:
    """Ranks arranged along the axes of a mesh: figures of a step, means over the ranks but for the step and the memory."""
    tp: int
    cp: int
    pp: int
    dp: int
    micro_batches: int
    step_seconds: float
    compute_seconds: float
    bubble_seconds: float
    exposed: dict  # seconds by axis
    peak: dict  # bytes by use, of the rank with the most

    @property
    def lengths(self):
        return self.tp, self.cp, self.pp, self.dp

    @property
    def bytes(self):
        return self.peak["total"]


@dataclass(frozen=True)
class BenchRun:
    path: pathlib.Path
    data: dict

    @property
    def memory_bandwidth(self):
        """Bytes per second that all ranks read and write when they copy at the same time, measured in the same run."""
        return float(self.data["context"]["lockstep.memory_bandwidth_bytes_per_s"])

    @property
    def clock(self):
        return self.data["context"]["lockstep.clock"]

    @property
    def link(self):
        """The cost of messages in the closed forms."""
        return self.data["context"]["lockstep.link"]

    def points(self):
        for entry in self.data["benchmarks"]:
            # Skips entries of the model, and averages and deviations over repetitions.
            if "busbw_gb_per_s" not in entry or entry["run_type"] != "iteration":
                continue
            operation, algorithm, transport, *more = entry["name"].split("/")
            variant = " ".join(part.split(":", 1)[1] for part in more if part.startswith(("type:", "redop:", "skew:")))
            yield BenchPoint(operation, algorithm, transport, int(entry["ranks"]), int(entry["bytes"]),
                             bool(entry["in_place"]), entry, variant)

    def pipeline_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("pipeline/") and entry["run_type"] == "iteration":
                yield _pipeline_point(entry)

    @property
    def layer(self):
        return self.data["context"]["lockstep.layer"]

    @property
    def roofline(self):
        """The rates of a rank's arithmetic and memory in the simulation."""
        return self.data["context"]["lockstep.roofline"]

    def tensor_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("tp/") and entry["run_type"] == "iteration":
                self.layer + self.roofline  # required: raises KeyError
                yield _tensor_point(entry)

    @property
    def model(self):
        """The model, its type and the sequences of a rank."""
        return self.data["context"]["lockstep.model"]

    def sharded_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("sharded/") and entry["run_type"] == "iteration":
                self.model + self.clock  # required: raises KeyError
                yield _sharded_point(entry)

    def crossovers(self):
        return [_from_entry(Crossover, entry) for entry in self.data.get("crossovers", [])]

    def context_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("cp/") and entry["run_type"] == "iteration":
                self.model + self.clock  # required: raises KeyError
                yield _context_point(entry)

    def factorings(self):
        """The fastest first."""
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("3d/") and entry["run_type"] == "iteration":
                self.model + self.roofline  # required: raises KeyError
                yield _factoring(entry)

    def refused_factorings(self):
        """{(tp, cp, pp, dp): why there is no such plan}"""
        return {(*(int(entry[axis]) for axis in AXES),): entry["reason"] for entry in self.data.get("refused", [])}

    @property
    def fastest_lengths(self):
        """(tp, cp, pp, dp) of the fastest factoring within the memory limit; None without one."""
        return (*(self.data["fastest"][axis] for axis in AXES),) if "fastest" in self.data else None

    def context_limits(self):
        return [_from_entry(ContextLimit, entry) for entry in self.data.get("context_limits", [])]

    def context_crossovers(self):
        return [_from_entry(ContextCrossover, entry) for entry in self.data.get("context_crossovers", [])]

    def context_masks(self):
        masks = [_from_entry(ContextMask, entry) for entry in self.data.get("context_masks", [])]
        if any(len(mask.pairs) != mask.ranks or set(mask.owners) != set(range(mask.ranks)) for mask in masks):
            raise ValueError("a mask without all of its ranks")
        return masks

    def context_errors(self):
        return [ContextError(entry["accumulation"], int(entry["ranks"]), entry["output_error"], entry["gradient_error"])
                for entry in self.data["benchmarks"]
                if entry["name"].startswith("cp_error/") and entry["run_type"] == "iteration"]


def _from_entry(kind, entry):
    return kind(**{field.name: entry[field.name] for field in fields(kind)})


def _factoring(entry):
    found = Factoring(*(int(entry[key]) for key in (*AXES, "micro_batches")),
                      *(entry[key] for key in ("step_seconds", "compute_seconds", "bubble_seconds", "exposed_by_axis", "peak_bytes")))
    if min(*found.lengths, found.micro_batches) < 1 or found.step_seconds <= 0 or found.bytes <= 0:
        raise ValueError(f"{entry['name']}: out of range")
    found.compute_seconds + sum(found.exposed[axis] for axis in AXES)  # numbers
    return found


def _context_point(entry):
    point = ContextPoint(
        *(entry[key] for key in ("method", "link")), *(int(entry[key]) for key in ("ranks", "heads", "kv_heads", "length")),
        *(entry[key] for key in ("step_seconds", "exposed_seconds", "exchanged_bytes", "expected_exchanged_bytes", "pairs",
                                 "expected_pairs", "peak_bytes", "expected_peak_bytes")),
        *(entry.get(key) for key in ("scores_bytes", "link_bytes_per_s")))
    if min(point.ranks, point.heads, point.kv_heads, point.length) < 1 or point.step_seconds <= 0 or point.link_speed == 0:
        raise ValueError(f"{entry['name']}: out of range")
    if len(point.pairs) != len(point.expected_pairs) or (point.pairs and len(point.pairs) != point.ranks):
        raise ValueError(f"{entry['name']}: not a number of pairs for each of {point.ranks} ranks")
    if point.growing_bytes <= 0:
        raise ValueError(f"{entry['name']}: no memory")
    return point


def _tensor_point(entry):
    words = {key: entry[key] for key in ("variant", "recompute", "link")}
    numbers = {field.name: float(entry[field.name]) for field in fields(TensorPoint) if field.type is not str}
    if not all(isinstance(word, str) for word in words.values()):
        raise ValueError(f"{entry['name']}: no words: {words}")
    wrong = [name for name, number in numbers.items() if not math.isfinite(number) or number < (name == "ranks")]
    if wrong:
        raise ValueError(f"{entry['name']}: out of range: {', '.join(wrong)}")
    point = TensorPoint(**words, **{field.name: field.type(numbers[field.name]) for field in fields(TensorPoint)
                                    if field.name in numbers})
    if point.seconds <= 0:
        raise ValueError(f"{entry['name']}: no time")
    return point


def _sharded_point(entry):
    point = ShardedPoint(
        entry["strategy"], entry["link"], int(entry["ranks"]), entry["sent_bytes"], entry["expected_sent_bytes"],
        entry["peak_bytes"], {use: entry["kept_bytes"][use] for use in ("parameters", "gradients", "optimizer")},
        float(entry["paper_bytes"]), *(entry.get(key) for key in ("step_seconds", "link_bytes_per_s", "whole_blocks")))
    if point.ranks < 1 or any(number is not None and number <= 0 for number in (point.step_seconds, point.link_speed)):
        raise ValueError(f"{entry['name']}: out of range")
    if any(point.peak[use] < kept for use, kept in point.kept.items()) or point.peak["total"] <= 0:
        raise ValueError(f"{entry['name']}: keeps more than its peak")
    return point


def _pipeline_point(entry):
    numbers = {key: float(entry[key]) if key in entry else None
               for key in ("expected_fraction", "bubble_fraction", "tokens_per_second")}
    point = PipelinePoint(
        entry["name"].split("/")[1], int(entry["ranks"]), int(entry["micro_batches"]), int(entry["chunks"]),
        float(entry["simulated_fraction"]), numbers["expected_fraction"], numbers["bubble_fraction"],
        numbers["tokens_per_second"], [int(count) for count in entry["in_flight"]],
        [int(count) for count in entry["peak_activation_bytes"]] if "peak_activation_bytes" in entry else None)
    if min(point.ranks, point.micro_batches, point.virtual_stages) < 1:
        raise ValueError(f"{entry['name']}: a shape below 1")
    if any(len(counts) != point.ranks for counts in (point.in_flight, point.activation_bytes or point.in_flight)):
        raise ValueError(f"{entry['name']}: not a number for each of {point.ranks} ranks")
    return point


@dataclass(frozen=True)
class ScheduleRun:
    path: pathlib.Path
    data: dict

    @property
    def name(self):
        return self.data["name"]

    @property
    def ranks(self):
        return self.data["config"]["ranks"]

    @property
    def stages(self):
        return self.data["config"]["stages"]

    @property
    def virtual_stages(self):
        """Virtual stages of each rank."""
        return self.stages // self.ranks

    @property
    def micro_batches(self):
        return self.data["config"]["micro_batches"]

    @property
    def makespan(self):
        return self.data["makespan"]

    @property
    def bubble(self):
        """The share of all ranks' time in which they are idle."""
        return self.data["bubble"]["fraction"]

    @property
    def overhead(self):
        """Idle time over busy time."""
        return self.data["bubble"]["overhead"]

    def check(self):
        """Raises KeyError or TypeError if something is missing, ValueError if it is out of range."""
        if not isinstance(self.name, str) or len(self.data["ranks"]) != self.ranks or self.ranks < 1:
            raise ValueError("no row for each rank")
        # These must be numbers.
        self.virtual_stages, self.micro_batches + 0, self.bubble + 0, self.overhead + 0
        for rank in self.data["ranks"]:
            rank["in_flight"] + rank["unfinished"]
            for action in rank["actions"]:
                self._check_action(action)
            if rank["actions"] and rank["actions"][-1]["with_next"]:
                raise ValueError("the last action claims to share a block with a next one")

    def _check_action(self, action):
        is_collective = action["pass"] in ("UNSHARD", "RESHARD", "REDUCE_GRAD")
        known = (is_collective or action["pass"] in ("F", "B", "I", "W")) and isinstance(action["with_next"], bool)
        has_place = 0 <= action["stage"] < self.stages and (is_collective or 0 <= action["micro_batch"] < self.micro_batches)
        if not known or not has_place or (is_collective and action["with_next"]):
            raise ValueError(f"no action of this schedule: {action}")
        if not 0 <= action["begin"] <= action["end"] <= self.makespan:
            raise ValueError(f"not within the makespan: {action}")


@dataclass(frozen=True)
class ContributionRun:
    """Which ranks' data each rank holds in a collective, message by message."""
    path: pathlib.Path
    data: dict

    @property
    def name(self):
        return f"{self.data['operation']}/{self.data['algorithm']} on {self.ranks} ranks"

    @property
    def ranks(self):
        return self.data["config"]["ranks"]

    @property
    def elements(self):
        return self.data["config"]["elements"]

    @property
    def held(self):
        return [rank["held"] for rank in self.data["ranks"]]

    @property
    def wrong(self):
        return self.data["wrong"]

    def check(self):
        """Raises ValueError if the lists do not have the lengths that the file names."""
        if self.ranks < 1 or self.elements < 1 or len(self.held) != self.ranks:
            raise ValueError("no list for each rank")
        for held in (held for records in self.held for held in records):
            if len(held["times"]) != self.elements or any(len(times) != self.ranks for times in held["times"]):
                raise ValueError("not a number for each element and rank")
            if held["first"] + held["count"] > self.elements:
                raise ValueError("a message beyond the elements")
        for one in self.wrong:
            if max(one["rank"], one["source"]) >= self.ranks or one["element"] >= self.elements:
                raise ValueError(f"no element of this run: {one}")


@dataclass(frozen=True)
class Trace:
    path: pathlib.Path
    data: dict

    @property
    def events(self):
        return self.data["traceEvents"]


@dataclass
class Results:
    trainings: list = field(default_factory=list)
    benchmarks: list = field(default_factory=list)
    schedules: list = field(default_factory=list)
    traces: list = field(default_factory=list)
    contributions: list = field(default_factory=list)

    def environments(self):
        for run in self.trainings:
            yield run.data["environment"]
        for run in self.benchmarks:
            yield forms.parse(run.data["context"]["lockstep.environment"])

    def file_names(self):
        """A name for each benchmark's file: its path where two are called the same."""
        stems = [run.path.stem for run in self.benchmarks]
        return [stem if stems.count(stem) == 1 else str(run.path) for stem, run in zip(stems, self.benchmarks)]

    def run_names(self):
        """A name for each training run. Runs with equal names are distinguished by their files."""
        names = [run.name for run in self.trainings]
        return [name if names.count(name) == 1 else f"{name} ({run.path.stem})"
                for name, run in zip(names, self.trainings)]


def read(paths):
    """The results in the files. Raises BadInput."""
    results = Results()
    for path in map(pathlib.Path, paths):
        try:
            if path.exists() and not path.is_file():
                raise BadInput(f"cannot read {path}: it is not a regular file; name a file")
            if path.stat().st_size > forms.MOST_BYTES:
                raise BadInput(f"{path} has more than the {forms.MOST_BYTES} bytes that are read; name another file")
            data = forms.parse(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror}; check the path") from error
        except ValueError as error:
            raise BadInput(f"{path} is not JSON: {error}; write it again") from error
        try:
            _sort_in(results, pathlib.Path(forms.printable(str(path))), data)
        except forms.WrongForm as error:
            raise BadInput(f"{path} is not as Lockstep writes it: {error}; write it again") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise BadInput(f"{path} lacks a field of its kind of file ({error!r}); write it again") from error
    return results


def _sort_in(results, path, data):
    if not isinstance(data, dict):
        raise BadInput(f"{path} is not a result of Lockstep; use a file that --json or --trace wrote")
    context = data.get("context")
    schema = data.get("schema") or (context.get("lockstep.schema") if isinstance(context, dict) else None)
    if schema == "lockstep.train/1":
        forms.check(data, forms.TRAINING)
        run = TrainRun(path, data)
        if not run.steps("loss") or not data["ranks"]:
            raise BadInput(f"{path} holds no step; train at least one")
        run.name, run.data["environment"]["commit"], data["theory"], data["validation"], run.same_training(run)
        results.trainings.append(run)
    elif schema == "lockstep.bench/1":
        forms.check_benchmark(data)
        run = BenchRun(path, data)
        forms.parse(context["lockstep.environment"])
        if not data["benchmarks"] or (list(run.points()) and run.clock == "wall" and run.memory_bandwidth <= 0):
            raise BadInput(f"{path} holds no measurement; run the benchmark again")
        list(run.pipeline_points()), list(run.tensor_points()), list(run.sharded_points()), run.crossovers()
        list(run.context_points()), run.context_limits(), run.context_crossovers(), run.context_masks(), run.context_errors()
        list(run.factorings()), run.refused_factorings(), run.fastest_lengths
        results.benchmarks.append(run)
    elif schema == "lockstep.schedule/1":
        forms.check(data, forms.SCHEDULE)
        run = ScheduleRun(path, data)
        run.check()
        if not any(rank["actions"] for rank in data["ranks"]):
            raise BadInput(f"{path} holds no action; write the schedule again")
        results.schedules.append(run)
    elif schema == "lockstep.contributions/1":
        forms.check(data, forms.CONTRIBUTIONS)
        run = ContributionRun(path, data)
        run.check()
        if not all(run.held):
            raise BadInput(f"{path} lacks what a rank held; write it again")
        results.contributions.append(run)
    elif "traceEvents" in data:
        forms.check_trace(data["traceEvents"])
        results.traces.append(Trace(path, data))
    elif schema:
        raise BadInput(f"{path} has the schema {schema}, unknown to this version of the plots; "
                       "use the version that wrote it")
    else:
        raise BadInput(f"{path} is not a result of Lockstep; use a file that --json or --trace wrote")
