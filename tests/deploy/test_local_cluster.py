"""The local cluster: comes up, is usable, and leaves nothing behind, whatever way it ends. The program
is a stand-in (stand_in.py); the S3 server is a real one."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from chart import ROOT

SCRIPT = ROOT / "deploy/local/cluster.py"
STAND_IN = Path(__file__).parent / "stand_in.py"
SECONDS_MAX = 60


def alive(pid):
    try:
        # A zombie has ended; only its parent has not looked yet.
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@unittest.skipUnless(Path("/proc/self/stat").exists(), "looks at processes in /proc")
class LocalCluster(unittest.TestCase):
    def start(self, *options, **variables):
        self.folder = tempfile.TemporaryDirectory(prefix="windrow-local-")
        self.addCleanup(self.folder.cleanup)
        self.script = subprocess.Popen(
            [sys.executable, SCRIPT, "--binary", STAND_IN, "--dir", self.folder.name, "--bucket", "lake", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | variables, start_new_session=True,
            # Tests that run in a shell's background have inherited that Ctrl-C is nothing.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        self.addCleanup(self.end)

    def end(self):
        if self.script.poll() is None:
            self.script.send_signal(signal.SIGTERM)
        self.script.communicate(timeout=SECONDS_MAX)

    def told(self):
        """What it says when it is up; and the ids of the processes by name."""
        text = ""
        for line in self.script.stdout:
            text += line
            if "Ctrl-C" in line:
                break
        pids = {m[1]: int(m[2]) for m in re.finditer(r"(?m)^    (\S+) .* pid (\d+)", text)}
        return text, pids

    def gone(self, pids):
        until = time.monotonic() + SECONDS_MAX
        while any(alive(pid) for pid in pids.values()) and time.monotonic() < until:
            time.sleep(0.1)
        self.assertEqual([name for name, pid in pids.items() if alive(pid)], [])

    def log(self, name):
        return (Path(self.folder.name) / f"{name}.log").read_text()

    def test_comes_up_and_ends_on_ctrl_c(self):
        self.start("--executors", "2", AWS_ENDPOINT_URL="http://elsewhere.example", AWS_PROFILE="mine")
        text, pids = self.told()
        self.assertEqual(pids.keys(), {"scheduler", "executor-0", "executor-1", "S3"}, self.log("scheduler"))
        self.assertTrue(all(alive(pid) for pid in pids.values()))
        environment = Path(self.folder.name) / "env"
        self.assertEqual(environment.stat().st_mode & 0o777, 0o600)
        variables = subprocess.run(["sh", "-c", f". '{environment}' && env"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(variables, r"(?m)^WINDROW_SCHEDULER=http://127\.0\.0\.1:\d+$")
        endpoint = re.search(r"(?m)^AWS_ENDPOINT_URL=(http://127\.0\.0\.1:\d+)$", variables)[1]
        self.assertNotIn(re.search(r"(?m)^AWS_SECRET_ACCESS_KEY=(.+)$", variables)[1], text)
        self.assertIn(f"store {endpoint}", self.log("executor-1"))
        self.script.send_signal(signal.SIGINT)
        self.assertEqual(self.script.wait(SECONDS_MAX), 0)
        self.gone(pids)
        self.assertIn("drained", self.log("scheduler") + self.log("executor-0"))

    def test_ends_all_when_one_dies(self):
        self.start("--executors", "1")
        _, pids = self.told()
        os.kill(pids["executor-0"], signal.SIGKILL)
        self.assertEqual(self.script.wait(SECONDS_MAX), 1)
        self.assertIn("executor-0", self.script.stderr.read())
        self.gone(pids)

    def test_says_why_it_does_not_come_up(self):
        self.start("--executors", "1", WINDROW_LOG="fail-executor")
        out, said = self.script.communicate(timeout=SECONDS_MAX)
        self.assertEqual(self.script.returncode, 1)
        self.assertIn("executor was told to fail", said)
        self.assertEqual(out, "")
        left = subprocess.run(["pgrep", "-f", self.folder.name], capture_output=True, text=True).stdout
        self.assertEqual(left, "")

    def test_names_a_program_that_is_missing(self):
        told = subprocess.run([sys.executable, SCRIPT, "--binary", "/no/such/windrow"], capture_output=True, text=True)
        self.assertEqual(told.returncode, 1)
        self.assertIn("/no/such/windrow is no program", told.stderr)


if __name__ == "__main__":
    unittest.main()
