"""Trains with states in a file: under a limit of memory that the states exceed four times, and when the disk fails.

python3 offload_test.py PROGRAM
"""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
LIBRARIES = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
HAS_SANITIZER = "libasan" in LIBRARIES or "libtsan" in LIBRARIES
SMALL = ["train", "fsdp", "--ranks", "2", "--global-batch", "4", "--offload", "optimizer", "--offload-to", "tier"]
# 75.8 million parameters, whose blocks are small: 16 bytes of values, gradients and states each.
LARGE = {"model_type": "gpt2", "n_layer": 24, "n_head": 8, "n_embd": 512, "n_positions": 64, "vocab_size": 256,
         "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05, "tie_word_embeddings": True}
PARAMETERS = 75_822_080


class Offload(unittest.TestCase):
    def setUp(self):
        # Not in /tmp, which may be memory.
        folder = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.path = pathlib.Path(folder.name)
        self.addCleanup(folder.cleanup)

    def run_program(self, *words, limits=()):
        def limit():
            for kind, most in limits:
                resource.setrlimit(kind, (most, most))

        # OpenBLAS takes 128 MiB of addresses for each of its threads.
        return subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=200, preexec_fn=limit,
                              env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})

    def refused(self, part, *words, limits=()):
        done = self.run_program(*words, limits=limits)
        self.assertEqual(done.returncode, 2, done.stdout[-300:] + done.stderr)
        self.assertIn(part, done.stderr)
        self.assertTrue(done.stderr.startswith("lockstep: ") and done.stderr.count("\n") == 1, done.stderr)

    @unittest.skipIf(HAS_SANITIZER, "sanitizers need the memory themselves")
    def test_states_of_four_times_the_limit(self):
        (self.path / "large.json").write_text(json.dumps(LARGE))
        words = ["train", "fsdp", "--ranks", "1", "--threads", "1", "--model", "large.json", "--global-batch", "1", "--sequence-length",
                 "16", "--steps", "1", "--dtype", "bf16"]
        most = 16 * PARAMETERS // 4
        limits = [(resource.RLIMIT_DATA, most)]
        self.refused("this training needs about 1.15 GiB of memory", *words, limits=limits)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        done = self.run_program(*words, "--offload", "parameters", "--offload-to", "tier", "--offload-group", "65536", "--json", "r.json",
                                limits=limits)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        self.assertLess(before * 1024, resident)
        self.assertLess(resident, most)
        # The ledger promises less than the kernel counts, by the program, its libraries and the data.
        rank = json.loads((self.path / "r.json").read_text())["ranks"][0]
        self.assertLess(resident, rank["peak_bytes"]["total"] + (100 << 20))
        # At least masters and moments, read and written once.
        self.assertGreater(rank["offload"]["read_bytes"], 12 * PARAMETERS)
        self.assertGreater(rank["offload"]["written_bytes"], 12 * PARAMETERS)
        self.assertEqual(sorted(path.name for path in self.path.iterdir()), ["large.json", "r.json"])

    def test_a_disk_that_is_too_small(self):
        self.refused("cannot reserve space for tier.", *SMALL, "--steps", "1", limits=[(resource.RLIMIT_FSIZE, 1 << 20)])
        self.assertEqual(list(self.path.iterdir()), [])

    def test_a_full_disk(self):
        words = ["unshare", "--map-root-user", "--mount", "sh", "-c",
                 'mount -t tmpfs -o size=2m none "$0" && cd "$0" && "$@"; status=$?; ls; exit $status', self.path]
        if subprocess.run([*words, "true"], capture_output=True).returncode != 0:
            self.skipTest("no file system can be mounted")
        done = subprocess.run([*words, PROGRAM, *SMALL, "--steps", "1"], capture_output=True, text=True, timeout=100)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, "cannot reserve space for tier.[01]: No space left on device; free space, or name a file")

    def test_names_that_cannot_be_used(self):
        (self.path / "tier.1").write_text("mine")
        self.refused("cannot create tier.1: File exists; name a file that does not exist", *SMALL, "--steps", "1")
        self.assertEqual((self.path / "tier.1").read_text(), "mine")
        self.refused("name a file: --offload-to FILE; or train on a GPU", *SMALL[:-1], "memory", "--steps", "1")
        self.refused("--offload has no effect here", "train", "zero", "--stage", "0", "--offload", "optimizer", "--steps", "1")
        self.refused("--offload-to has no effect here", "train", "zero", "--offload-to", "tier", "--steps", "1")
        self.refused("use stage 3 or train fsdp", "train", "zero", "--stage", "2", "--offload", "parameters", "--steps", "1")

    def test_activations(self):
        words = ["train", "tp", "--ranks", "2", "--steps", "1"]
        self.refused("--partition-activations has no effect here", *words, "--partition-activations")
        words += ["--recompute", "full"]
        self.refused("without --sequence-parallel", *words, "--partition-activations", "--sequence-parallel")
        self.refused("it needs --partition-activations", *words, "--offload-activations")
        words += ["--partition-activations"]
        self.refused("--offload-to has no effect here", *words, "--offload-to", "tier")
        self.refused("name a file: --offload-to FILE; or train on a GPU", *words, "--offload-activations")
        self.run_program(*words, "--offload-activations", "--offload-to", "tier", "--json", "r.json")
        config = json.loads((self.path / "r.json").read_text())["config"]
        self.assertTrue(config["partition_activations"] and config["offload_activations"])
        self.assertEqual(config["offload_to"], "tier")

    def test_a_killed_run_leaves_nothing(self):
        run = subprocess.Popen([PROGRAM, *SMALL, "--steps", "1000000"], cwd=self.path, stdout=subprocess.DEVNULL)
        folder = pathlib.Path(f"/proc/{run.pid}/fd")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and run.poll() is None:
            targets = [os.readlink(link) for link in folder.iterdir()]
            if sum(target.endswith("(deleted)") and "/tier." in target for target in targets) == 2:
                break
            time.sleep(0.05)
        self.assertIsNone(run.poll())
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
