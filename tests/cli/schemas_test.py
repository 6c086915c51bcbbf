"""schemas/: every file that the program writes matches its schema, and files with wrong keys or types do not.

python3 schemas_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
except ImportError:  # Debian's package belongs to Debian's Python.
    if sys.executable == "/usr/bin/python3":
        sys.exit("no module jsonschema: apt-get install python3-jsonschema")
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])
try:
    import referencing
except ImportError:  # jsonschema before 4.18 resolves links itself
    referencing = None

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tests"))
from lessons_faults import GOOD  # pylint: disable=wrong-import-position

SCHEMAS = SOURCE / "schemas"
PARTS = json.loads((SCHEMAS / "parts.schema.json").read_text())
UNIT = ("--clock", "unit", "--link", "alpha=1us,beta=1GB/s")
STEPS = ("--steps", "2", "--sequence-length", "16")
# The commands that write files; with `status` if it is not 0. Together they take a few seconds.
COMMANDS = (
    ("bench", "all_reduce", "--ranks", "3", "-b", "1K", "-e", "4K", "-n", "100", "--repetitions", "2", *UNIT, "--json", "all_reduce.json"),
    ("bench", "all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "2", "--tune", "tuning.json", "--json", "wall.json"),
    ("bench", "all_reduce", "--ranks", "4", "-b", "1K", "-e", "1K", "-n", "2", "--split", "mod2", "-M", "1", "--cold", "--communicators",
     "2", "--blocks", "1:2", "-d", "fp8", "--json", "split.json"),
    ("bench", "pairs", "--ranks", "4", *UNIT, "--slow-link", "2:10", "--json", "pairs.json"),
    ("burn-in", "--ranks", "2", "--passes", "1", "--effect", "1000", "--fault", "rank=0,op=0,kind=flip-gradient", "--json", "burn_in.json", 1),
    ("bench", "all_to_all_v", "--ranks", "4", "-b", "1K", "-e", "1K", "--skew", "zipf:1.2", *UNIT, "--json", "all_to_all_v.json"),
    ("bench", "ps", "--workers", "2", "--servers", "1,colocated", "-b", "1K", "-e", "1K", *UNIT, "--json", "ps.json"),
    ("bench", "pipeline", "--simulate", "-p", "2", "-m", "4", "--schedule", "1f1b,zb-h1", "--json", "simulated_pipeline.json"),
    ("bench", "pipeline", "-p", "2", "-m", "4", "--schedule", "1f1b", *STEPS, "--json", "pipeline.json"),
    ("bench", "tp", "--ranks", "1,2", "--link", "nvlink", "--json", "tp.json"),
    ("bench", "sharded", "--simulate", "--ranks", "2", "--json", "simulated_sharded.json"),
    ("bench", "sharded", "--ranks", "3", "--strategy", "ddp", *STEPS, "--json", "sharded.json"),
    ("bench", "cp", "--simulate", "--ranks", "2", "--lengths", "1024", "--heads", "8", "--kv-heads", "8", "--method",
     "ring-contiguous,ring-zig-zag,ulysses", "--json", "cp.json"),
    ("bench", "cp", "--error", "--lengths", "128", "--json", "cp_error.json"),
    ("bench", "3d", "--ranks", "4", "--cp", "1", "--memory-limit", "8M", "--json", "3d.json"),
    ("bench", "3d", "--ranks", "2,4", "--cp", "1", "--pp", "1", "--no-overlap", "--per-block", "--products-only", "--exposed-limit", "1",
     "--link", "alpha=1us,beta=1GB/s", "--json", "3d_block.json"),
    ("bench", "moe", "--ranks", "4", "--tokens", "64", "--skew", "even,zipf:1", "--link", "alpha=1us,beta=25GB/s,node=2,node-alpha=1us,node-beta=100GB/s",
     "--link", "alpha=90us,beta=25GB/s,node=2,node-alpha=1us,node-beta=100GB/s", "--json", "moe.json"),
    ("train", "ddp", "--ranks", "2", "--global-batch", "2", *STEPS, "--local-steps", "2", "--outer-fragments", "2", "--outer-delay", "1",
     "--outer-mix", "0.5", "--json", "local_steps.json"),
    ("train", "ddp", "--ranks", "2", "--global-batch", "2", *STEPS, "--exchange", "onebit", "--exchange-warm-up", "1", "--json", "warm_up.json"),
    ("bench", "exchange", "--method", "none,onebit", "--ranks", "2", "--link", "alpha=10us,beta=125MB/s", "--train", "--steps", "2",
     "--sequence-length", "16", "--global-batch", "2", "--seeds", "2", "--json", "exchange.json"),
    ("bench", "moe", "--ranks", "2", "--per-token", "2", "--tokens", "64", "--width", "64", "--pairs", "--json", "moe_pairs.json"),
    ("bench", "model", "--threads", "1", *STEPS, "--json", "model.json"),
    ("bench", "attention", "--lengths", "64", "--threads", "1", "--json", "attention.json"),
    ("train", "ddp", "--ranks", "4", "--global-batch", "4", *STEPS, "--clock", "unit", "--compute-time", "0.1", "--slow-rank", "2:3",
     "--json", "ddp.json"),
    ("train", "serial", "--global-batch", "2", *STEPS, "--data", "text.txt", "--validation-fraction", "0.1", "--documents",
     "--sample", "3", "--json", "serial.json"),
    ("train", "pipeline", "--ranks", "2", "--global-batch", "4", "--micro-batches", "4", *STEPS, "--checkpoint", "saved", "--json", "saved.json"),
    ("train", "pipeline", "--ranks", "2", "--global-batch", "4", "--micro-batches", "4", "--steps", "3", "--sequence-length", "16",
     "--resume", "saved", "--json", "resumed.json"),
    ("train", "ddp", "--ranks", "2", "--global-batch", "2", *STEPS, "--model", "nano-moe", "--router-bias-update-rate", "0.01",
     "--checkpoint", "balanced", "--json", "experts.json"),
    ("train", "fsdp", "--ranks", "2", "--global-batch", "2", *STEPS, "--lora", "2", "--lora-alpha", "3", "--lora-targets", "c_attn,c_fc", "--rslora",
     "--lora-plus", "2", "--checkpoint", "adapted", "--json", "adapters.json"),
    ("train", "zero", "--ranks", "2", "--global-batch", "2", *STEPS, "--optimizer", "galore", "--checkpoint", "projected", "--json", "projected.json"),
    ("train", "ps", "--ranks", "3", "--global-batch", "4", *STEPS, "--mode", "asp", "--json", "asp.json"),
    ("train", "ring-attention", "--ranks", "2", "--global-batch", "2", *STEPS, "--layout", "balanced", "--documents", "--json", "ring.json"),
    ("train", "ddp", "--ranks", "3", "--global-batch", "3", *STEPS, "--timeout", "1", "--fault", "rank=1,op=2,kind=hang", 4),
    ("train", "fsdp", "--ranks", "8", "--global-batch", "8", "--device", "none", "--json", "dry_run.json"),
    ("plan", "3d", "--ranks", "16", "--tp", "2", "--cp", "2", "--pp", "2", "--global-batch", "8", "--micro-batches", "4", "--check-tags",
     "--json", "plan.json"),
    ("plan", "moe", "--ranks", "4", "--token-dispatcher-type", "two_level", "--expert-choices", "zipf:1.2", "--json", "moe_plan.json"),
    ("calibrate", "--ranks", "2", "--global-batch", "2", "--sequence-length", "8", "--most-bytes", "4K", "--json", "machine.json"),
    ("plan", "ddp", "--ranks", "2", "--global-batch", "2", "--sequence-length", "8", "--profile", "machine.json", "--json", "seconds.json"),
    ("plan", "--batch", "cases.json", "--json", "predictions.json"),
    ("plan", "search", "gpt2", "--gpus", "8", "--replay", "3", "--why-not", "tp=3", "--json", "search.json"),
    ("plan", "validate", "zero3_sc21.json", "--json", "validation.json"),
    ("mesh", "--tp", "2", "--pp", "2", "--ranks-per-node", "2", "--json", "mesh.json"),
    ("doctor", "--json", "doctor.json"),
    ("bench", "barrier", "--ranks", "2", *UNIT, "--archive", "barrier.tar.zst"),
    ("schedule", "zb-v", "-p", "2", "-m", "4", "--no-chart", "--json", "schedule.json"),
    ("contributions", "all_reduce", "--ranks", "4", "--mistake", "rank=1,message=1,kind=drop", "--json", "contributions.json", 1),
    ("compare", "all_reduce.json", "slower.json", "--json", "compared.json", 3),
    ("history", "trend", *(f"night_{night:02}.json" for night in range(12)), "--json", "trend.json", 3),
    ("fuzz", "--plans", "3", "--seed", "31", "--ranks", "2", "--no-shrink", "--fault", "rank=0,op=1,kind=nan", 1),
    ("lab", "export", "1", "my_lab"),
    ("lab", "export", "--course", "course"),
    ("grade", "1", "--submission", "my_lab", "--hints", "1", "--json", "grade.json", 1),
    ("lesson", "08_small", "--answers", "answers.json", "--progress", "progress.json"),
    ("lesson", "2", "--tables"),
)


@functools.cache
def schema_of(name):
    """Of a name as files carry it: lockstep.bench/1."""
    return json.loads((SCHEMAS / (name.removeprefix("lockstep.").replace("/", "-") + ".schema.json")).read_text())


def validator(schema):
    if referencing is None:
        links = {"resolver": jsonschema.RefResolver("", schema, store={"parts.schema.json": PARTS})}
    else:
        links = {"registry": referencing.Registry().with_resource("parts.schema.json", referencing.Resource.from_contents(PARTS))}
    return jsonschema.Draft202012Validator(schema, **links)


def name_in(file):
    return file.get("schema") or file["context"]["lockstep.schema"]


@functools.cache
def validator_of(name):
    return validator(schema_of(name))


def objects_in(node, path=()):
    """The keys and places that lead to each object of a file."""
    if isinstance(node, dict):
        yield path
        for key, value in node.items():
            yield from objects_in(value, (*path, key))
    elif isinstance(node, list):
        for place, value in enumerate(node):
            yield from objects_in(value, (*path, place))


def shortened(node):
    """The file with the first and the last object of each list."""
    if isinstance(node, dict):
        return {key: shortened(value) for key, value in node.items()}
    if isinstance(node, list) and len(node) > 2 and isinstance(node[0], dict):
        node = [node[0], node[-1]]
    return [shortened(value) for value in node] if isinstance(node, list) else node


def changed(file, path, change):
    file = copy.deepcopy(file)
    node = file
    for step in path:
        node = node[step]
    change(node)
    return file


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name).resolve()
        (cls.path / "08_small").mkdir()
        (cls.path / "08_small" / "lesson.md").write_text(GOOD)
        (cls.path / "text.txt").write_text("A text to learn from, in documents.\n\n" * 100)
        (cls.path / "answers.json").write_text('{"makespan": 40, "1": "b", "2": 4, "3": "b"}')
        cls.copy_planner_data()
        for command in COMMANDS:
            *words, status = command if isinstance(command[-1], int) else (*command, 0)
            if words[0] in ("compare", "history"):
                cls.write_times()
            done = subprocess.run([PROGRAM, *words], cwd=cls.path, capture_output=True, text=True, timeout=300)
            assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            if "--tables" in words:
                (cls.path / "tables.json").write_text(done.stdout)
        topology = subprocess.run("zstd -dc barrier.tar.zst | tar --extract --to-stdout topology.json", shell=True, cwd=cls.path, capture_output=True, check=True)
        (cls.path / "topology.json").write_bytes(topology.stdout)
        cls.files = {}
        for path in cls.path.rglob("*.json"):
            file = json.loads(path.read_text())
            if path.parent.name not in ("my_lab",) and path.name != "answers.json" and not re.match("slower|night", path.name):
                cls.files[path.relative_to(cls.path).as_posix()] = file

    @classmethod
    def copy_planner_data(cls):
        """Its sheets, profiles and tables, and some cases of which one is refused."""
        for path in (SOURCE / "parallel" / "planner").rglob("*.json"):
            (cls.path / path.name).write_text(path.read_text())
        rows = json.loads((cls.path / "zero3_sc21.json").read_text())["rows"]
        cases = [rows[0], {**rows[1], "name": "refused", "gpus": 7}]
        (cls.path / "cases.json").write_text(json.dumps({"schema": "lockstep.cases/1", "cases": cases}))

    @classmethod
    def write_times(cls):
        """A result that is slower, and nights of which the last ones are."""
        for night, factor in {"slower": 2, **{f"night_{night:02}": 1 + night // 6 for night in range(12)}}.items():
            file = json.loads((cls.path / "all_reduce.json").read_text())
            environment = json.loads(file["context"]["lockstep.environment"])
            if night != "slower":
                environment.update(time=f"2026-10-{1 + int(night[-2:]):02}T02:00:00Z", libc=str(factor))
            file["context"]["lockstep.environment"] = json.dumps(environment)
            for entry in file["benchmarks"]:
                if "samples_us" in entry:
                    entry["samples_us"] = [sample * factor for sample in entry["samples_us"]]
            (cls.path / f"{night}.json").write_text(json.dumps(file))

    def refusals(self, file):
        return [f"{list(error.absolute_path)}: {error.message[:300]}" for error in validator_of(name_in(file)).iter_errors(file)]

    def test_every_written_file_matches_its_schema(self):
        validated = {}
        for name, file in self.files.items():
            with self.subTest(name=name):
                self.assertEqual(self.refusals(file), [])
                validated.setdefault(name_in(file), []).append(name)
                if "context" in file:
                    environment = json.loads(file["context"]["lockstep.environment"])
                    of_environment = {"$ref": "parts.schema.json#/$defs/environment"}
                    self.assertEqual(list(validator(of_environment).iter_errors(environment)), [])
        written = {f"lockstep.{path.name.removesuffix('.schema.json').replace('-1', '/1')}" for path in SCHEMAS.glob("*-1.schema.json")}
        self.assertEqual(set(validated), written, "each schema has a file that is checked, and each file a schema")
        self.assertGreaterEqual(sum(map(len, validated.values())), 30)
        print(f"{sum(map(len, validated.values()))} files of {len(validated)} schemas", file=sys.stderr)

    def test_every_name_in_the_sources_has_a_schema(self):
        names = set()
        for folder in ("bench", "cli", "collectives", "labs", "models", "parallel"):
            for path in (SOURCE / folder).rglob("*.cc"):
                names.update(re.findall(r'"(lockstep\.[a-z-]+/\d+)"', path.read_text()))
        self.assertGreater(len(names), 10)
        for name in names:
            self.assertTrue(schema_of(name)["title"], name)

    def test_the_schemas_are_schemas(self):
        for path in SCHEMAS.glob("*.json"):
            jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))

    def smallest_files(self):
        """One of each schema."""
        smallest = {}
        for name, file in sorted(self.files.items(), key=lambda item: len(json.dumps(item[1]))):
            if name == "course/21_hybrid_engine/plan.json":  # claims nothing
                continue
            smallest.setdefault(name_in(file), (name, shortened(file)))
        for name, file in smallest.values():
            self.assertEqual(self.refusals(file), [], name)
        return smallest.values()

    def test_an_unknown_key_is_refused_everywhere(self):
        for name, file in self.smallest_files():
            for path in objects_in(file):
                if path[:2] == ("context", "caches"):  # Google Benchmark's own
                    continue
                with self.subTest(name=name, path=path):
                    wrong = changed(file, path, lambda node: node.update({"lockstep.undocumented": {"x": [None]}}))
                    self.assertFalse(validator_of(name_in(file)).is_valid(wrong))

    def test_a_missing_key_and_a_wrong_type_are_refused(self):
        for name, file in self.smallest_files():
            for key in schema_of(name_in(file))["required"]:
                with self.subTest(name=name, key=key):
                    for change in (lambda node: node.pop(key), lambda node: node.update({key: True})):
                        self.assertFalse(validator_of(name_in(file)).is_valid(changed(file, (), change)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
