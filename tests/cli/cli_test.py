"""The program, called as users call it: results, exit statuses, messages, and the files it leaves.

python3 cli_test.py PROGRAM SOURCE_FOLDER
"""

import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
GOLDEN = SOURCE / "tests" / "golden" / "tiny"
GOLDEN_RUN = ["--model", GOLDEN / "config.json", "--init", GOLDEN / "init.safetensors", "--data", GOLDEN / "tokens.bin",
              "--order", "sequential", "--global-batch", "8", "--steps", "10", "--lr", "1e-3", "--weight-decay", "0.1",
              "--grad-clip", "1.0", "--beta1", "0.9", "--beta2", "0.95", "--eps", "1e-8", "--dtype", "f64"]


def tensors_of(path):
    """Reads a safetensors file by its specification: name to (shape, values), for F32 and F64."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    header.pop("__metadata__", None)
    letter = {"F32": "f", "F64": "d"}
    return {name: (entry["shape"], [value for (value,) in struct.iter_unpack("<" + letter[entry["dtype"]],
                                                                             data[slice(*entry["data_offsets"])])])
            for name, entry in header.items()}


class Cli(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_program(self, *words, **environment):
        return subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment})

    def refused(self, part, *words, status=2, **environment):
        done = self.run_program(*words, **environment)
        said = done.stderr + done.stdout
        self.assertEqual(done.returncode, status, said)
        self.assertIn(part, said)
        self.assertNotIn("terminate called", said)

    def test_processes_that_found_no_world_are_refused(self):
        """As launchers say it in the environment; a single process is an ordinary one."""
        for number, said in (("4", "{} started 4 processes ({}=4)"), ("1", None)):
            for launcher, size, rank in (("srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
                                         ("PALS", "PALS_SIZE", "PALS_RANKID")):
                words, environment = ("train", "serial", "--steps", "1", "--global-batch", "1"), {size: number, rank: "0"}
                if said:
                    self.refused(said.format(launcher, size), *words, **environment)
                else:
                    self.assertEqual(self.run_program(*words, **environment).returncode, 0)
        self.refused("none of PALS_SIZE says how many", "train", "serial", PALS_RANKID="0")

    def result_with_settings(self, words, given):
        environment = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
        subprocess.run([PROGRAM, *words, "--json", "r.json"], cwd=self.path, check=True, capture_output=True, timeout=120,
                       env={**environment, **given})
        return (self.path / "r.json").read_text()

    def spin_count(self, **given):
        words = ["train", "serial", "--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--steps", "1"]
        return json.loads(self.result_with_settings(words, given))["environment"]["settings"].get("GOMP_SPINCOUNT")

    def test_collectives_have_no_setting_of_openmp(self):
        bench = ["bench", "all_reduce", "-b", "1K", "-e", "1K", "-n", "1"]
        self.assertNotIn("GOMP_SPINCOUNT", self.result_with_settings(bench, {}))
        self.assertIn("GOMP_SPINCOUNT", self.result_with_settings(bench, {"GOMP_SPINCOUNT": "77"}))

    def test_threads_spin_less_on_a_busy_machine(self):
        self.assertIn(self.spin_count(), ("0", "1000", "10000"))
        self.assertEqual(self.spin_count(GOMP_SPINCOUNT="77"), "77")
        self.assertEqual(self.spin_count(OMP_WAIT_POLICY="passive"), None)
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() + 1)]
        try:
            self.assertEqual(self.spin_count(), "0")
        finally:
            for process in busy:
                process.kill()
                process.wait()

    def test_training_options_of_benchmarks_are_checked(self):
        self.refused("--recompute 'foo'", "bench", "pipeline", "--simulate", "--recompute", "foo")
        self.refused("--steps 0", "bench", "pipeline", "--simulate", "--steps", "0")
        self.refused("--sequence-length -1", "bench", "model", "--sequence-length", "-1")

    def test_simulated_pipelines_take_the_times_given(self):
        def bubble_and_link(*words):
            done = self.run_program("bench", "pipeline", "--simulate", "--schedule", "1f1b", "-p", "4", "-m", "8", *words, "--json", "p.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            file = json.loads((self.path / "p.json").read_text())
            (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("1f1b")]
            return float(row[5]), file["context"]["lockstep.link"]
        self.assertEqual(bubble_and_link(), (27.27, "alpha=0,beta=0"))
        bubble, link = bubble_and_link("--hop", "1/4", "--forward", "2", "--input-gradient", "2")
        drawn = self.run_program("schedule", "1f1b", "-p", "4", "-m", "8", "--hop", "1/4", "--forward", "2", "--input-gradient", "2").stdout
        (whole,) = [line for line in drawn.splitlines() if line.startswith("makespan")]
        self.assertIn(f"= {bubble:.1f} %", whole)
        self.assertEqual(link, "alpha=0.25,beta=0")
        for words in (("--link", "ndr"), ("--clock", "unit"), ("--steps", "3"), ("--model", "nano")):
            self.refused(f"{words[0]} with --simulate", "bench", "pipeline", "--simulate", *words)
        self.refused("--hop without --simulate", "bench", "pipeline", "--hop", "1")
        self.refused("no number", "bench", "pipeline", "--simulate", "--hop", "x")

    def test_the_period_shows_what_zb_h2_is_for(self):
        lines = self.run_program("schedule", "all", "-p", "4", "-m", "8").stdout.splitlines()
        (head,) = [line for line in lines if line.startswith("schedule ")]
        end = head.index("period") + len("period")
        period = {line.split()[0]: float(line[:end].split()[-1]) for line in lines if line.split()[:1] in (["zb-h1"], ["zb-h2"], ["1f1b"])}
        self.assertEqual(period, {"1f1b": 33, "zb-h1": 27, "zb-h2": 24})

    def test_a_large_mesh_is_readable_and_knows_nodes(self):
        done = self.run_program("mesh", "--tp", "8", "--pp", "8", "--dp", "8", "--ranks-per-node", "8", "--json", "mesh.json")
        self.assertLess(max(map(len, done.stdout.splitlines())), 140)
        self.assertLess(len(done.stdout.splitlines()), 40)
        rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
        self.assertIn("512 ranks on 64 nodes of 8", rows["512"])
        self.assertRegex(rows["tp"], r"64 +8 +1  \[0-7\]\[8-15\]")
        self.assertRegex(rows["dp"], r"64 +8 +8  \[0,8,16,\.\.,56\]")
        mesh = json.loads((self.path / "mesh.json").read_text())
        self.assertEqual((mesh["nodes"]["tp"], mesh["nodes"]["pp"], mesh["ranks_per_node"]), (1, 8, 8))
        self.assertEqual(mesh["groups"]["pp"][0], list(range(0, 512, 64)))
        wide = self.run_program("mesh", "--tp", "2", "--pp", "64", "--dp", "128", "--cp", "2").stdout
        self.assertLess(max(map(len, wide.splitlines())), 140)
        self.assertLess(len(wide.splitlines()), 60)
        small = self.run_program("mesh", "--tp", "2", "--pp", "2", "--dp", "2").stdout
        self.assertIn("[0,4][1,5][2,6][3,7]", small)
        self.assertNotIn("nodes", small)
        self.refused("--ranks-per-node -1", "mesh", "--ranks-per-node", "-1")

    def test_outputs_are_not_lost(self):
        (self.path / "stdout").symlink_to("/proc/self/fd/1")
        words = ["plan", "ddp", "--ranks", "2", "--model", "nano", "--json", "stdout"]
        with open(self.path / "out", "w+") as out:
            subprocess.run([PROGRAM, *words], cwd=self.path, stdout=out, check=True, timeout=120)
        for said in (self.run_program(*words).stdout, (self.path / "out").read_text()):
            self.assertEqual(json.loads(said[said.index("\n{"):])["schema"], "lockstep.plan/1")
            self.assertIn("ddp", said[:said.index("\n{")])
        self.refused("another output", "train", "serial", "--json", "same", "--trace", "same")
        (self.path / "text").write_text("the only copy")
        self.refused("also read", "train", "serial", "--data", "text", "--save", "text")
        self.assertEqual((self.path / "text").read_text(), "the only copy")
        (self.path / "config.json").write_text("of something else")
        self.refused("another model", "train", "serial", "--steps", "1", "--save", "w.safetensors")
        self.assertEqual((self.path / "config.json").read_text(), "of something else")
        self.refused("No space left on device; free space", "plan", "ddp", "--ranks", "2", "--json", "/dev/full")
        (self.path / "s.svg.json").write_text("not ours")
        self.assertEqual(self.run_program("schedule", "1f1b", "--plot", "s.svg").returncode, 0)
        self.assertEqual((self.path / "s.svg.json").read_text(), "not ours")

    def test_golden_run(self):
        expected = json.loads((GOLDEN / "expected.json").read_text())
        done = self.run_program("train", "ddp", "--ranks", "4", *GOLDEN_RUN, "--json", "r.json", "--save",
                                "final.safetensors", "--trace", "t.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.path / "r.json").read_text())
        self.assertEqual(result["schema"], "lockstep.train/1")
        for step, loss, norm in zip(result["steps"], expected["losses"], expected["grad_norms"], strict=True):
            self.assertAlmostEqual(step["loss"] / loss, 1, delta=1e-9)
            self.assertAlmostEqual(step["grad_norm"] / norm, 1, delta=1e-9)
        self.assertEqual([rank["rank"] for rank in result["ranks"]], [0, 1, 2, 3])
        for rank in result["ranks"]:
            self.assertEqual(rank["sent_bytes"]["total"], 2 * 3 / 4 * result["config"]["parameters"] * 8)
        for line in result["theory"]:
            self.assertEqual(line["expected"], line["measured"], line)
        self.assertEqual(sorted(p.name for p in self.path.iterdir()),
                         ["config.json", "final.safetensors", "r.json", "t.json"])

    def test_saved_weights_are_safetensors_of_the_golden_run(self):
        self.run_program("train", "serial", *GOLDEN_RUN, "--save", "final.safetensors")
        ours, expected = tensors_of(self.path / "final.safetensors"), tensors_of(GOLDEN / "final.safetensors")
        self.assertEqual(set(ours), set(expected))
        for name, (shape, values) in expected.items():
            self.assertEqual(ours[name][0], shape, name)
            # The expected values were rounded to f32.
            for ours_value, value in zip(ours[name][1], values, strict=True):
                self.assertAlmostEqual(ours_value, value, delta=1.2e-7 * max(abs(value), 1e-3), msg=name)

    def test_communication_begins_before_backward_ends(self):
        self.run_program("train", "ddp", "--ranks", "2", *GOLDEN_RUN, "--first-bucket-bytes", "100000", "--bucket-bytes", "100000",
                         "--trace", "t.json")
        events = [e for e in json.loads((self.path / "t.json").read_text())["traceEvents"] if e["ph"] == "X" and e["pid"] == 0]
        backward = [e for e in events if e["tid"] == 0 and e["name"] == "forward and backward"]
        reduces = [e["ts"] for e in events if e["tid"] == 1 and e["name"] == "all_reduce/ring"]
        self.assertEqual(len(backward), 10)
        for step in backward:
            inside = [ts for ts in reduces if step["ts"] < ts < step["ts"] + step["dur"]]
            self.assertGreaterEqual(len(inside), 1, "no bucket left while backward went on")

    def test_progress_is_for_terminals(self):
        words = [PROGRAM, "train", "serial", *GOLDEN_RUN]
        self.assertNotIn("\r", self.run_program(*words[1:]).stderr)
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb") as terminal:
            done = subprocess.run(words, cwd=self.path, stdout=subprocess.DEVNULL, stderr=theirs, timeout=120)
            os.close(theirs)
            shown = b""
            # Reading a terminal whose writers are gone fails after all of its data were read.
            try:
                while part := terminal.read1():
                    shown += part
            except OSError:
                pass
        self.assertEqual(done.returncode, 0)
        last = shown.decode().split("\r")[-2 if shown.endswith(b"\r\n") else -1]
        self.assertRegex(last, r"10/10 +loss 4\.\d+ +\d+ tokens/s +0 s left")

    def test_trace_has_both_tracks_and_arrows(self):
        self.run_program("train", "ddp", "--ranks", "2", *GOLDEN_RUN, "--trace", "t.json")
        events = json.loads((self.path / "t.json").read_text())["traceEvents"]
        spans = {(e["pid"], e["tid"], e["name"]) for e in events if e["ph"] == "X"}
        for rank in (0, 1):
            self.assertIn((rank, 0, "forward and backward"), spans)
            self.assertIn((rank, 1, "all_reduce/ring"), spans)
        begins = {e["id"] for e in events if e["ph"] == "s"}
        ends = {e["id"] for e in events if e["ph"] == "f"}
        self.assertTrue(begins)
        self.assertEqual(begins, ends)
        self.assertTrue([e for e in events if e["ph"] == "C" and e["args"]["parameters"] > 0])

    def test_every_row_of_a_trace_has_a_name(self):
        for words in (["ddp", "--ranks", "2"], ["pipeline", "--ranks", "2", "--micro-batches", "2"], ["ulysses", "--ranks", "2"],
                      ["ps", "--ranks", "2", "--colocated", "--mode", "asp"], ["tp", "--ranks", "2"],
                      ["zero", "--ranks", "4", "--replicas", "2"]):
            done = self.run_program("train", *words, *GOLDEN_RUN, "--steps", "1", "--trace", "t.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            events = json.loads((self.path / "t.json").read_text())["traceEvents"]
            named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name" and e["args"]["name"]}
            self.assertEqual({(e["pid"], e["tid"]) for e in events if e["ph"] != "M"} - named, set(), words)
            self.assertEqual({e["pid"] for e in events}, {e["pid"] for e in events if e["name"] == "process_name"}, words)

    def test_a_failed_run_leaves_its_trace(self):
        self.refused("the trace is in t.json", "train", "ddp", "--ranks", "2", *GOLDEN_RUN, "--trace", "t.json", "--json", "r.json", "--fault",
                     "rank=1,op=20,kind=throw", status=4)
        steps = {e["pid"] for e in json.loads((self.path / "t.json").read_text())["traceEvents"] if e["name"] == "step 0"}
        self.assertEqual(steps, {0, 1})
        self.assertFalse((self.path / "r.json").exists())

    def test_version_tells_what_this_program_is(self):
        done = self.run_program("--version")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^lockstep \d+\.\d+\.\d+, commit ([0-9a-f]{7,}|unknown), \w+ build, GNU [\d.]+\n"
                                      r"MPI: [^\n]+\nGPU: [^\n]+\nNCCL: [^\n]+\n$")

    def test_saved_weights_can_be_trained_on(self):
        words = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "2", "--steps", "2"]
        self.assertEqual(self.run_program("train", "serial", *words, "--save", "a.safetensors").returncode, 0)
        done = self.run_program("train", "serial", "--model", "config.json", *words[2:], "--init", "a.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_folder_of_hugging_face_is_trained_on(self):
        hf = self.path / "gpt2 tiny"
        hf.mkdir()
        words = ["train", "serial", "--data", GOLDEN / "tokens.bin", "--global-batch", "2", "--steps", "1", "--init", hf]
        self.refused("has no config.json", *words)
        config = json.loads((GOLDEN / "config.json").read_text())
        self.write_json(hf / "config.json", {**config, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})
        self.refused("has neither model.safetensors nor", *words)
        (hf / "model.safetensors").write_bytes((GOLDEN / "init.safetensors").read_bytes())
        self.assertEqual(self.run_program(*words, "--json", "r.json").returncode, 0)
        used = json.loads((self.path / "r.json").read_text())["config"]
        self.assertEqual((used["model"], used["dropout"]), (str(hf), 0.1))
        self.assertEqual(self.run_program(*words, "--dropout", "0", "--json", "r.json").returncode, 0)
        self.assertEqual(json.loads((self.path / "r.json").read_text())["config"]["dropout"], 0)
        # Other heads have the same shapes.
        self.write_json(self.path / "heads.json", {**config, "n_head": 2})
        self.refused("--model heads.json is another model than that of --init", *words, "--model", "heads.json")
        self.write_json(hf / "config.json", {**config, "attn_pdrop": 0.5})
        self.refused("resid_pdrop 0, embd_pdrop 0 and attn_pdrop 0.5", *words)
        self.assertEqual(self.run_program(*words, "--dropout", "0.5").returncode, 0)
        self.refused("--dropout -1", *words, "--dropout=-1")

    def test_a_folder_says_which_model_with_experts_it_holds(self):
        golden = GOLDEN.with_name(GOLDEN.name + "_moe")
        folder = self.path / "experts"
        folder.mkdir()
        (folder / "model.safetensors").write_bytes((golden / "init.safetensors").read_bytes())
        (folder / "config.json").write_bytes((golden / "config.json").read_bytes())
        done = self.run_program("train", "moe", "--ranks", "2", "--ep", "2", "--init", folder, "--data", golden / "tokens.bin",
                                "--global-batch", "2", "--steps", "1", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.path / "r.json").read_text())["config"]["model"], str(folder))

    def write_json(self, path, value):
        path.write_text(json.dumps(value))

    def test_data_without_a_header_are_not_taken_for_text(self):
        tokens = (GOLDEN / "tokens.bin").read_bytes()[1024:]
        for name in ("train.bin", "train_1.u16"):
            (self.path / name).write_bytes(tokens)
        words = ["--model", GOLDEN / "config.json", "--init", GOLDEN / "init.safetensors", *GOLDEN_RUN[6:]]
        self.refused("--data uint16:train.bin", "train", "serial", *words, "--data", "train.bin")
        self.refused("--data uint16:train_1.u16", "train", "serial", *words, "--data", "train_1.u16")
        self.refused("cannot write train.bin, which is also read", "train", "serial", *words, "--data", "uint16:train.bin", "--json", "train.bin")
        losses = []
        for data in (GOLDEN / "tokens.bin", "uint16:train.bin", "uint16:train_?.u16"):
            done = self.run_program("train", "serial", *words, "--data", data, "--json", "r.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append([step["loss"] for step in json.loads((self.path / "r.json").read_text())["steps"]])
        self.assertEqual(losses[1:], losses[:1] * 2)

    def test_weights_that_hugging_face_cannot_read_are_named(self):
        config = json.loads((GOLDEN / "config.json").read_text())
        self.write_json(self.path / "model.json", {**config, "num_key_value_heads": 2})
        done = self.run_program("train", "serial", "--model", "model.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "2", "--steps",
                                "1", "--save", "w.safetensors")
        self.assertIn("w.safetensors: for this program only", done.stdout)
        self.assertEqual(json.loads((self.path / "config.json").read_text())["model_type"], "gpt2-gqa")

    def test_default_text_and_sample(self):
        done = self.run_program("train", "serial", "--steps", "3", "--global-batch", "2", "--sample", "20")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_config_file(self):
        (self.path / "run.toml").write_text("[train.serial]\nsteps=2\nglobal-batch=2\nlr=0.5\n")
        done = self.run_program("train", "serial", "--config", "run.toml", "--lr", "0.001", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.path / "r.json").read_text())["config"]
        self.assertEqual((config["steps"], config["lr"]), (2, 0.001))
        (self.path / "bad.toml").write_text("[train.serial]\nstepz=2\n")
        self.refused("stepz", "train", "serial", "--config", "bad.toml")
        self.refused("regular file", "train", "serial", "--config", "/dev/urandom")

    def test_bad_flags(self):
        train = ["train", "ddp", "--steps", "1"]
        for flag, value in [("--ranks", "0"), ("--ranks", "-1"), ("--ranks", "13"), ("--ranks", "x"), ("--global-batch", "0"),
                            ("--micro-batches", "0"), ("--micro-batches", "13"), ("--steps", "0"), ("--steps", "-3"),
                            ("--lr", "nan"), ("--lr", "-1"), ("--lr", "inf"), ("--warmup-steps", "-1"), ("--beta1", "1"),
                            ("--beta2", "-0.1"), ("--eps", "0"), ("--weight-decay", "-1"), ("--grad-clip", "-1"),
                            ("--validation-fraction", "1"), ("--validation-fraction", "-0.5"), ("--eval-interval", "-1"),
                            ("--order", "backwards"), ("--dtype", "i8"), ("--dtype", "f31"), ("--model", "huge"),
                            ("--model", "missing.json"), ("--sequence-length", "65"), ("--sequence-length", "-1"),
                            ("--threads", "-1"), ("--timeout", "0"), ("--timeout", "-1"), ("--bucket-bytes", "0"), ("--seed", "-1"),
                            ("--fault", "rank=9,kind=throw"), ("--fault", "kind=explode"), ("--clock", "sundial"),
                            ("--data", "missing.txt"), ("--data", "/"), ("--init", "missing.safetensors"),
                            ("--json", "no/such/folder/r.json"), ("--json", "/"), ("--save", "/proc/r.safetensors"),
                            ("--no-such-flag", "1")]:
            with self.subTest(flag=flag, value=value):
                self.refused("", *train, f"{flag}={value}")
        self.assertEqual(list(self.path.iterdir()), [])

    def test_tensor_parallel_run(self):
        done = self.run_program("train", "tp", "--ranks", "2", *GOLDEN_RUN, "--steps", "2", "--tp-overlap", "--dropout", "0.1",
                                "--recompute", "selective", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.path / "r.json").read_text())
        expected = {"technique": "tp", "tp": 2, "sequence_parallel": False, "tp_overlap": True, "dropout": 0.1,
                    "recompute": "selective"}
        self.assertEqual({key: result["config"][key] for key in expected}, expected)
        quantities = {line["quantity"] for line in result["theory"]}
        self.assertLessEqual({"sent_bytes.layers forward", "sent_bytes.layers backward", "sent_bytes"}, quantities)
        for line in result["theory"]:
            self.assertEqual(line["expected"], line["measured"], line)

    def test_sequence_parallel_run(self):
        self.run_program("train", "sp", "--ranks", "2", *GOLDEN_RUN, "--steps", "1", "--json", "r.json")
        self.assertTrue(json.loads((self.path / "r.json").read_text())["config"]["sequence_parallel"])

    def test_flags_of_split_models(self):
        nano = ["--model", "nano", "--steps", "1"]
        self.refused("4 heads on 3 tensor-parallel ranks", "train", "tp", "--ranks", "3", *nano)
        self.refused("the heads must be a multiple of the ranks", "train", "tp", "--ranks", "3", *nano)
        self.refused("--tp 2 with 4 ranks", "train", "tp", "--ranks", "4", "--tp", "2", *nano)
        self.refused("--tp times --cp times --pp must divide --ranks", "train", "3d", "--ranks", "6", "--tp", "4", *nano)
        self.refused("sequences of 7 tokens on 2", "train", "sp", "--ranks", "2", "--sequence-length", "7", *nano)
        for flag, value, part in [("--recompute", "some", "none, selective (the attention) or full"),
                                  ("--dropout", "1.5", "from 0 to below 1"), ("--dropout", "-0.1", "from 0 to below 1"),
                                  ("--dropout", "nan", "from 0 to below 1"), ("--label-smoothing", "1", "from 0 to below 1"),
                                  ("--dropout-streams", "x", "choose place or megatron"),
                                  ("--make-vocab-size-divisible-by", "0", "use 1 or more"), ("--tp", "x", "--tp")]:
            with self.subTest(flag=flag, value=value):
                self.refused(part, "train", "tp", "--ranks", "2", *nano, f"{flag}={value}")
        for flag, value in [("--tp", "-2"), ("--pp", "0"), ("--pp", "-1"), ("--dp", "-1"), ("--tp", "99999999999"),
                            ("--mesh-order", "tp-tp"), ("--mesh-order", "tp-ep"), ("--schedule", "x")]:
            with self.subTest(flag=flag, value=value):
                self.refused("", "train", "3d", "--ranks", "2", *nano, f"{flag}={value}")
        # Their product overflows to 0 in 32 bits.
        self.refused("10 million", "train", "3d", "--ranks", "2", "--tp", "65536", "--pp", "65536", *nano)

    def test_plan_is_predicted_written_and_run(self):
        words = ["3d", "--ranks", "4", "--tp", "2", "--micro-batches", "2", *GOLDEN_RUN, "--steps", "1"]
        done = self.run_program("plan", *words, "--json", "plan.json", "--rank", "0", "--rank", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads((self.path / "plan.json").read_text())
        self.assertEqual((plan["schema"], plan["ranks"], plan["mesh"]["lengths"]["tp"]), ("lockstep.plan/1", 4, 2))
        self.assertEqual([rank["rank"] for rank in plan["predictions"]], [0, 3])
        for command in [("train", "--plan", "plan.json"), ("train", "3d", "--plan", "plan.json", "--tp", "2", "--ranks", "4")]:
            done = self.run_program(*command, "--json", "r.json")
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads((self.path / "r.json").read_text())
            for predicted in plan["predictions"]:
                measured = result["ranks"][predicted["rank"]]
                self.assertEqual(predicted["sent_bytes"], measured["sent_bytes"])
                self.assertEqual(predicted["received_messages"], measured["received_messages"])
                self.assertGreaterEqual(len(predicted["peak_bytes"]), 6)
                for use, expected in predicted["peak_bytes"].items():
                    self.assertEqual(expected, measured["peak_bytes"][use], use)
        self.assertEqual(self.run_program("plan", "plan.json").stdout.splitlines()[:4],
                         self.run_program("plan", *words).stdout.splitlines()[:4])

    def test_plan_files_that_contradict_flags(self):
        self.run_program("plan", "3d", "--ranks", "4", "--tp", "2", "--json", "plan.json")
        self.refused("--tp 4, and plan.json says 2", "train", "--plan", "plan.json", "--tp", "4")
        self.refused("--ranks 2, and plan.json says 4", "train", "--plan", "plan.json", "--ranks", "2")
        self.refused("plan of 3d, not of ddp", "train", "ddp", "--plan", "plan.json")
        self.refused("missing.json", "train", "--plan", "missing.json")
        self.refused("missing.json", "plan", "missing.json")
        (self.path / "cut.json").write_text((self.path / "plan.json").read_text()[:200])
        self.refused("cut.json", "train", "--plan", "cut.json")
        self.refused("rank 4 of a plan for 4 ranks", "plan", "plan.json", "--rank", "4")

    def test_flags_of_other_techniques(self):
        for technique, flag, owners in [("ddp", "--tp", "tp, sp, 3d"), ("tp", "--schedule", "pipeline, 3d"),
                                        ("pipeline", "--bucket-bytes", "ddp, zero, ring-attention, ulysses, cp, 3d"), ("3d", "--servers", "ps")]:
            self.refused(f"{flag} is not an option of {technique}", "train", technique, flag, "1")
            self.refused(f"it belongs to {owners}", "plan", technique, flag, "1")

    def test_bad_commands(self):
        self.refused("", "")
        self.refused("", "fly")
        self.refused("", "train")
        self.refused("train ddp", "train", "serial", "--ranks", "2")

    def test_broken_files(self):
        words = ["train", "ddp", "--ranks", "2", *GOLDEN_RUN]
        weights = (GOLDEN / "init.safetensors").read_bytes()
        tokens = (GOLDEN / "tokens.bin").read_bytes()
        for name, content in {"empty": b"", "truncated": weights[:-1], "short": weights[:4], "long": weights + b"x",
                              "huge": struct.pack("<Q", 1 << 60) + weights[8:], "text": b"hello world, no weights"}.items():
            with self.subTest(weights=name):
                (self.path / name).write_bytes(content)
                self.refused(name, *words, "--init", name, "--save", "out.safetensors")
        for name, content in {"empty": b"", "truncated": tokens[:-1], "header": tokens[:100],
                              "version": tokens[:4] + struct.pack("<i", 9) + tokens[8:]}.items():
            with self.subTest(tokens=name):
                (self.path / name).write_bytes(content)
                self.refused(name, *words, "--data", name, "--json", "r.json")
        for name, content in {"empty": "", "list": "[]", "nothing": "{}", "text": '{"n_layer": "many"}',
                              "heads": (GOLDEN / "config.json").read_text().replace('"n_head": 4', '"n_head": 5')}.items():
            with self.subTest(config=name):
                (self.path / f"{name}.json").write_text(content)
                self.refused(name, *words, "--model", f"{name}.json")
        self.assertFalse((self.path / "r.json").exists() or (self.path / "out.safetensors").exists())
        self.assertFalse(list(self.path.glob("*tmp*")))

    def test_planted_faults(self):
        words = ["train", "ddp", "--ranks", "3", "--global-batch", "3", "--steps", "5", "--timeout", "1"]
        self.refused("rank 1", *words, "--fault", "rank=1,op=2,kind=throw", status=4)
        self.refused("rank 2", *words, "--fault", "rank=2,op=3,kind=hang", status=4)
        self.refused("mismatch", *words, "--fault", "rank=0,op=1,kind=count", status=1)

    def test_device_that_is_not_there(self):
        (self.path / "broken.so").write_text("no library\n")
        for words in [("train", "serial", "--steps", "1"), ("bench", "all_reduce", "-b", "8", "-e", "8")]:
            cuda = [*words, "--device", "cuda"]
            with self.subTest(command=words[0]):
                self.refused("this build has no module /no/module.so", *cuda, LOCKSTEP_CUDA_MODULE="/no/module.so")
                self.refused("broken.so", *cuda, LOCKSTEP_CUDA_MODULE=f"{self.path}/broken.so")
                # Then CUDA sees no GPU on any machine.
                self.refused("no CUDA: ", *cuda, CUDA_VISIBLE_DEVICES="", LOCKSTEP_CUDA_MODULE="")
                self.refused("choose host, cuda or none", *words, "--device", "abacus")
        self.assertIn("this build has no module", self.run_program("doctor", LOCKSTEP_CUDA_MODULE="/no/module.so").stdout)

    def test_dry_run(self):
        words = ["train", "3d", "--model", "gpt3", "--ranks", "16384", "--tp", "8", "--pp", "16", "--zero", "1", "--dtype", "bf16",
                 "--global-batch", "1536", "--micro-batches", "12", "--device", "none"]
        done = self.run_program(*words, "--rank", "777", "--json", "dry.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("dry run of rank 777 of 16384", done.stdout)
        self.assertNotIn("DIFFERS", done.stdout)
        result = json.loads((self.path / "dry.json").read_text())
        self.assertEqual((result["schema"], result["absent"]), ("lockstep.dry-run/1", ["steps", "validation", "time"]))
        for key in result["absent"]:
            self.assertFalse(key in result or key in result["ranks"][0], key)
        done = self.run_program("plan", *words[1:-2], "--rank", "777", "--json", "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        planned = json.loads((self.path / "plan.json").read_text())
        (predicted,), (counted,) = planned["predictions"], result["ranks"]
        for use, bytes_at_peak in predicted["peak_bytes"].items():
            if use != "total":
                self.assertEqual(counted["peak_bytes"][use], bytes_at_peak, use)
        self.assertEqual(counted["sent_bytes"]["total"], predicted["sent_bytes"]["total"])
        # The plan in a file is the same plan.
        done = self.run_program("train", "--plan", "plan.json", "--device", "none", "--rank", "777", "--json", "again.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads((self.path / "again.json").read_text())["ranks"], result["ranks"])

    def test_dry_runs_refuse_what_needs_data_or_time(self):
        dry = ["train", "ddp", "--ranks", "2", "--device", "none"]
        for flag in [["--save", "x.safetensors"], ["--sample", "5"], ["--steps", "3"], ["--init", "x"], ["--data", "x"], ["--trace", "x"],
                     ["--clock", "cpu"], ["--fault", "rank=1,op=2,kind=throw"], ["--slow-rank", "1:2"], ["--timeout", "3"],
                     ["--resume", "x"], ["--checkpoint", "x"]]:
            self.refused(f"{flag[0]} with --device none", *dry, *flag)
        self.refused("ranks are 0 to 1", *dry, "--rank", "2")
        self.refused("--rank with --device host", *dry[:-2], "--rank", "1")
        self.refused("parameter servers have no dry run", "train", "ps", "--ranks", "3", "--device", "none")

    def test_doctor_finds_leftovers_of_killed_jobs(self):
        with tempfile.NamedTemporaryFile(prefix="lockstep-peer-", dir="/dev/shm") as left:
            self.assertRegex(self.run_program("doctor").stdout, rf"{left.name}\n *-> lockstep doctor --clean")
        self.assertNotIn(left.name, self.run_program("doctor").stdout)

    def test_doctor(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "doctor.json"
            done = self.run_program("doctor", "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(path.read_text())
        self.assertEqual(found["schema"], "lockstep.doctor/1")
        self.assertIn("oneDNN", next(each["state"] for each in found["findings"] if each["what"] == "GEMM f32"))
        for each in found["findings"]:
            self.assertRegex(done.stdout, rf"(?m)^{re.escape(each['what'])} +{re.escape(each['state'])}$")
            self.assertIn(each["fix"], done.stdout)
        self.assertGreater(found["machine"]["cores"], 0)
        self.refused("excludes", "doctor", "--clean", "--json", "x.json")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
