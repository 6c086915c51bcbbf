"""lockstep bench attention: its table, its file, its peer, and the input it refuses.

python3 bench_attention_test.py PROGRAM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])

# As much of PyTorch as the peer calls. It writes down the shapes it is given.
TORCH = '''
import pathlib
float64, float32, bfloat16, float16 = "f64", "f32", "bf16", "f16"
SEEN = pathlib.Path(__file__).parent.parent / "seen.txt"

class Tensor:
    def __init__(self, *shape):
        self.shape, self.needs = shape, False
    def to(self, dtype):
        self.dtype = dtype
        return self
    def requires_grad_(self, needs):
        self.needs = needs
        return self

randn = Tensor

def set_num_threads(threads):
    write("threads", threads)

def write(*words):
    with SEEN.open("a") as file:
        print(*words, file=file)

class autograd:
    @staticmethod
    def grad(out, inputs, gradient):
        assert out == "out" and all(x.needs for x in inputs) and not gradient.needs
        write("backward")
'''
FUNCTIONAL = '''
import torch

def scaled_dot_product_attention(q, k, v, is_causal, enable_gqa):
    torch.write("forward", q.dtype, q.shape, k.shape, v.shape, is_causal, enable_gqa)
    return "out"
'''


class BenchAttention(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def bench(self, *words, status=0, environment=None):
        done = subprocess.run([PROGRAM, "bench", "attention", *words], cwd=self.path, capture_output=True, text=True, timeout=120,
                              env={**os.environ, **(environment or {})})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def fake_torch(self, functional=FUNCTIONAL):
        package = self.path / "torch"
        (package / "nn").mkdir(parents=True)
        (package / "__init__.py").write_text(TORCH)
        (package / "nn" / "__init__.py").write_text("")
        (package / "nn" / "functional.py").write_text(functional)
        return {"PYTHONPATH": str(self.path)}

    def test_the_plain_form_agrees_and_keeps_more(self):
        for dtype in ("f32", "f64"):
            self.bench("--lengths", "5,130", "--heads", "6", "--kv-heads", "3", "--head-size", "20", "--batch", "2", "--dtype", dtype,
                       "-n", "2", "--json", "a.json")
            file = json.loads((self.path / "a.json").read_text())
            self.assertEqual(file["context"]["lockstep.attention"], f"6 heads of 20, 3 of keys and values, 2 sequences, {dtype}")
            entries = {(entry["kernel"], entry["length"]): entry for entry in file["benchmarks"]}
            self.assertEqual(set(entries), {(kernel, length) for kernel in ("blockwise", "plain") for length in (5, 130)})
            element = 4 if dtype == "f32" else 8
            for (kernel, length), entry in entries.items():
                rows = 2 * 6 * length * element
                self.assertEqual(entry["kept_bytes"], rows if kernel == "blockwise" else rows * length)
                pairs = 2 * 6 * length * (length + 1) / 2
                for direction, products in (("forward", 2), ("backward", 5)):
                    flops = 1e9 * entry[f"{direction}_gflop_per_s"] * entry[f"{direction}_seconds"]
                    self.assertAlmostEqual(flops / (products * 2 * 20 * pairs), 1, delta=1e-6)

    def test_what_the_plain_form_cannot_do_is_skipped_with_the_reason(self):
        self.assertIn("skipped: the plain form computes in f32 and f64", self.bench("--lengths", "40", "--dtype", "bf16").stdout)
        done = self.bench("--lengths", "20000", "--heads", "1", "--head-size", "1", "-n", "1", "--json", "a.json")
        self.assertRegex(done.stdout, r"plain +20000 +1 skipped: its scores take 3\.0 GiB")
        self.assertEqual([entry["kernel"] for entry in json.loads((self.path / "a.json").read_text())["benchmarks"]], ["blockwise"])

    def test_the_peer_computes_the_same_shapes_in_turn(self):
        done = self.bench("--lengths", "8,16", "--heads", "4", "--kv-heads", "2", "--head-size", "8", "--batch", "3", "-n", "2", "--peer",
                          "torch", environment=self.fake_torch())
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()[1:]], ["blockwise", "plain", "torch"] * 2)
        expected = []
        for length in (8, 16):
            shapes = [f"(3, {heads}, {length}, 8)" for heads in (4, 2, 2)]
            expected += ["threads 1", *[f"forward f32 {' '.join(shapes)} True True", "backward"] * 3]
        self.assertEqual((self.path / "seen.txt").read_text().splitlines(), expected)

    def test_a_peer_that_fails_ends_the_run_with_its_message(self):
        environment = self.fake_torch("def scaled_dot_product_attention(*given, **named): raise RuntimeError('no such kernel')")
        done = self.bench("--lengths", "8", "--peer", "torch", status=4, environment=environment)
        self.assertIn("no such kernel", done.stderr)
        self.assertIn("PyTorch's process has ended", done.stderr)

    def test_without_torch_the_rest_is_measured(self):
        package = self.path / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError")
        done = self.bench("--lengths", "8", "--peer", "torch", environment={"PYTHONPATH": str(self.path)})
        self.assertIn("# torch skipped: no python3 here can import torch", done.stdout)
        self.assertIn("blockwise", done.stdout)

    def test_bad_flags_are_refused(self):
        for words in (["--lengths", "0"], ["--heads", "0"], ["--heads", "6", "--kv-heads", "4"], ["--kv-heads", "-1"], ["--head-size", "0"],
                      ["--batch", "0"], ["--threads", "0"], ["-n", "0"], ["--dtype", "i8"], ["--peer", "jax"], ["--json", "/proc/a.json"],
                      ["--lengths", "100000000", "--heads", "100"]):
            with self.subTest(words=words):
                self.assertIn("lockstep: ", self.bench(*words, status=2).stderr)
        self.assertEqual(list(self.path.iterdir()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
