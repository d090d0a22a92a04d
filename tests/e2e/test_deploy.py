"""What deploy/ has for other ways to start a fleet: each file is true to the programs, and runs as far as it can here."""
import json
import os
import re
import shutil
import subprocess
import unittest

import yaml

from harness import BIN, ROOT, EndToEnd

DEPLOY = ROOT / "deploy"
SWEEP = "name: placed\nrounds: 2\narms: [gather]\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"
# Takes its options, then does what it is given, once: one node is all there is here.
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'


def commands(text):
    """Program, command or None, and the long options that follow it, wherever corefan is called."""
    flat = re.sub(r"\\\n\s*", " ", text).replace(",", " ").replace("[", " ").replace("'", " ")
    for line in re.findall(r"\b(corefan(?:-worker)?(?: +(?:run|keygen))?)((?: +[^\n]*)?)", flat):
        program, _, command = line[0].partition(" ")
        yield program, command.strip() or None, re.findall(r"(?<![\w-])--[a-z-]+", line[1].split("#")[0])


class Files(EndToEnd):
    def options(self, program, command):
        words = [str(BIN / program), *([command] if command else []), "--help"]
        return set(re.findall(r"--[a-z-]+", subprocess.run(words, capture_output=True, text=True, check=True).stdout))

    def test_options_are_those_of_the_programs(self):
        seen = 0
        for name in ("systemd/corefan-worker@.service", "slurm/corefan.sbatch", "kubernetes/corefan.yaml"):
            text = (DEPLOY / name).read_text()
            for program, command, used in commands(re.sub(r"^ *#.*$", "", text, flags=re.M)):
                foreign = {"--nodes", "--ntasks", "--ntasks-per-node", "--overlap"}
                self.assertLessEqual(set(used) - foreign, self.options(program, command), f"{name}: {program} {command}")
                seen += len(used)
        self.assertGreater(seen, 15)

    def test_the_unit_is_one(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not here")
        unit = (DEPLOY / "systemd/corefan-worker@.service").read_text()
        path = self.scratch / "corefan-worker@.service"
        path.write_text(unit.replace("/usr/bin/corefan-worker", str(BIN / "corefan-worker")))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_manifest_hangs_together(self):
        service, coordinator, workers = yaml.safe_load_all((DEPLOY / "kubernetes/corefan.yaml").read_text())
        pods = [job["spec"]["template"]["spec"] for job in (coordinator, workers)]
        labels = [job["spec"]["template"]["metadata"]["labels"] for job in (coordinator, workers)]
        self.assertLessEqual(service["spec"]["selector"].items(), labels[0].items())
        expected = pods[0]["containers"][0]["command"]
        self.assertEqual(int(expected[expected.index("--expect") + 1]), workers["spec"]["completions"])
        self.assertIn(f"tcp://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}", pods[1]["containers"][0]["command"][2])
        for pod in pods:
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in pod["containers"] + pod["initContainers"]:
                self.assertLessEqual({mount["name"] for mount in container["volumeMounts"]}, volumes)
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
            for container in pod["containers"]:
                self.assertEqual(container["resources"]["requests"], container["resources"]["limits"])  # or no CPU is its own


class Slurm(EndToEnd):
    def submit(self, *argv, **env):
        (self.scratch / "bin").mkdir(exist_ok=True)
        srun = self.scratch / "bin/srun"
        srun.write_text(SRUN)
        srun.chmod(0o755)
        cpu = max(os.sched_getaffinity(0))
        return subprocess.run([str(DEPLOY / "slurm/corefan.sbatch"), *argv], cwd=self.scratch, capture_output=True, text=True, check=False,
                              timeout=120, env=dict(os.environ, PATH=f"{self.scratch}/bin:{BIN}:{os.environ['PATH']}",
                                                    SLURM_JOB_ID=str(os.getpid()), SLURM_JOB_NUM_NODES="1", SLURM_CPUS_ON_NODE="2",
                                                    COREFAN_ADDRESS="127.0.0.1", COREFAN_WORKER_CPUS=str(cpu), **env))

    def test_the_script_runs_a_sweep_over_its_nodes(self):
        done = self.submit(self.write("placed.yaml", SWEEP), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        place = self.scratch / f"corefan-{os.getpid()}"
        summary = json.loads((place / "run/summary.json").read_text())
        self.assertEqual([cell["rounds"] for cell in summary["cells"]], [2])
        self.assertEqual([path.name for path in place.rglob("*.key")], [])  # no secret outlives the job

    def test_what_is_wrong_is_told(self):
        self.assertEqual(self.submit().returncode, 2)
        self.assertEqual(self.submit("/nowhere.yaml", "--quiet").returncode, 2)


if __name__ == "__main__":
    unittest.main()
