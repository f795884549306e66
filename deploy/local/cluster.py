#!/usr/bin/env python3
"""A Windrow cluster on this machine, as processes: an S3 server, one scheduler, some executors.

    deploy/local/cluster.py                         # three executors with two slots each
    deploy/local/cluster.py --executors 1 --dir lake   # keeps its data in ./lake

It listens on 127.0.0.1 only, on ports that the system chooses, prints how to use the cluster when it is
ready, and stays until Ctrl-C, SIGTERM or the end of any of its processes; then it ends them all, each by
its id. Without --dir everything lies in a temporary folder, which is removed at the end.

The S3 server is the one of the tests (SeaweedFS; tests/setup-python installs it). Exit status: 0 after
Ctrl-C or SIGTERM, 1 if the cluster did not come up or a process ended by itself, 2 for a wrong option.
"""

import argparse
import contextlib
import os
import queue
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_SECONDS_MAX = 60
# Longer than the draining that the processes are told.
DRAIN_SECONDS, END_SECONDS_MAX = 5, 15
LOG_LINES_SHOWN = 15
LISTENING = re.compile(r"listening on \S*?(\d+)\s*$")


class ClusterError(Exception):
    """Why there is no cluster, or none any more."""


class Process:
    """One process of the cluster. What it says goes to its log; its end goes to `ended`."""

    def __init__(self, name, command, environment, folder, ended):
        self.name, self.log, self.port = name, folder / f"{name}.log", None
        self.said_port = threading.Event()
        # A session of its own: Ctrl-C in the terminal is for this script, which then ends the others in order.
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True)
        self.reader = threading.Thread(target=self.read, args=(ended,), daemon=True)
        self.reader.start()

    def read(self, ended):
        with open(self.log, "ab", buffering=0) as log:
            for line in self.child.stdout:
                log.write(line)
                match = LISTENING.search(line.decode(errors="replace"))
                if match and self.port is None:
                    self.port = int(match[1])
                    self.said_port.set()
        self.child.wait()
        # Whoever waits for the port need not wait longer.
        self.said_port.set()
        ended.put(self)

    def last_words(self):
        self.reader.join(timeout=5)
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "".join(f"\n    {line}" for line in lines)

    def signal(self, number):
        # Of a child that was not waited for, the id is not given to anybody else.
        if self.child.poll() is None:
            self.child.send_signal(number)


class Store:
    """The S3 server, through the script of the tests."""

    def __init__(self, folder, bucket):
        made = subprocess.run([ROOT / "tests/setup-python"], capture_output=True, text=True, start_new_session=True)
        if made.returncode != 0:
            raise ClusterError(f"tests/setup-python failed:\n{made.stderr}")
        self.script = [made.stdout.strip(), str(ROOT / "tests/s3/seaweed.py")]
        started = subprocess.run([*self.script, "start", "--dir", str(folder / "s3"), "--bucket", bucket],
                                 capture_output=True, text=True, start_new_session=True)
        if started.returncode != 0:
            raise ClusterError(f"the S3 server did not start:\n{started.stderr}")
        said = dict(line.split("=", 1) for line in started.stdout.splitlines())
        self.pid = int(said["SEAWEED_PID"])
        self.variables = {name: value for name, value in said.items() if name.startswith("AWS_")}

    def runs(self):
        try:
            os.kill(self.pid, 0)
            return True
        except ProcessLookupError:
            return False

    def stop(self):
        if self.runs():
            subprocess.run([*self.script, "stop", str(self.pid)], capture_output=True, start_new_session=True)


