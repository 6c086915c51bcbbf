"""A run of lockstep bench, as its file holds it."""

import pathlib
import re
from dataclasses import dataclass

from collective_points import BenchPoint
from exchange_points import exchange_crossover, exchange_point, exchange_training
from moe_points import MoeCrossover, MoePrice, moe_pair, moe_point
from technique_points import (
    AXES, ContextCrossover, ContextError, ContextLimit, ContextMask, Crossover, context_point, factoring, from_entry, pipeline_point,
    sharded_point, tensor_point,
)


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
            varied = "type:", "redop:", "skew:", "blocks:", "communicators:", "split:"
            variant = " ".join(part.split(":", 1)[1] for part in more if part.startswith(varied))
            yield BenchPoint(operation, algorithm, transport, int(entry["ranks"]), int(entry["bytes"]),
                             bool(entry["in_place"]), entry, variant)

    def pipeline_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("pipeline/") and entry["run_type"] == "iteration":
                yield pipeline_point(entry)

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
                yield tensor_point(entry)

    @property
    def model(self):
        """The model, its type and the sequences of a rank."""
        return self.data["context"]["lockstep.model"]

    def sharded_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("sharded/") and entry["run_type"] == "iteration":
                self.model + self.clock  # required: raises KeyError
                yield sharded_point(entry)

    def crossovers(self):
        return [from_entry(Crossover, entry) for entry in self.data.get("crossovers", [])]

    def context_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("cp/") and entry["run_type"] == "iteration":
                self.model + self.clock  # required: raises KeyError
                yield context_point(entry)

    def factorings(self):
        """The fastest first."""
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("3d/") and entry["run_type"] == "iteration":
                self.model + self.roofline  # required: raises KeyError
                yield factoring(entry)

    def refused_factorings(self):
        """{(tp, cp, pp, dp): why there is no such plan}"""
        return {(*(int(entry[axis]) for axis in AXES),): entry["reason"] for entry in self.data.get("refused", [])}

    def context_limits(self):
        return [from_entry(ContextLimit, entry) for entry in self.data.get("context_limits", [])]

    def context_crossovers(self):
        return [from_entry(ContextCrossover, entry) for entry in self.data.get("context_crossovers", [])]

    def context_masks(self):
        masks = [from_entry(ContextMask, entry) for entry in self.data.get("context_masks", [])]
        if any(len(mask.pairs) != mask.ranks or set(mask.owners) != set(range(mask.ranks)) for mask in masks):
            raise ValueError("a mask without all of its ranks")
        return masks

    def moe_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("moe/") and entry["run_type"] == "iteration":
                self.model  # required: raises KeyError
                yield moe_point(entry)

    def moe_crossovers(self):
        return [from_entry(MoeCrossover, {"expected": None, **entry}) for entry in self.data.get("moe_crossovers", [])]

    def moe_prices(self):
        return [from_entry(MoePrice, entry) for entry in self.data.get("moe_prices", [])]

    def moe_pairs(self):
        return [moe_pair(entry) for entry in self.data.get("moe_pairs", [])]

    def exchange_points(self):
        for entry in self.data["benchmarks"]:
            if entry["name"].startswith("exchange/") and entry["run_type"] == "iteration":
                self.model  # required: raises KeyError
                yield exchange_point(entry)

    def exchange_crossovers(self):
        return [exchange_crossover(entry) for entry in self.data.get("exchange_crossovers", [])]

    def exchange_trainings(self):
        return [exchange_training(entry) for entry in self.data.get("exchange_trainings", [])]

    def links(self):
        """The links between pairs of ranks, by the places of these in `ranks`."""
        links = self.data.get("links", [])
        if links and [rank["rank"] for rank in self.data["ranks"]] != list(range(len(self.data["ranks"]))):
            raise ValueError("ranks out of order")
        self._check_ends(links)
        return links

    def slow_links(self):
        slow = self.data.get("slow_links", [])
        self._check_ends(slow)
        return slow

    def burn_in_rates(self):
        """{rank: {"product": GFLOP/s, "copy": GB/s}} of a burn-in; {} of other benchmarks."""
        rates = {}
        for entry in self.data["benchmarks"]:
            found = re.match(r"burn_in/(product|copy)/.*/rank:(\d+)(/|$)", entry["name"])
            if found and entry["run_type"] == "iteration":
                rate = entry["gflop_per_s" if found[1] == "product" else "gb_per_s"]
                rates.setdefault(int(found[2]), {})[found[1]] = float(rate)
        if any(len(own) < 2 for own in rates.values()) or (rates and not rates.keys() <= self.hosts_of_ranks().keys()):
            raise ValueError("a rank of the burn-in without a host or a measurement")
        return rates

    def check_burn_in(self):
        keys = ("verdict", "passes", "steps_compared", "hosts", "findings")
        if 0 < sum(key in self.data for key in keys) < len(keys):
            raise ValueError(f"a burn-in without {next(key for key in keys if key not in self.data)}")

    def hosts_of_ranks(self):
        """{rank: its host} of a burn-in."""
        return {rank["rank"]: host for host in self.data["hosts"] for rank in host["ranks"]}

    def _check_ends(self, links):
        if any(max(link["from"], link["to"]) >= len(self.data["ranks"]) for link in links):
            raise ValueError("a link of a rank that is not listed")

    def context_errors(self):
        return [ContextError(entry["accumulation"], int(entry["ranks"]), entry["output_error"], entry["gradient_error"])
                for entry in self.data["benchmarks"]
                if entry["name"].startswith("cp_error/") and entry["run_type"] == "iteration"]
