"""What lockstep bench writes for other programs, read by their readers: CSV, JUnit XML, Prometheus' text format, an archive, ReFrame.

python3 bench_formats_test.py PROGRAM SOURCE_FOLDER
"""

import csv
import datetime
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest
import unittest.mock
import xml.etree.ElementTree

try:
    import junitparser
    import prometheus_client.parser
except ImportError:  # Debian's packages belong to Debian's Python.
    if sys.executable == "/usr/bin/python3":
        sys.exit("no junitparser or prometheus_client: apt-get install python3-junitparser python3-prometheus-client")
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
UNIT = ("--clock", "unit", "--link", "alpha=1us,beta=1GB/s")
ALL_REDUCE = ("all_reduce", "--ranks", "3", "-b", "1K", "-e", "64K", "-f", "8", "--algorithm", "ring,binomial_tree", "-n", "3", "--repetitions", "2", *UNIT)
# Together they have every kind of point.
SWEEPS = {
    "all_reduce": ALL_REDUCE,
    "wall": ("all_reduce", "--ranks", "2", "-b", "8", "-e", "4K", "-f", "8", "-n", "10", "-w", "1"),
    "skewed": ("all_to_all_v", "--ranks", "4", "-b", "1K", "-e", "1K", "--skew", "zipf:1.2", *UNIT),
    "barrier": ("barrier", "--ranks", "4", *UNIT),
    "ps": ("ps", "--workers", "2,3", "--servers", "1,colocated", "-b", "1K", "-e", "4K", *UNIT),
    "pipeline": ("pipeline", "--simulate", "-p", "2,4", "-m", "4", "--schedule", "1f1b,zb-h1"),
    "tp": ("tp", "--ranks", "1,2", "--link", "nvlink,hdr"),
    "sharded": ("sharded", "--simulate", "--ranks", "2,4", "--strategy", "ddp,fsdp-forward", "--link", "alpha=10us,beta=1GB/s"),
    "cp": ("cp", "--simulate", "--ranks", "2", "--lengths", "1024", "--heads", "8", "--kv-heads", "8", "--method", "ring-zig-zag,ulysses",
           "--link", "alpha=10us,beta=1GB/s"),
    "3d": ("3d", "--ranks", "4", "--cp", "1", "--memory-limit", "8M"),
    "attention": ("attention", "--lengths", "32,64", "--threads", "1", "-n", "2"),
}
OF_GOOGLE = {"name", "run_name", "run_type", "family_index", "per_family_instance_index", "repetitions", "cpu_time", "time_unit"}


class Metrics:
    """The samples of a file in Prometheus' text format; raises ValueError where it breaks the grammar."""

    NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
    LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
    SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ([-+]?(?:[0-9]+(?:\.[0-9]*)?(?:e[-+]?[0-9]+)?|Inf|NaN))")

    def __init__(self, text):
        self.samples, self.help, self.types = {}, {}, {}
        if not text.endswith("\n"):
            raise ValueError("the last line has no end")
        family = None
        for line in text.splitlines():
            if found := re.fullmatch(rf"# HELP ({self.NAME}) (.+)", line):
                family = found[1]
                self.once(self.help, family, found[2])
            elif found := re.fullmatch(rf"# TYPE ({self.NAME}) (counter|gauge|histogram|summary|untyped)", line):
                if found[1] != family:
                    raise ValueError(f"{line}: not after its HELP")
                self.once(self.types, family, found[2])
            elif found := self.SAMPLE.fullmatch(line):
                if found[1] != family or family not in self.types:
                    raise ValueError(f"{line}: not in its family")
                labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or "")
                if len(dict(labels)) != len(labels):
                    raise ValueError(f"{line}: a label twice")
                plain = tuple((key, re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], value)) for key, value in labels)
                self.once(self.samples, (family, frozenset(plain)), float(found[3]))
            else:
                raise ValueError(f"not a line of the format: {line!r}")

    @staticmethod
    def once(there, key, value):
        if key in there:
            raise ValueError(f"{key} twice")
        there[key] = value

    def of(self, family):
        return {labels: value for (name, labels), value in self.samples.items() if name == family}


