"""lockstep burn-in: a healthy run passes, a flipped bit is named wherever it is, an earlier run is a baseline; a stopped run keeps what it
measured; and the input it refuses. No test judges a measured time: the limits are far away.

python3 burn_in_test.py PROGRAM
"""

import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

try:
    import junitparser
    import prometheus_client.parser
except ImportError:  # Debian's packages belong to Debian's Python.
    if sys.executable == "/usr/bin/python3":
        sys.exit("no junitparser or prometheus_client: apt-get install python3-junitparser python3-prometheus-client")
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])

PROGRAM = pathlib.Path(sys.argv[1]).absolute()
FAR = ("--effect", "1000")


class BurnIn(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def burn_in(self, *words, status=0, environment=None):
        done = subprocess.run([PROGRAM, "burn-in", *map(str, words)], cwd=self.path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertTrue(status in (2, 4) or done.stderr == "", done.stderr)
        return done.stdout + done.stderr

    def file(self, name="b.json"):
        return json.loads((self.path / name).read_text())

    def test_healthy(self):
        said = self.burn_in("--ranks", 3, "--passes", 2, *FAR, "--json", "b.json")
        self.assertRegex(said, r"# burn-in of 3 ranks on 1 host over threads: 2 passes in [\d.]+ s, 12 replayed steps compared")
        self.assertIn("# verdict: pass\n", said)
        file = self.file()
        self.assertEqual((file["passes"], file["steps_compared"], file["verdict"], file["findings"]), (2, 12, "pass", []))
        (host,) = file["hosts"]
        self.assertEqual((host["verdict"], [rank["rank"] for rank in host["ranks"]]), ("pass", [0, 1, 2]))
        rows = {entry["name"].split("/iterations")[0]: entry["samples_us"] for entry in file["benchmarks"]}
        for rank in range(3):
            self.assertEqual(len(rows[f"burn_in/product/ranks:3/size:256/rank:{rank}"]), 8)
            self.assertEqual(len(rows[f"burn_in/copy/ranks:3/bytes:16777216/rank:{rank}"]), 8)
        for size in (4, 256, 16384, 1048576):
            self.assertEqual(len(rows[f"burn_in/all_reduce/threads/ranks:3/bytes:{size}"]), 2)
        self.assertEqual(len(rows["pairs/latency/threads/ranks:3/bytes:8/from:0/to:1"]), 8)
        self.assertEqual(len(rows), 2 * 3 + 4 + 4 * 3)

    def test_each_rank_has_its_own_emulated_gpu(self):
        library = PROGRAM.parent.parent / "lib"
        emulated = {"LOCKSTEP_CUDA_MODULE": str(library / "liblockstep_cuda_emulated.so"), "LOCKSTEP_EMULATOR_DEVICES": "2",
                    "LOCKSTEP_NCCL_MODULE": str(library / "liblockstep_nccl_emulated.so")}
        self.burn_in("--device", "cuda", "--ranks", 2, "--passes", 1, *FAR, "--sizes", 8, "--expect-gpus", 2, "--json", "b.json", environment=emulated)
        (host,) = self.file()["hosts"]
        self.assertEqual(([rank["device"] for rank in host["ranks"]], host["gpus"]), (["cuda:0", "cuda:1"], 2))

    def test_sizes(self):
        self.burn_in("--ranks", 2, "--passes", 2, *FAR, "--sizes", "64K,8,65536", "--json", "b.json")
        sizes = [re.search(r"bytes:(\d+)", entry["name"])[1] for entry in self.file()["benchmarks"] if "burn_in/all_reduce" in entry["name"]]
        self.assertEqual(sizes, ["8", "65536"])

    def test_hosts_with_less_than_expected_fail(self):
        words = ("--ranks", 2, "--passes", 1, *FAR, "--json", "b.json")
        self.burn_in(*words)
        (host,) = self.file()["hosts"]
        for flag, value, part in (("--expect-cores", host["cores"] + 1, "cores"), ("--expect-gpus", 1000, "GPUs"),
                                  ("--expect-memory", f"{int(host['memory_bytes']) // 2**30 + 64}G", "GiB of memory")):
            said = self.burn_in(*words, flag, value, status=1)
            self.assertRegex(said, rf"fail 101 host {re.escape(host['host'])}: has [\d.]+ {part}, expected ")
        self.burn_in(*words, "--expect-cores", host["cores"], "--expect-memory", f"{int(host['memory_bytes']) // 2**30}G")

    def test_every_format_is_read_by_its_own_reader(self):
        self.burn_in("--ranks", 3, "--passes", 2, *FAR, "--fault", "rank=1,op=2,kind=flip-gradient", "--json", "b.json", "--csv", "b.csv",
                     "--junit", "b.xml", "--prometheus", "b.prom", "--archive", "b.tar.zst", status=1)
        suite, = junitparser.JUnitXml.fromfile(str(self.path / "b.xml"))
        failed = [case for case in suite if case.result]
        self.assertEqual((suite.failures, len(failed), suite.errors), (len(failed), len(failed), 0))
        self.assertIn("501", " ".join(f"{case.name} {result.type} {result.message}" for case in failed for result in case.result))
        families = {family.name: family for family in prometheus_client.parser.text_string_to_metric_families((self.path / "b.prom").read_text())}
        self.assertEqual([sample.value for sample in families["lockstep_burn_in_verdict"].samples], [2])
        self.assertNotIn("lockstep_slow_links", families)
        self.assertNotIn("no link is slow", [case.name for case in suite])
        with open(self.path / "b.csv", newline="") as file:
            lines = list(csv.DictReader(file, strict=True))
        self.assertEqual(len(lines), sum(entry["run_type"] == "iteration" for entry in self.file()["benchmarks"]))
        plain = subprocess.run(["zstd", "-dc", self.path / "b.tar.zst"], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            self.assertLessEqual({"result.json", "result.csv", "result.xml", "result.prom", "log.txt"}, set(archive.getnames()))

    def test_links_are_those_that_pairs_measures(self):
        self.burn_in("--ranks", 3, "--passes", 2, *FAR, "--json", "b.json")
        file = self.file()
        self.assertEqual([(link["from"], link["to"]) for link in file["links"]], [(0, 1), (0, 2), (1, 2)])
        self.assertEqual((len(file["ranks"]), file["slow_links"]), (3, []))

    def test_one_rank(self):
        self.assertIn("over threads: 1 pass in", self.burn_in("--ranks", 1, "--passes", 1))

    def test_a_flipped_bit_is_named(self):
        for rank, step in ((0, 3), (1, 0), (2, 2)):
            said = self.burn_in("--ranks", 3, "--passes", 2, *FAR, "--fault", f"rank={rank},op={step},kind=flip-gradient", "--json", "b.json", status=1)
            (finding,) = self.file()["findings"]
            self.assertEqual((finding["code"], finding["verdict"], len(finding["hosts"])), (501, "fail", 1))
            self.assertTrue(finding["text"].startswith(f"rank {rank} computed 1 step twice with different gradients, first in pass {step // 2}"),
                            finding)
            self.assertIn(f"pass {step // 2}: fail 501 host ", said)
            self.assertIn("  next: ", said)

    def test_baseline(self):
        words = ("--ranks", 2, "--passes", 2, *FAR)
        self.burn_in(*words, "--json", "b.json")
        self.burn_in(*words, "--baseline", "b.json", "--tolerance", 1e6)
        file = self.file()
        for entry in file["benchmarks"]:
            if entry["name"].startswith("burn_in/copy") and "/rank:1" in entry["name"]:
                entry["samples_us"] = [time_us / 1e6 for time_us in entry["samples_us"]]
        (self.path / "fast.json").write_text(json.dumps(file))
        said = self.burn_in(*words, "--baseline", "fast.json", "--tolerance", 100, status=3)
        self.assertRegex(said, r"degraded 701 host \S+: burn_in/copy/ranks:2/bytes:16777216/rank:1 takes [\d.]+ times the time in fast.json, measured 20")
        self.assertEqual(len(set(re.findall(r"burn_in/\w+/\S+", said))), 1)
        environment = json.loads(file["context"]["lockstep.environment"])
        file["context"]["lockstep.environment"] = json.dumps(environment | {"processor": "another one"})
        (self.path / "other.json").write_text(json.dumps(file))
        self.assertIn("another one", self.burn_in(*words, "--baseline", "other.json", status=2))
        (self.path / "empty.json").write_text("")
        self.assertIn("empty.json", self.burn_in(*words, "--baseline", "empty.json", status=2))

    def test_all_links_have_their_turn(self):
        """Of five ranks, each round has two links: five rounds, of two passes each, have all ten."""
        self.burn_in("--ranks", 5, "--rounds", 1, "--passes", 10, *FAR, "--json", "b.json")
        rows = [entry["name"] for entry in self.file()["benchmarks"] if entry["name"].startswith("pairs/latency")]
        self.assertEqual(len({re.search(r"from:\d+/to:\d+", name)[0] for name in rows}), 10)

    def test_a_rank_that_is_lost_fails(self):
        """After some passes, so that there are results, a message of rank 1 never comes."""
        said = self.burn_in("--ranks", 3, "--passes", 50, *FAR, "--timeout", 2, "--fault", "rank=1,op=3000,kind=throw", "--json", "b.json",
                            "--junit", "b.xml", "--prometheus", "b.prom", status=4)
        finding = self.file()["findings"][-1]
        self.assertEqual((finding["code"], finding["verdict"], len(finding["hosts"])), (801, "fail", 1))
        self.assertIn("# verdict: fail\n", said)
        self.assertIn("801", (self.path / "b.xml").read_text())
        self.assertRegex((self.path / "b.prom").read_text(), r"lockstep_burn_in_verdict\{.*\} 2")

    def test_a_stopped_run_keeps_what_it_measured(self):
        run = subprocess.Popen([PROGRAM, "burn-in", "--ranks", "2", "--minutes", "5", *FAR, "--json", "b.json", "--csv", "b.csv"], cwd=self.path,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        end = time.monotonic() + 60
        while not (self.path / "b.json").exists() and time.monotonic() < end:
            time.sleep(0.01)
        run.send_signal(signal.SIGINT)
        said = "".join(run.communicate(timeout=60))
        self.assertEqual(run.returncode, 130, said)
        self.assertIn("# verdict: pass\n", said)
        self.assertGreaterEqual(self.file()["passes"], 1)
        self.assertIn("burn_in,copy,2,", (self.path / "b.csv").read_text())

    def test_bad_input(self):
        for words, part in ((["--minutes", 0], "--minutes 0"), (["--minutes", "nan"], "--minutes"), (["--passes", -1], "--passes -1"),
                            (["--passes", 1, "--minutes", 1], "--minutes"), (["--tolerance", 0.01], "--tolerance 0.01; use 0.03 or more"),
                            (["--effect", 0], "--effect 0"), (["--rounds", 7], "--rounds 7"), (["--device", "none"], "--device none"),
                            (["--device", "tpu"], "tpu"), (["--clock", "unit"], "--clock unit"), (["--baseline", "none.json"], "none.json"),
                            (["--fault", "rank=9,op=0,kind=flip-gradient"], "rank 9 of a world of 2"),
                            (["--fault", "rank=1,kind=flip-gradients"], "flip-gradients"), (["--json", "no/folder/b.json"], "no/folder"),
                            (["--sizes", "6"], "--sizes 6; use multiples of 4"), (["--sizes", "2G"], "--sizes 2147483648"), (["--sizes", "x"], "--sizes 'x'"),
                            (["--expect-cores", 0], "--expect-cores 0"), (["--expect-memory", "much"], "--expect-memory 'much'"),
                            (["surprise"], "surprise")):
            with self.subTest(words=words):
                self.assertIn(part, self.burn_in(*words, status=2))
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
