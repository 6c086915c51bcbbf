"""Points of the benchmark of dispatchers: the ways in which rows travel between ranks that divide experts."""

from dataclasses import dataclass

from technique_points import from_entry


@dataclass(frozen=True)
class MoePoint:
    """A way at one setting: times of the slowest rank, bytes of the busiest."""
    method: str
    skew: str
    link: str
    ranks: int
    per_token: int
    tokens: int
    latency_seconds: float  # between nodes
    counts_seconds: float
    dispatch_seconds: float  # rows to the experts
    combine_seconds: float  # and back
    expected_dispatch_seconds: float  # None where the closed form is not exact
    dispatch_bytes: int
    mean_dispatch_bytes: int
    dispatch_messages: int
    dropped_share: float

    @property
    def setting(self):
        return self.skew, self.link, self.ranks, self.per_token, self.tokens


@dataclass(frozen=True)
class MoeCrossover:
    """Where a way takes as long as the direct one; `at` in the units of `over`."""
    method: str
    skew: str
    link: str
    ranks: int
    per_token: int
    tokens: int
    over: str
    at: float
    is_faster_above: bool
    expected: float  # by the closed form; None without one


@dataclass(frozen=True)
class MoePrice:
    """How many times as long rows take as even ones."""
    method: str
    skew: str
    link: str
    ranks: int
    per_token: int
    tokens: int
    times: float


@dataclass(frozen=True)
class MoePairStep:
    """A simulated step of training."""
    seconds: float
    tokens_per_second: float
    exposed_seconds: float  # waiting for experts' rows, the mean over ranks
    peak_bytes: int  # of the rank with the most


@dataclass(frozen=True)
class MoePair:
    """Steps without --overlap-pairs, and with it: the passes of a pair take turns."""
    skew: str
    link: str
    ranks: int
    per_token: int
    tokens: int
    bytes_per_second: float  # between nodes
    one_by_one: MoePairStep
    in_turns: MoePairStep

    @property
    def setting(self):
        return self.skew, self.ranks, self.per_token, self.tokens


def moe_pair(entry):
    steps = {name: from_entry(MoePairStep, entry[name]) for name in ("one_by_one", "in_turns")}
    return from_entry(MoePair, {**entry, **steps})


def moe_point(entry):
    return from_entry(MoePoint, {"expected_dispatch_seconds": None, **entry})