class Formats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name).resolve()
        for name, words in SWEEPS.items():
            cls.bench(*words, "--json", f"{name}.json", "--csv", f"{name}.csv", "--junit", f"{name}.xml", "--prometheus", f"{name}.prom")

    @classmethod
    def bench(cls, *words, status=0):
        done = subprocess.run([PROGRAM, "bench", *words], cwd=cls.path, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def entries(self, name):
        file = json.loads((self.path / f"{name}.json").read_text())
        return [entry for entry in file["benchmarks"] if entry["run_type"] == "iteration"]

    def lines(self, name):
        with open(self.path / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file, strict=True))

    def metrics(self, name):
        return Metrics((self.path / f"{name}.prom").read_text())

    def members(self, name):
        plain = subprocess.run(["zstd", "-dc", self.path / name], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            self.assertTrue(all(member.isfile() and member.uid == 0 for member in archive))
            return {member.name: archive.extractfile(member).read().decode() for member in archive}

    def test_csv_has_every_number_of_json(self):
        for name in SWEEPS:
            entries, lines = self.entries(name), self.lines(name)
            self.assertGreater(len(entries), 0)
            for entry, line in zip(entries, lines, strict=True):
                with self.subTest(name=name, entry=entry["name"]):
                    self.assertEqual(line["operation"], entry["name"].split("/")[0])
                    expected = {"real_time_us": entry["real_time"], "repetition": entry["repetition_index"]}
                    for key, value in entry.items():
                        if isinstance(value, dict):
                            expected.update({f"{key}.{inner}": number for inner, number in value.items()})
                        elif isinstance(value, (bool, int, float)) and key not in OF_GOOGLE | {"real_time", "repetition_index", "threads"}:
                            expected[key] = value
                    for key, value in expected.items():
                        self.assertEqual({"true": 1, "false": 0}.get(line[key]) if isinstance(value, bool) else float(line[key]), value, key)
                    for key in {"link", "method", "strategy", "variant", "recompute", "kernel"} & set(entry):
                        self.assertIn(entry[key], line.values(), key)
                    self.assertEqual(line.get("chosen", ""), entry.get("label", ""))

    def test_csv_has_one_line_for_each_tuple_of_variables(self):
        for name in SWEEPS:
            columns, lines = list(self.lines(name)[0]), self.lines(name)
            variables = columns[:columns.index("repetition") + 1]
            self.assertEqual(len({tuple(line[key] for key in variables) for line in lines}), len(lines), name)
            self.assertNotIn("", columns)
            self.assertEqual(len(set(columns)), len(columns), name)
        self.assertEqual(list(self.lines("all_reduce")[0])[:9],
                         ["operation", "algorithm", "transport", "ranks", "bytes", "in_place", "type", "redop", "repetition"])
        self.assertEqual([self.lines("cp")[0][key] for key in ("algorithm", "link", "heads", "ranks")],
                         ["ring-zig-zag", "alpha=10us,beta=1GB/s", "8", "2"])
        self.assertEqual({line["skew"] for line in self.lines("skewed")}, {"zipf:1.2"})

    def test_pandas_reads_the_csv(self):
        try:
            import pandas  # pylint: disable=import-outside-toplevel
        except ImportError:
            self.skipTest("no pandas; the other tests read the same files with Python's csv")
        frame = pandas.read_csv(self.path / "all_reduce.csv")
        self.assertEqual(frame["busbw_gb_per_s"].tolist(), [entry["busbw_gb_per_s"] for entry in self.entries("all_reduce")])

    def test_metrics_follow_the_grammar_and_equal_json(self):
        for name in SWEEPS:
            with self.subTest(name=name):
                metrics, entries = self.metrics(name), self.entries(name)
                self.assertLessEqual(len(metrics.samples), 24, "few series")
                self.assertEqual(set(metrics.types.values()), {"gauge"})
                environment = json.loads(json.loads((self.path / f"{name}.json").read_text())["context"]["lockstep.environment"])
                then = datetime.datetime.fromisoformat(environment["time"].replace("Z", "+00:00")).timestamp()
                for labels, value in metrics.of("lockstep_run_timestamp_seconds").items():
                    self.assertEqual((value, {key for key, _ in labels}), (then, {"operation"}))
                steps = {value for value in metrics.of("lockstep_step_seconds").values()}
                self.assertLessEqual({round(step, 15) for step in steps}, {round(entry["real_time"] / 1e6, 15) for entry in entries})
                self.assertEqual(bool(steps), "busbw_gb_per_s" not in entries[0])
        metrics = self.metrics("all_reduce")
        for algorithm in "ring", "binomial_tree":
            series = {"operation": "all_reduce", "algorithm": algorithm, "transport": "virtual", "ranks": "3", "type": "f32", "redop": "sum"}
            entries = [entry for entry in self.entries("all_reduce") if f"/{algorithm}/" in entry["name"] and entry["in_place"] == 0]
            for family, place, scale in (("lockstep_bus_bandwidth_bytes_per_second", "busbw_gb_per_s", 1e9), ("lockstep_latency_seconds", "p50_us", 1e-6)):
                entry = (max if scale > 1 else min)(entries, key=lambda entry: entry["bytes"])
                labels = frozenset({**series, "bytes": f"{entry['bytes']:.0f}"}.items())
                self.assertAlmostEqual(metrics.of(family)[labels] / (entry[place] * scale), 1, 12)
                self.assertEqual(len(metrics.of(family)), 2)
        self.assertEqual(set(self.metrics("wall").of("lockstep_wrong_elements").values()), {0})
        self.assertEqual(self.metrics("all_reduce").of("lockstep_wrong_elements"), {}, "they were not checked")

    def test_prometheus_client_reads_the_metrics(self):
        for name in "all_reduce", "ps", "sharded":
            families = prometheus_client.parser.text_string_to_metric_families((self.path / f"{name}.prom").read_text())
            found = {(sample.name, frozenset(sample.labels.items())): sample.value for family in families for sample in family.samples}
            self.assertEqual(found, self.metrics(name).samples)

    def test_the_grammar_finds_faults(self):
        good = '# HELP a text\n# TYPE a gauge\na{b="c"} 1\n'
        self.assertEqual(Metrics(good).samples, {("a", frozenset({("b", "c")})): 1})
        for bad in (good[:-1], good + 'a{b="c"} 2\n', good + "b 1\n", good.replace("gauge", "gage"), good.replace('"c"', '"c\\x1b"'), good.replace('"c"', "c"),
                    good.replace("b=", "b-c="), good.replace(" 1", " one"), good.replace("# TYPE a gauge\n", ""), good.replace('"c"', '"c",b="d"')):
            self.assertNotEqual(bad, good)
            with self.assertRaises(ValueError, msg=bad):
                Metrics(bad)

    def test_a_collector_never_sees_a_part_of_a_file(self):
        """The new file replaces the old one by rename: its old content stays under another name."""
        (self.path / "kept.prom").write_text("old\n")
        os.link(self.path / "kept.prom", self.path / "link.prom")
        self.bench("barrier", "--ranks", "2", *UNIT, "--prometheus", "kept.prom")
        self.assertEqual((self.path / "link.prom").read_text(), "old\n")
        self.assertIn("lockstep_latency_seconds", (self.path / "kept.prom").read_text())
        self.assertEqual((self.path / "kept.prom").stat().st_mode & 0o444, 0o444, "the collector is another user")

    def test_junit(self):
        for name in SWEEPS:
            with self.subTest(name=name):
                suite, = xml.etree.ElementTree.parse(self.path / f"{name}.xml").getroot()
                cases = suite.findall("testcase")
                self.assertEqual((suite.get("tests"), suite.get("failures"), suite.get("errors")), (str(len(cases)), "0", "0"))
                self.assertEqual(len({(case.get("classname"), case.get("name")) for case in cases}), len(cases))
                rows = {entry["run_name"] for entry in self.entries(name)}
                ranks = "slow_ranks" in json.loads((self.path / f"{name}.json").read_text())
                self.assertEqual(len(cases), len(rows) + ranks)
                self.assertIn("bench", suite.find("properties/property[@name='command']").get("value"))
                read, = junitparser.JUnitXml.fromfile(str(self.path / f"{name}.xml"))
                self.assertEqual((read.tests, read.failures, [case.name for case in read]), (len(cases), 0, [case.get("name") for case in cases]))

    def test_wrong_elements_fail_in_every_format(self):
        words = ("all_reduce", "--ranks", "2", "-b", "1K", "-e", "1K", "-n", "4", "-w", "1", "--algorithm", "ring", "--json", "wrong.json",
                 "--csv", "wrong.csv", "--junit", "wrong.xml", "--prometheus", "wrong.prom", "--archive", "wrong.tar.zst")
        # Most operations are barriers, or are not checked.
        statuses = (subprocess.run([PROGRAM, "bench", *words, "--fault", f"rank=1,op={operation},kind=nan"], cwd=self.path, capture_output=True,
                                   timeout=60).returncode for operation in (*range(52, 90, 2), *range(1, 90)))
        self.assertIn(1, statuses, "no planted NaN makes an element wrong")
        self.assertTrue((self.path / "wrong.tar.zst").exists())
        wrong = {entry["run_name"]: entry["wrong"] for entry in self.entries("wrong")}
        self.assertGreater(sum(wrong.values()), 0)
        self.assertEqual([float(line["wrong"]) for line in self.lines("wrong")], list(wrong.values()))
        suite, = xml.etree.ElementTree.parse(self.path / "wrong.xml").getroot()
        failures = suite.findall("testcase/failure")
        self.assertEqual(len(failures), sum(count > 0 for count in wrong.values()))
        self.assertEqual((suite.get("failures"), failures[0].get("type")), (str(len(failures)), "WRONG"))
        self.assertIn("elements are wrong", failures[0].get("message"))
        self.assertEqual(list(self.metrics("wrong").of("lockstep_wrong_elements").values()), [sum(wrong.values())])

    def test_an_archive_holds_all(self):
        done = self.bench(*ALL_REDUCE, "--json", "archived.json", "--csv", "archived.csv", "--archive", "run.tar.zst")
        members = self.members("run.tar.zst")
        self.assertEqual(set(members), {"result.json", "result.csv", "result.xml", "result.prom", "environment.json", "doctor.json", "topology.json",
                                        "log.txt"})
        self.assertEqual(members["result.json"], (self.path / "archived.json").read_text())
        self.assertEqual(members["result.csv"], (self.path / "archived.csv").read_text())
        self.assertGreater(len(Metrics(members["result.prom"]).samples), 4)
        self.assertEqual(len(xml.etree.ElementTree.fromstring(members["result.xml"])), 1)
        self.assertEqual(json.loads(members["environment.json"]), json.loads(json.loads(members["result.json"])["context"]["lockstep.environment"]))
        self.assertEqual(json.loads(members["doctor.json"])["schema"], "lockstep.doctor/1")
        topology = json.loads(members["topology.json"])
        self.assertEqual(len(topology["processors"]), os.cpu_count())
        self.assertTrue(all({"cpu", "socket", "core"} <= one.keys() for one in topology["processors"]), topology)
        self.assertGreater(topology["memory_nodes"][0]["memory_bytes"], 0)
        self.assertIn("lo", [adapter["name"] for adapter in topology["network_adapters"]])
        self.assertIn("all_reduce", done.stdout)
        self.assertEqual(members["log.txt"], done.stdout, "the output is passed on as well")
        # The technique's results too, and the same file again.
        self.bench("3d", "--ranks", "2", "--cp", "1", "--archive", "run.tar.zst")
        self.assertFalse(list(pathlib.Path(tempfile.gettempdir()).glob("lockstep-archive-*")))

    def test_bad_files_are_refused_before_anything_is_measured(self):
        (self.path / "folder.prom").mkdir()
        (self.path / "folder.tar.zst").mkdir()
        bad = []
        for flag, ending in (("--csv", ".csv"), ("--junit", ".xml"), ("--prometheus", ".prom"), ("--archive", ".tar.zst")):
            bad += [((flag, f"no/such/folder/x{ending}"), "No such file"), ((flag, f"same{ending}", "--json", f"same{ending}"), "another output names too"),
                    ((flag, f"same{ending}", "--json", f"./same{ending}"), "another output names too"),
                    ((flag, "folder.prom" if flag != "--archive" else "folder.tar.zst"), "folder")]
        bad += [(("--prometheus", "metrics.txt"), "must end with .prom"), (("--archive", "run.tar"), "must end with .tar.zst"),
                (("--csv", "all_reduce.json", "--baseline", "all_reduce.json"), "which is also read")]
        for words, part in bad:
            for command in ("all_reduce", "--ranks", "2", *UNIT), ("3d", "--ranks", "2"), ("attention", "--lengths", "32"):
                if command[0] != "all_reduce" and "--baseline" in words:
                    continue
                with self.subTest(command=command[0], words=words):
                    done = self.bench(*command, *words, status=2)
                    self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1))
                    self.assertIn(part, done.stderr)

    def test_a_training_run_has_an_archive(self):
        def train(*words):
            return subprocess.run([PROGRAM, "train", "ddp", "--global-batch", "2", *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        done = train("--ranks", "2", "--steps", "2", "--sequence-length", "8", "--json", "trained.json", "--archive", "trained.tar.zst")
        self.assertEqual(done.returncode, 0, done.stderr)
        members = self.members("trained.tar.zst")
        self.assertEqual(set(members), {"result.json", "result.csv", "result.xml", "result.prom", "environment.json", "doctor.json", "topology.json",
                                        "log.txt"})
        result = json.loads(members["result.json"])
        self.assertEqual(result["steps"], json.loads((self.path / "trained.json").read_text())["steps"])
        self.assertEqual((members["log.txt"], json.loads(members["environment.json"])["host"]), (done.stdout, result["environment"]["host"]))
        for more, part in ((("--archive", "x.tar"), "must end with"), (("--archive", "x.tar.zst", "--json", "x.tar.zst"), "another output names too"),
                           (("--archive", "x.tar.zst", "--device", "none"), "--archive with --device none")):
            done = train(*more)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(part, done.stderr)

    def test_a_training_run_has_every_format(self):
        words = ("train", "ddp", "--ranks", "3", "--global-batch", "3", "--steps", "3", "--sequence-length", "8", "--clock", "unit", "--compute-time", "0.1",
                 "--slow-rank", "1:3", "--json", "t.json", "--csv", "t.csv", "--junit", "t.xml", "--prometheus", "t.prom")
        done = subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.path / "t.json").read_text())
        lines = self.lines("t")
        self.assertEqual(len(lines), 3)
        for line, step in zip(lines, result["steps"], strict=True):
            self.assertEqual((line["operation"], line["algorithm"], line["transport"], line["ranks"]), ("train", "ddp", "virtual", "3"))
            for key, value in step.items():
                self.assertEqual(json.loads(line[key]), value)
        suite, = junitparser.JUnitXml.fromfile(str(self.path / "t.xml"))
        cases = {case.name: case for case in suite}
        self.assertEqual(set(cases), {line["quantity"] for line in result["theory"] if line["exact"]} | {"no rank is slow", "no rank was lost"})
        self.assertEqual([name for name, case in cases.items() if case.result], ["no rank is slow"])
        self.assertIn("rank 1 ", cases["no rank is slow"].result[0].message)
        metrics = self.metrics("t")
        for name, value in (("lockstep_train_loss", result["steps"][-1]["loss"]), ("lockstep_theory_mismatches", 0), ("lockstep_slow_ranks", 1)):
            self.assertEqual(list(metrics.of(name).values()), [value])
        self.assertEqual(list(metrics.of("lockstep_step_seconds").values()), [statistics.median(step["seconds"] for step in result["steps"][1:])])
        for flag, name in (("--csv", "x.csv"), ("--junit", "x.xml"), ("--prometheus", "x.prom")):
            done = subprocess.run([PROGRAM, "train", "ddp", "--device", "none", flag, name], cwd=self.path, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(f"{flag} with --device none", done.stderr)

    def test_a_run_that_fails_has_an_archive(self):
        fault = ("--ranks", "2", "--timeout", "1", "--fault", "rank=1,op=3,kind=throw", "--archive", "failed.tar.zst")
        for words in (("bench", "all_reduce", "-b", "1K", "-e", "1K"), ("bench", "pairs"), ("burn-in", "--passes", "1"),
                      ("train", "ddp", "--global-batch", "2", "--steps", "2")):
            with self.subTest(words=words):
                done = subprocess.run([PROGRAM, *words, *fault], cwd=self.path, capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
                members = self.members("failed.tar.zst")
                self.assertEqual(set(members), {"error.txt", "environment.json", "doctor.json", "topology.json", "log.txt"})
                self.assertIn(members["error.txt"].strip(), done.stderr)
                self.assertIn("rank 1", members["error.txt"])
                self.assertEqual(members["log.txt"], done.stdout)
                (self.path / "failed.tar.zst").unlink()

    def test_an_archive_needs_its_tools(self):
        done = subprocess.run([PROGRAM, "bench", "barrier", *UNIT, "--archive", "run.tar.zst"], cwd=self.path, capture_output=True, text=True,
                              env={**os.environ, "PATH": "/nowhere"}, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("apt-get install tar", done.stderr)


class ReFrame(unittest.TestCase):
    """The example, run by ReFrame where it is installed; elsewhere its functions are called as ReFrame calls them."""

    EXAMPLE = SOURCE / "bench" / "reframe" / "all_reduce.py"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def test_reframe_runs_the_example(self):
        reframe = shutil.which("reframe")
        if not reframe:
            self.skipTest("no reframe, which Debian does not have")
        done = subprocess.run([reframe, "-c", self.EXAMPLE, "-r", "--prefix", self.path, "--performance-report", "--report-junit", self.path / "report.xml",
                               "-S", "AllReduce.flags=-n 3"], cwd=self.path, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "HOME": str(self.path)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Ran 2/2 test case(s)", done.stdout)
        for variable, unit in ("busbw", "GB/s"), ("latency", "us"):
            self.assertRegex(done.stdout, rf"{variable}: [0-9.e+-]+ {unit}")

    def test_the_functions_of_the_example(self):
        stand_in = {name: types.ModuleType(name) for name in ("reframe", "reframe.core", "reframe.core.builtins", "reframe.utility", "reframe.utility.sanity")}
        stand_in["reframe"].RunOnlyRegressionTest, stand_in["reframe"].simple_test = object, lambda test: test
        builtins, sanity = stand_in["reframe.core.builtins"], stand_in["reframe.utility.sanity"]
        builtins.parameter = lambda values: values[0]
        builtins.variable = lambda kind, value: kind(value)
        builtins.run_before = builtins.performance_function = lambda _: lambda function: function
        builtins.sanity_function = lambda function: function
        sanity.assert_gt = lambda one, other, _: one > other
        sanity.assert_eq = lambda one, other, _: one == other
        sanity.and_ = lambda *all_of: all(all_of)
        stand_in["reframe.utility"].sanity = sanity
        stand_in["reframe"].utility = stand_in["reframe.utility"]
        with unittest.mock.patch.dict(sys.modules, stand_in):
            description = importlib.util.spec_from_file_location("all_reduce_example", self.EXAMPLE)
            example = importlib.util.module_from_spec(description)
            description.loader.exec_module(example)
        test = example.AllReduce()
        test.stagedir, test.flags = str(self.path), "-n 3 --json all_reduce.json"
        test.set_command()
        subprocess.run([PROGRAM, *test.executable_opts], cwd=self.path, check=True, capture_output=True, timeout=120)
        entries = [entry for entry in json.loads((self.path / "all_reduce.json").read_text())["benchmarks"] if entry["in_place"] == 0]
        self.assertEqual((test.latency(), test.busbw()), (entries[0]["p50_us"], entries[-1]["busbw_gb_per_s"]))
        self.assertTrue(test.every_element_is_right())
        self.assertEqual({(self.path / name).exists() for name in test.keep_files}, {True})
        # A wrong element, and no row.
        text = (self.path / "all_reduce.csv").read_text()
        head, first, rest = text.split("\n", 2)
        cells = first.split(",")
        cells[head.split(",").index("wrong")] = "1"
        (self.path / "all_reduce.csv").write_text("\n".join([head, ",".join(cells), rest]))
        self.assertFalse(test.every_element_is_right())
        (self.path / "all_reduce.csv").write_text(head + "\n")
        self.assertFalse(test.every_element_is_right())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