class Cluster:
    """All processes; `stop` ends those that were started, however far the start came."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.ended = queue.Queue()
        self.store, self.processes, self.health = None, [], {}

    def start(self):
        options = self.options
        self.store = Store(self.folder, options.bucket)
        # Settings and credentials of the user have no business here.
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("AWS_", "WINDROW_")) or name == "WINDROW_LOG"}
        self.environment |= self.store.variables
        self.scheduler = self.launch("scheduler", [
            "scheduler", "--bind", f"{HOST}:0", "--storage", f"s3://{options.bucket}/windrow",
            "--allow-path", f"s3://{options.bucket}/", "--drain-seconds", str(DRAIN_SECONDS)])
        until = time.monotonic() + START_SECONDS_MAX
        if not self.scheduler.said_port.wait(START_SECONDS_MAX) or self.scheduler.port is None:
            raise ClusterError(f"the scheduler did not say where it listens:{self.scheduler.last_words()}")
        self.url = f"http://{HOST}:{self.scheduler.port}"
        self.health["scheduler"] = self.url
        for number in range(options.executors):
            http = free_port()
            name = f"executor-{number}"
            scratch = self.folder / "scratch" / name
            scratch.mkdir(parents=True, exist_ok=True)
            self.launch(name, [
                "executor", "--scheduler", self.url, "--slots", str(options.slots), "--work-dir", str(scratch),
                "--bind", f"{HOST}:0", "--http", f"{HOST}:{http}", "--drain-seconds", str(DRAIN_SECONDS)])
            self.health[name] = f"http://{HOST}:{http}"
        for name, url in self.health.items():
            self.wait_until_ready(name, url, until)

    def launch(self, name, arguments):
        process = Process(name, [self.options.binary, *arguments], self.environment, self.folder, self.ended)
        self.processes.append(process)
        return process

    def wait_until_ready(self, name, url, until):
        while not answers(f"{url}/health/ready"):
            self.fail_if_one_ended(wait=0.2)
            if time.monotonic() > until:
                raise ClusterError(f"{name} was not ready after {START_SECONDS_MAX} s; its log is {self.folder / name}.log")

    def fail_if_one_ended(self, wait):
        """Waits so many seconds for the end of a process, which is a failure."""
        with contextlib.suppress(queue.Empty):
            process = self.ended.get(timeout=wait)
            how = process.child.returncode
            how = f"exit {how}" if how >= 0 else f"signal {-how}"
            raise ClusterError(f"{process.name} (pid {process.child.pid}) has ended by itself, {how}:{process.last_words()}")
        if not self.store.runs():
            raise ClusterError(f"the S3 server (pid {self.store.pid}) has ended by itself; its log is {self.folder}/s3/weed.log")

    def stop(self):
        for process in self.processes:
            process.signal(signal.SIGTERM)
        until = time.monotonic() + END_SECONDS_MAX
        for process in self.processes:
            try:
                process.child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.signal(signal.SIGKILL)
                process.child.wait()
        # Last, since those that drain still write to it.
        if self.store:
            self.store.stop()

    def environment_file(self):
        """Variables for a client; only its owner may read them."""
        path = self.folder / "env"
        path.touch(mode=0o600)
        variables = self.store.variables | {"WINDROW_SCHEDULER": self.url}
        path.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
        return path

    def how_to_use(self):
        lines = [f"A scheduler, {self.options.executors} executors with {self.options.slots} slots each, and s3://{self.options.bucket}:", ""]
        for process in self.processes:
            lines.append(f"    {process.name:<12} {self.health[process.name]:<24} pid {process.child.pid:<8} log {process.log}")
        lines += [f"    {'S3':<12} {self.store.variables['AWS_ENDPOINT_URL']:<24} pid {self.store.pid}", "",
                  "In another terminal:", "",
                  f"    . {shlex.quote(str(self.environment_file()))}      # WINDROW_SCHEDULER and AWS_* of the S3 server",
                  f"    windrow run PIPELINE       # its storage below s3://{self.options.bucket}/",
                  f"    curl {self.url}/metrics", "",
                  "Ctrl-C ends them all."]
        return "\n".join(lines)


def free_port():
    """One that was free a moment ago, of the system's choice."""
    with contextlib.closing(socket.socket()) as held:
        held.bind((HOST, 0))
        return held.getsockname()[1]


def answers(url):
    # Not through a proxy that the environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def find_binary(given):
    named = given or shutil.which("windrow")
    built = [Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / profile / "windrow" for profile in ("release", "debug")]
    found = named or next((str(path) for path in built if path.exists()), None)
    if not found or not os.access(found, os.X_OK):
        raise ClusterError(f"{found or 'windrow'} is no program: build it (cargo build -p windrow-cli) or name one with --binary")
    return str(Path(found).resolve())


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--executors", type=positive, default=3, help="how many (default: %(default)s)")
    parser.add_argument("--slots", type=positive, default=2, help="tasks at once in each executor (default: %(default)s)")
    parser.add_argument("--bucket", default="lake", help="bucket to make (default: %(default)s)")
    parser.add_argument("--dir", type=Path, help="folder for data and logs, kept at the end (default: a temporary one)")
    parser.add_argument("--binary", help="the windrow program (default: the one in PATH, else the one built here)")
    return parser.parse_args()


def interrupted(_number, _frame):
    raise KeyboardInterrupt


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, interrupted)
    folder = Path(options.dir or tempfile.mkdtemp(prefix="windrow-cluster-")).resolve()
    cluster, status = None, 0
    try:
        options.binary = find_binary(options.binary)
        folder.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(options, folder)
        cluster.start()
        print(cluster.how_to_use(), flush=True)
        while True:
            cluster.fail_if_one_ended(wait=1)
    except KeyboardInterrupt:
        print("\nending", file=sys.stderr)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    finally:
        # The end has its own limits and is not to be interrupted half way.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if cluster:
            cluster.stop()
        if not options.dir:
            shutil.rmtree(folder, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
