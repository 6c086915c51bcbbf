"""A search of lockstep plan search, as its file holds it."""

import pathlib
from dataclasses import dataclass

from forms import SEARCH_MEMORY

GIGABYTE = 1e9
ROUNDING = 1e-6  # of sums, relative


def seconds_text(seconds):
    return f"{seconds:.4g} s"


def gigabytes_text(count):
    return f"{count / GIGABYTE:.1f} GB"


@dataclass(frozen=True)
class FoundPlan:
    """A plan that was replayed."""
    data: dict

    @property
    def name(self):
        return self.data["name"]

    @property
    def seconds(self):
        return self.data["seconds"]

    @property
    def fits(self):
        return self.data["fits"]

    @property
    def memory(self):
        """Bytes of the rank that holds the most."""
        return max(stage["total"] for stage in self.data["memory"])

    @property
    def waterfall(self):
        """[(part, seconds)] of the parts that are not 0, from the products at the peak on. An imbalance may be below 0."""
        return [(name, seconds) for name, seconds in self.data["waterfall"].items() if seconds != 0]

    def part(self, name):
        """The part of the step that this takes."""
        return self.data["parts"].get(name, 0) / self.seconds

    def length(self, axis):
        return self.data["plan"][axis]


@dataclass(frozen=True)
class SearchRun:
    path: pathlib.Path
    data: dict

    @property
    def plans(self):
        """The fastest that fit first."""
        return [FoundPlan(plan) for plan in self.data["plans"]]

    @property
    def best(self):
        return self.plans[0]

    @property
    def by_tp_pp(self):
        return self.data["by_tp_pp"]

    @property
    def limit(self):
        return self.data["memory_limit"]

    @property
    def where(self):
        count = self.data["gpus"]
        return f"{count} GPU{'s' * (count != 1)} of {self.data['cluster']}"

    @property
    def model(self):
        """The file does not name the model."""
        keys = self.data["model"]
        layers, width = keys.get("n_layer", keys.get("num_hidden_layers")), keys.get("n_embd", keys.get("hidden_size"))
        return f"{layers} layers of width {width}"

    def check(self):
        """Raises ValueError if numbers do not belong together."""
        if not self.data["plans"] or not self.by_tp_pp or self.limit <= 0:
            raise ValueError("no plan, or no memory")
        for plan in self.plans:
            if plan.seconds <= 0 or len(plan.data["interval"]) != 2 or not plan.data["memory"] or plan.memory <= 0:
                raise ValueError(f"no step: {plan.name}")
            for parts in (plan.data["waterfall"], plan.data["parts"]):
                if abs(sum(parts.values()) - plan.seconds) > ROUNDING * plan.seconds:
                    raise ValueError(f"parts that do not sum to the step: {plan.name}")
            for stage in plan.data["memory"]:
                if abs(sum(stage[name] for name in SEARCH_MEMORY) - stage["total"]) > ROUNDING * stage["total"]:
                    raise ValueError(f"memory that does not sum to the total: {plan.name}")
        lengths = [(cell["tp"], cell["pp"]) for cell in self.by_tp_pp]
        if len(set(lengths)) < len(lengths) or min(min(cell["seconds"], cell["memory"]) for cell in self.by_tp_pp) <= 0:
            raise ValueError("two plans of the same tp and pp, or one without time or memory")
