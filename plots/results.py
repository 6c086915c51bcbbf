"""Reads Lockstep's files: results of training and of benchmarks, schedules and traces. Recognises them by their content."""

import pathlib
from dataclasses import dataclass, field

import forms
from bench_run import BenchRun
from runs import ContributionRun, HistoryRun, ScheduleRun, TrainRun
from search_run import SearchRun


# Options that name a trace among others.
OF_A_TRACE = ("ranks", "schedule", "zero_stage", "replicas", "sharding", "prefetch", "forward_prefetch", "layout", "exchange", "overlap")


def _said(value):
    return {True: "on", False: "off"}.get(value, value)


class BadInput(Exception):
    """A file that a plot cannot use. The text names the fault, the file and the remedy."""


@dataclass(frozen=True)
class Trace:
    path: pathlib.Path
    data: dict

    @property
    def events(self):
        return self.data["traceEvents"]

    @property
    def config(self):
        """The options of the training run; {} of other traces."""
        return self.data.get("otherData", {}).get("config", {})

    def steps(self):
        """{name of a step: (begin of the first rank, end of the last)}, in order."""
        bounds = {}
        for event in self.events:
            if event["ph"] == "X" and event.get("cat") == "step":
                begin, end = bounds.get(event["name"], (event["ts"], event["ts"]))
                bounds[event["name"]] = min(begin, event["ts"]), max(end, event["ts"] + event["dur"])
        return bounds

    def typical_step(self):
        """The step with the median time: one that something disturbed is not shown. Of equal ones the last. None without steps."""
        by_time = sorted(enumerate(self.steps().items()), key=lambda step: (step[1][1][1] - step[1][1][0], -step[0]))
        return by_time[(len(by_time) - 1) // 2][1][0] if by_time else None


@dataclass
class Results:
    trainings: list = field(default_factory=list)
    benchmarks: list = field(default_factory=list)
    schedules: list = field(default_factory=list)
    traces: list = field(default_factory=list)
    contributions: list = field(default_factory=list)
    histories: list = field(default_factory=list)
    searches: list = field(default_factory=list)

    def environments(self):
        for run in self.trainings:
            yield run.data["environment"]
        for run in self.benchmarks:
            yield forms.parse(run.data["context"]["lockstep.environment"])
        for run in self.histories:
            for night in run.nights:
                yield {"host": night["host"], "time": night["time"]}

    def file_names(self):
        """A name for each benchmark's file: its path where two are called the same."""
        stems = [run.path.stem for run in self.benchmarks]
        return [stem if stems.count(stem) == 1 else str(run.path) for stem, run in zip(stems, self.benchmarks)]

    def trace_names(self):
        """A name for each trace: its technique, and the options in which they differ; the file's where it records neither."""
        files = [trace.path.stem.removesuffix(".trace") for trace in self.traces]
        configs = [trace.config for trace in self.traces]
        if not configs or not all(configs):
            return files
        differ = [key for key in configs[0] if key in OF_A_TRACE and len({str(config.get(key)) for config in configs}) > 1]
        names = [", ".join([config["technique"], *(f"{key.replace('_', ' ')} {_said(config[key])}" for key in differ if key in config)])
                 for config in configs]
        return [name if names.count(name) == 1 else f"{name} ({file})" for name, file in zip(names, files)]

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
        run.name, run.optimizer, run.data["environment"]["commit"], data["theory"], data["validation"], run.same_training(run)
        results.trainings.append(run)
    elif schema == "lockstep.bench/1":
        forms.check_benchmark(data)
        run = BenchRun(path, data)
        forms.parse(context["lockstep.environment"])
        if not data["benchmarks"] or (list(run.points()) and run.clock == "wall" and run.memory_bandwidth <= 0):
            raise BadInput(f"{path} holds no measurement; run the benchmark again")
        list(run.pipeline_points()), list(run.tensor_points()), list(run.sharded_points()), run.crossovers()
        list(run.context_points()), run.context_limits(), run.context_crossovers(), run.context_masks(), run.context_errors()
        list(run.moe_points()), run.moe_crossovers(), run.moe_prices(), run.moe_pairs()
        run.links(), run.slow_links(), run.burn_in_rates(), run.check_burn_in()
        list(run.factorings()), run.refused_factorings()
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
    elif schema == "lockstep.history/1":
        forms.check(data, forms.HISTORY)
        run = HistoryRun(path, data)
        run.check()
        results.histories.append(run)
    elif schema == "lockstep.search/1":
        forms.check(data, forms.SEARCH)
        run = SearchRun(path, data)
        run.check()
        results.searches.append(run)
    elif "traceEvents" in data:
        forms.check_trace(data["traceEvents"])
        results.traces.append(Trace(path, data))
    elif schema:
        raise BadInput(f"{path} has the schema {schema}, unknown to this version of the plots; "
                       "use the version that wrote it")
    else:
        raise BadInput(f"{path} is not a result of Lockstep; use a file that --json or --trace wrote")
