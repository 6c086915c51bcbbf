"""lockstep calibrate, and lockstep plan --profile, called as users call them.

python3 calibrate_test.py PROGRAM
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import processes

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
SHAPES = ("--global-batch", "4", "--sequence-length", "8")


def run(*words, status=0, environment=None):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=280, env={**os.environ, **(environment or {})})
    assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stderr if status else done.stdout


def mpirun(library, ranks, *words, status=0):
    done = subprocess.run([*processes.MPIRUN[library], "-n", str(ranks), PROGRAM, *map(str, words)], capture_output=True, text=True,
                          timeout=120)
    said = done.stdout + done.stderr
    assert processes.status_asked_for(done.returncode, said) == status, f"{words} ended with {done.returncode}:\n{said}"
    return said


class Calibrate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name)
        cls.profile = cls.path / "machine.json"
        cls.output = run("calibrate", "--ranks", "4,2,2", *SHAPES, "--most-bytes", "4K", "--json", cls.profile)
        cls.machine = json.loads(cls.profile.read_text())

    def changed(self, change):
        """The path of the profile after change(profile)."""
        file = json.loads(self.profile.read_text())
        change(file)
        path = self.path / "changed.json"
        path.write_text(json.dumps(file))
        return path

    def seconds(self, *words):
        path = self.path / "plan.json"
        run("plan", *words, *SHAPES, "--json", path)
        return json.loads(path.read_text())["seconds"]

    def test_measures_what_training_uses(self):
        kernels, collectives = self.machine["kernels"], self.machine["collectives"]
        self.assertIn(f"{len(kernels)} kernels and {len(collectives)} collectives", self.output)
        for name in ("gemm_nt", "attention_backward", "layer_norm", "adamw", "device_reduce"):
            self.assertTrue(any(kernel["name"] == name for kernel in kernels), name)
        keys = [(c["operation"], c["algorithm"], c["ranks"], c["bytes"]) for c in collectives]
        self.assertEqual(len(keys), len(set(keys)), "--ranks 4,2,2 measures two ranks once")
        self.assertEqual({key[2] for key in keys}, {2, 4})
        for algorithm in ("auto", "ring"):
            self.assertEqual({key[3] for key in keys if key[:3] == ("all_reduce", algorithm, 4)}, {1024, 4096})

    def test_predicts_every_technique(self):
        for technique in ("ddp", "zero", "fsdp", "tp", "sp", "pipeline", "cp", "ring-attention", "ulysses"):
            for clock in ("wall", "cpu"):
                with self.subTest(technique=technique, clock=clock):
                    seconds = self.seconds(technique, "--ranks", 2, "--profile", self.profile, "--clock", clock)
                    self.assertEqual("communication" in seconds, clock == "wall")
                    self.assertGreaterEqual(seconds["step"], seconds["compute"] * (1 - 1e-9))

    def test_predictions_repeat_and_follow_the_profile(self):
        words = ("ddp", "--ranks", 2, "--profile")
        once, again = (self.seconds(*words, self.profile) for _ in range(2))
        self.assertEqual(once, again)

        def twice_as_slow(file):
            for key in ("alone_s", "together_s", "in_turns_s"):
                file["between_kernels"][key] *= 2
                for kernel in file["kernels"]:
                    kernel[key] *= 2
            for collective in file["collectives"]:
                collective["seconds"] *= 2

        slow = self.seconds(*words, self.changed(twice_as_slow))
        for key in ("step", "compute", "communication"):
            self.assertAlmostEqual(slow[key] / once[key], 2, delta=1e-9)

    def test_experts(self):
        """Tokens choose the same experts in every run that measures, so every kernel has all times."""
        words, profile = ("--model", "nano-moe", *SHAPES), self.changed(lambda file: file["collectives"][0].update(transport="mpich"))
        said = run("calibrate", "--ranks", 2, *words, "--most-bytes", "4K", "--json", profile)
        self.assertIn("no longer in the file: 1 time of collectives of processes", said)
        kernels = json.loads(profile.read_text())["kernels"]
        self.assertTrue(any(kernel["name"] == "gather_rows" for kernel in kernels))
        for kernel in kernels:
            self.assertGreater(min(kernel["alone_s"], kernel["together_s"], kernel["in_turns_s"]), 0, kernel)
        for ranks in (1, 2):
            for clock in ("wall", "cpu"):
                self.assertGreater(self.seconds("moe", "--ranks", 2, "--ep", ranks, "--model", "nano-moe", "--profile", profile,
                                                "--clock", clock)["step"], 0)

    def test_links_are_those_of_the_run(self):
        words = ("tp", "--ranks", 2, "--profile", self.profile, "--clock", "cpu", "--link")
        near, far = (self.seconds(*words, f"alpha={alpha}ms,beta=1GB/s") for alpha in (1, 2))
        self.assertGreater(far["step"], near["step"] + 1e-3)

    def test_three_engines_are_compared(self):
        """The closed form and virtual time of each factoring are what plan says of it; training has so many steps."""
        path, alpha, beta = self.path / "engines.json", 20e-6, 1 / 5e9
        cores = self.machine["environment"]["cores"]
        compared = 0
        for clock in (("--clock", "cpu", "--link", "alpha=20us,beta=5GB/s"), ()):
            output = run("bench", "3d", "--ranks", 2, *SHAPES, "--profile", self.profile, *clock, "--steps", 3, "--json", path)
            rows = {row["name"]: row for row in json.loads(path.read_text())["benchmarks"]}
            for axis in ("tp", "cp", "pp", "dp"):
                lengths = {other: 2 if other == axis else 1 for other in ("tp", "cp", "pp", "dp")}
                micro_batches = 2 if axis == "dp" else 4
                plan = self.path / "plan.json"
                run("plan", "3d", "--ranks", 2, *SHAPES, f"--{axis}", 2, "--micro-batches", micro_batches, "--profile", self.profile, *clock,
                    "--rank", 0, "--rank", 1, "--json", plan)
                plan = json.loads(plan.read_text())
                seconds = plan["seconds"]
                name = "3d/" + "".join(f"{other}:{length}/" for other, length in lengths.items()) + f"clock:{seconds['clock']}/"
                closed_form, virtual_time, step = (next(row for key, row in rows.items() if key.startswith(name + engine))
                                                   for engine in ("closed_form", "virtual_time", "run"))
                busy = seconds["compute"] + seconds["copies"]
                expected = busy / (1 - plan["bubble"]["expected_fraction"] if axis == "pp" else 1)
                if clock:
                    expected += max(rank["sent_messages"]["total"] * alpha + rank["sent_bytes"]["total"] * beta for rank in plan["predictions"])
                else:
                    expected = max(expected + seconds["communication"], (busy + seconds["communication"]) * 2 / cores)
                self.assertAlmostEqual(closed_form["real_time"] / 1e6 / expected, 1, delta=1e-6, msg=name)
                self.assertAlmostEqual(virtual_time["real_time"] / 1e6 / seconds["step"], 1, delta=1e-6, msg=name)
                self.assertEqual(len(step["samples_us"]), 3)
                compared += 1
            self.assertIn("virtual time: mean ", output)
            self.assertRegex(output, "closed form: mean .* fastest: tp ")
        self.assertEqual(compared, 8)

    def test_another_machine_is_refused(self):
        for key, value in (("host", "other-host"), ("processor", "other processor"), ("cores", 4096)):
            path = self.changed(lambda file, key=key, value=value: file["environment"].update({key: value}))
            error = run("plan", "ddp", "--profile", path, status=2)
            for part in ("another machine", str(value), "lockstep calibrate"):
                self.assertIn(part, error)

    @unittest.skipUnless(shutil.which("mpirun.openmpi") and shutil.which("mpirun.mpich"), "needs both libraries")
    def test_processes_add_their_collectives(self):
        profile = self.changed(lambda file: None)
        before = json.loads(profile.read_text())
        for library in ("openmpi", "mpich"):
            for _ in range(2):  # the second time replaces what the first has added
                said = mpirun(library, 2, "calibrate", "--most-bytes", "4K", "--json", profile)
                self.assertIn(f"collectives measured over {library}", said)
        after = json.loads(profile.read_text())
        self.assertEqual(after["environment"]["time"], before["environment"]["time"])
        self.assertEqual(after["kernels"], before["kernels"])

        def of(file, *transports):
            return [c for c in file["collectives"] if c["transport"] in transports]

        def keys(collectives):
            return sorted((c["operation"], c["algorithm"], c["bytes"]) for c in collectives)

        self.assertEqual(of(after, "threads"), before["collectives"])
        of_two = [c for c in before["collectives"] if c["ranks"] == 2]
        for library in ("openmpi", "mpich"):
            self.assertEqual(keys(of(after, library)), keys(of_two))
        self.assertEqual({fit["transport"] for fit in after["fitted_collectives"]}, {"threads", "openmpi", "mpich"})

        def slower(file):
            for collective in of(file, "openmpi"):
                collective["seconds"] += 1

        slower(after)
        profile.write_text(json.dumps(after))
        words = ("tp", "--ranks", 2, "--profile", profile)
        step, slow = (self.seconds(*words, *more) for more in ((), ("--transport", "openmpi")))
        self.assertEqual([seconds["transport"] for seconds in (step, slow)], ["threads", "openmpi"])
        self.assertGreater(slow["step"], step["step"] + 1)
        self.assertIn("over mpich", run("plan", "ddp", "--ranks", 4, *SHAPES, "--profile", profile, "--transport", "mpich", status=2))
        for words, part in ((("--ranks", "2"), "--ranks under mpirun"), (("--model", "nano"), "--model under mpirun"),
                            (("--json", self.path / "none.json"), "none.json does not exist; make it first"), (("--most-bytes", "5"), "--most-bytes 5")):
            said = mpirun("openmpi", 2, "calibrate", *words, status=2)
            self.assertEqual(said.count("lockstep: "), 1, said)
            self.assertIn(part, said)
        self.assertIn("calibrate in 1 process", mpirun("openmpi", 1, "calibrate", "--json", profile, status=2))
        said = mpirun("openmpi", 1, "calibrate", "--most-bytes", "4K", "--json", profile, ":", "-n", 1, PROGRAM, "calibrate", "--json", profile,
                      status=2)
        self.assertIn("--most-bytes", said)
        self.assertEqual(json.loads(profile.read_text()), after)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "needs Open MPI")
    def test_a_second_writer_loses_nothing(self):
        profile = self.changed(lambda file: None)
        words = [*processes.MPIRUN["openmpi"], "-n", "2", PROGRAM, "calibrate", "--most-bytes", "1K", "--json", profile]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as slow:
            file, number = json.loads(profile.read_text()), 0
            while slow.poll() is None:
                number += 1
                file["environment"]["time"] = f"writing {number}"
                next_file = self.path / "next.json"
                next_file.write_text(json.dumps(file))
                next_file.replace(profile)
                time.sleep(0.1)
            said = slow.stdout.read()
        self.assertEqual(processes.status_asked_for(slow.returncode, said), 2, said)
        self.assertIn("has changed while collectives were measured", said)
        self.assertEqual(json.loads(profile.read_text()), file)

    def test_damaged_profiles_are_refused(self):
        text = self.profile.read_text()
        path = self.path / "damaged.json"
        for content, part in ((text[: len(text) // 2], "is not an object"), ("", "is not an object"), ("[1]", "is not an object"),
                              (text.replace("lockstep.machine/1", "lockstep.machine/2"), "has the schema lockstep.machine/2")):
            path.write_text(content)
            self.assertIn(part, run("plan", "ddp", "--profile", path, status=2))
        self.assertIn("has no \"kernels\"", run("plan", "ddp", "--profile", self.changed(lambda file: file.pop("kernels")), status=2))
        self.assertIn("missing.json", run("plan", "ddp", "--profile", self.path / "missing.json", status=2))

    def test_what_was_not_measured_is_refused(self):
        self.assertIn("on 8 ranks", run("plan", "ddp", "--ranks", 8, "--global-batch", 8, "--profile", self.profile, status=2))
        self.assertIn("in bf16", run("plan", "ddp", "--dtype", "bf16", "--profile", self.profile, status=2))
        self.assertIn("the algorithm halving_doubling",
                      run("plan", "ddp", "--algorithm", "halving_doubling", "--profile", self.profile, status=2))

    def test_flags_that_do_not_fit_are_refused(self):
        profile = ("--profile", self.profile)
        for words, part in ((("--clock", "cpu"), "--clock without --profile"), (("--link", "hdr"), "--link without --profile"),
                            (("--transport", "mpich"), "--transport without --profile"), ((*profile, "--transport", "tcp"), "'tcp'"),
                            ((*profile, "--clock", "cpu", "--transport", "mpich"), "--transport mpich with the clock cpu"),
                            ((*profile, "--clock", "unit"), "--clock unit"), ((*profile, "--link", "hdr"), "clock wall"),
                            ((*profile, "--clock", "sun"), "sun")):
            self.assertIn(part, run("plan", "ddp", *words, status=2))
        self.assertIn("parameter servers", run("plan", "ps", *profile, status=2))
        for words, part in ((("--steps", "5"), "--steps without --profile"), ((*profile, "--tflops", "5"), "--tflops with --profile"),
                            ((*profile, "--link", "hdr"), "clock wall"), ((*profile, "--ranks", "8", "--dp", "8"), "on 8 ranks"),
                            ((*profile, "--ranks", "2", "--steps", "1"), "--steps 1")):
            self.assertIn(part, run("bench", "3d", *words, status=2))
        for words, part in ((("--ranks", "1"), "--ranks 1"), (("--ranks", "2,900"), "--ranks 900"), (("--most-bytes", "5"), "--most-bytes 5"),
                            (("--model", "none-such"), "none-such"), (("--json", "/none/such/file.json"), "/none/such")):
            self.assertIn(part, run("calibrate", *words, status=2))


LIBRARY = PROGRAM.parent.parent / "lib"


def gpus(number):
    return {"LOCKSTEP_CUDA_MODULE": str(LIBRARY / "liblockstep_cuda_emulated.so"), "LOCKSTEP_EMULATOR_DEVICES": str(number),
            "LOCKSTEP_NCCL_MODULE": str(LIBRARY / "liblockstep_nccl_emulated.so")}


@unittest.skipUnless((LIBRARY / "liblockstep_cuda_emulated.so").exists(), "needs the emulator")
class CalibrateGpus(unittest.TestCase):
    def test_gpus(self):
        """Each rank has a GPU of its own."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path, shapes = pathlib.Path(folder.name), ("--global-batch", 2, "--sequence-length", 4)
        profile, plan = path / "gpus.json", path / "plan.json"
        calibrate = ("calibrate", "--device", "cuda", *shapes, "--most-bytes", "1K", "--json", profile)
        self.assertIn("4 ranks on 2 GPUs", run(*calibrate, "--ranks", "2,4", status=2, environment=gpus(2)))
        self.assertIn("of up to 2 ranks on 2 GPUs", run(*calibrate, "--ranks", "2", environment=gpus(2)))
        machine = json.loads(profile.read_text())
        self.assertEqual({(c["transport"], c["ranks"]) for c in machine["collectives"]}, {("nccl", 2)})
        self.assertEqual(set(machine["alignment"]), {"dtype", "unaligned_64_cost", "unaligned_8_cost"})
        waiting = {"cross_entropy", "softmax_gradient", "squared_norm"}  # and, with galore, singular_vectors
        for kernel in machine["kernels"]:
            self.assertEqual("issue_s" in kernel, kernel["name"] not in waiting, kernel)
        names = {kernel["name"] for kernel in machine["kernels"]}
        self.assertLess({"gemm_bias", "gemm_bias_gelu", "gemm_gelu_backward", "attention_backward", "device_reduce", "cross_entropy"}, names)
        for technique in ("ddp", "fsdp", "tp", "pipeline", "ulysses"):
            said = run("plan", technique, "--ranks", 2, *shapes, "--profile", profile, "--json", plan, environment=gpus(2))
            seconds = json.loads(plan.read_text())["seconds"]
            self.assertEqual((seconds["gpu"], seconds["transport"]), ("emulated device", "nccl"))
            self.assertIn("on emulated device", said)
            self.assertGreaterEqual(seconds["step"], seconds["compute"] * (1 - 1e-9))
        words = ("plan", "ddp", "--ranks", 2, *shapes, "--profile", profile)
        for more, number, part in ((("--clock", "cpu"), 2, "a profile of a GPU with the clock cpu"), ((), 3, "its number of GPUs is 2, this one's is 3"),
                                   (("--transport", "mpich"), 2, "--transport mpich with a profile of GPUs")):
            self.assertIn(part, run(*words, *more, status=2, environment=gpus(number)))
        self.assertIn("4 ranks on 2 GPUs", run("plan", "tp", "--ranks", 4, *shapes, "--profile", profile, status=2, environment=gpus(2)))
        self.assertIn("no module", run(*words, status=2, environment={"LOCKSTEP_CUDA_MODULE": "/none/such.so"}))
        self.assertIn("is a profile of GPUs; it would be lost", run("calibrate", "--json", profile, status=2))
        self.assertIn("nano-moe with --device cuda", run("calibrate", "--device", "cuda", "--model", "nano-moe", "--json", path / "none.json",
                                                        status=2, environment=gpus(2)))
        self.assertIn("--device none", run("calibrate", "--device", "none", "--json", path / "none.json", status=2))
        said = mpirun("openmpi", 2, "calibrate", "--json", profile, status=2) if shutil.which("mpirun.openmpi") else "is a profile of GPUs"
        self.assertIn("is a profile of GPUs", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
