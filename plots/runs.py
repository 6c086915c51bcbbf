"""Training runs, schedules, contributions and histories, as their files hold them."""

import pathlib
import statistics
from dataclasses import dataclass

# Two training runs with the same values of these have the same losses, except for rounding.
SAME_WORK = ("model", "init", "data", "order", "seed", "global_batch", "sequence_length", "steps", "dtype")
SAME_STEPS = ("lr", "warmup_steps", "min_lr", "weight_decay", "grad_clip")
# And with the same options of the optimizer, as far as it has them.
OF_OPTIMIZER = ("optimizer", "beta1", "beta2", "eps", "momentum", "muon_lr", "muon_momentum", "galore_rank", "galore_period",
                "galore_scale", "galore_projection")


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
        if self.config.get("local_steps"):
            fragments = self.config["outer_fragments"]
            return [f"{self.config['local_steps']} local steps", *([f"{fragments} fragments"] * (fragments > 1))]
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
    def equals_one_rank(self):
        """Whether its losses are those of one rank, except for rounding."""
        return self.is_in_step and not self.config.get("local_steps")

    @property
    def is_reference(self):
        return self.config["technique"] == "serial"

    def steps(self, key):
        return [step[key] for step in self.data["steps"]]

    def tokens_per_second(self):
        """For the median step: the first steps also warm up."""
        return statistics.median(self.steps("tokens_per_second"))

    @property
    def optimizer(self):
        """Its name, and what decides how much it keeps: "galore, rank 16"."""
        name = self.config.get("optimizer", "adamw")
        if name == "galore":
            projection = self.config["galore_projection"]
            return f"galore, rank {self.config['galore_rank']}" + (f", {projection}" if projection != "std" else "")
        return "sgd without momentum" if name == "sgd" and self.config["momentum"] == 0 else name

    def same_work(self, other):
        """Whether both train the same model on the same text. The entropy shows whether the text has changed."""
        return (self.data["unigram_entropy"] == other.data["unigram_entropy"] and
                all(self.config[key] == other.config[key] for key in SAME_WORK))

    def same_training(self, other):
        """Whether both also take the same steps."""
        return (self.same_work(other) and all(self.config[key] == other.config[key] for key in SAME_STEPS) and
                all(self.config.get(key) == other.config.get(key) for key in OF_OPTIMIZER))


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
class HistoryRun:
    """The times of many nights, and where they changed."""
    path: pathlib.Path
    data: dict

    @property
    def nights(self):
        return self.data["nights"]

    @property
    def rows(self):
        return self.data["rows"]

    @property
    def period(self):
        return f"{self.nights[0]['label']} to {self.nights[-1]['label']}"

    def label(self, night):
        return self.nights[night]["label"]

    def check(self):
        """Raises ValueError if a night or a row is missing, or a row names a night that is not there."""
        if not self.nights or not self.rows:
            raise ValueError("no night, or no row")
        for row in self.rows:
            named = [point["night"] for point in row["points"]]
            if not named or named != sorted(set(named)) or min(point["us"] for point in row["points"]) <= 0:
                raise ValueError(f"no series of times: {row['name']}")
            named += [change[key] for change in row["changes"] for key in ("night", "previous")]
            if max(named) >= len(self.nights):
                raise ValueError(f"a night that is not there: {row['name']}")
