"""Points of the benchmarks of techniques: pipelines, tensor, sharded, context and mesh."""

import math
from dataclasses import dataclass, fields

AXES = ("tp", "cp", "pp", "dp")


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


def from_entry(kind, entry):
    return kind(**{field.name: entry[field.name] for field in fields(kind)})


def factoring(entry):
    found = Factoring(*(int(entry[key]) for key in (*AXES, "micro_batches")),
                      *(entry[key] for key in ("step_seconds", "compute_seconds", "bubble_seconds", "exposed_by_axis", "peak_bytes")))
    if min(*found.lengths, found.micro_batches) < 1 or found.step_seconds <= 0 or found.bytes <= 0:
        raise ValueError(f"{entry['name']}: out of range")
    found.compute_seconds + sum(found.exposed[axis] for axis in AXES)  # numbers
    return found


def context_point(entry):
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


def tensor_point(entry):
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


def sharded_point(entry):
    point = ShardedPoint(
        entry["strategy"], entry["link"], int(entry["ranks"]), entry["sent_bytes"], entry["expected_sent_bytes"],
        entry["peak_bytes"], {use: entry["kept_bytes"][use] for use in ("parameters", "gradients", "optimizer")},
        float(entry["paper_bytes"]), *(entry.get(key) for key in ("step_seconds", "link_bytes_per_s", "whole_blocks")))
    if point.ranks < 1 or any(number is not None and number <= 0 for number in (point.step_seconds, point.link_speed)):
        raise ValueError(f"{entry['name']}: out of range")
    if any(point.peak[use] < kept for use, kept in point.kept.items()) or point.peak["total"] <= 0:
        raise ValueError(f"{entry['name']}: keeps more than its peak")
    return point


def pipeline_point(entry):
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
