"""Starts and stops an S3 server of this machine's own for tests: SeaweedFS, one process, 127.0.0.1 only.

    set -a; eval "$(seaweed.py start)"; set +a       # or: seaweed.py start > s3.env
    ...
    seaweed.py stop "$SEAWEED_PID"

`start` prints variables, one a line, when the bucket can be used: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ALLOW_HTTP, WINDROW_TEST_BUCKET, SEAWEED_PID and SEAWEED_DIR. The
keys are new each time, the ports are free ones, and nothing is reported to anybody. Data lies in a new
temporary folder, which `stop` removes, or in `--dir`, which it leaves.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.fs

HOST = "127.0.0.1"
SERVICES = ("master", "volume", "filer", "s3", "admin")
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20
ATTEMPTS = 3
GRPC_OFFSET = 10000
PORT_TRIES_MAX = 200
# In a folder that `start` made, and therefore `stop` may remove.
MARK = ".made-by-seaweed-py"


class ServerError(Exception):
    """The server could not be started or stopped."""


def find_weed():
    """The server's program: that of this Python environment, else the one in PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if not found:
        raise ServerError("there is no program `weed`: run tests/setup-python and use its interpreter")
    return found


def free_ports(count):
    """Pairs (p, p + 10000) of ports that were free a moment ago; the system chooses p.

    For HTTP and for gRPC: parts of the server take it for granted that they lie so far apart.
    """
    with contextlib.ExitStack() as held:
        pairs = []
        for _ in range(PORT_TRIES_MAX):
            low = held.enter_context(contextlib.closing(socket.socket()))
            low.bind((HOST, 0))
            port = low.getsockname()[1]
            high = held.enter_context(contextlib.closing(socket.socket()))
            try:
                high.bind((HOST, port + GRPC_OFFSET))
                pairs.append((port, port + GRPC_OFFSET))
            except (OSError, OverflowError):
                continue
            if len(pairs) == count:
                return pairs
    raise ServerError("there are not enough free ports")


def start(folder, bucket):
    """Starts a server; returns its variables. Tries again if another program took a port."""
    own = folder is None
    folder = Path(folder or tempfile.mkdtemp(prefix="seaweed-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if own:
        (folder / MARK).touch()
    key, secret = "test" + secrets.token_hex(8), secrets.token_hex(20)
    for attempt in range(1, ATTEMPTS + 1):
        process, port = launch(folder, bucket, key, secret)
        variables = {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{port}", "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            "WINDROW_TEST_BUCKET": bucket, "SEAWEED_PID": str(process.pid), "SEAWEED_DIR": str(folder),
        }
        if wait_for_bucket(process, variables):
            return variables
        end(process.pid)
        if attempt == ATTEMPTS:
            log = (folder / "weed.log").read_text(errors="replace")
            remove_own(folder)
            raise ServerError(f"the server did not come up; the end of its log:\n{log[-2000:]}")


def launch(folder, bucket, key, secret):
    identity = {"name": "test", "credentials": [{"accessKey": key, "secretKey": secret}],
                "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
    config = folder / "s3.json"
    config.touch(mode=0o600)
    config.write_text(json.dumps({"identities": [identity]}))
    data = folder / "data"
    data.mkdir(exist_ok=True)
    ports = dict(zip(SERVICES, free_ports(len(SERVICES))))
    flags = [flag for name, (http, grpc) in ports.items()
             for flag in (f"-{name}.port={http}", f"-{name}.port.grpc={grpc}")]
    command = [
        find_weed(), "mini", f"-dir={data}", f"-ip={HOST}", f"-ip.bind={HOST}", *flags, f"-bucket={bucket}",
        f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-webdav=false", "-admin.ui=false",
        "-master.telemetry=false", "-master.telemetry.url=",
    ]
    # Settings and credentials of the user have no business in a test server.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "WEED_"))}
    with open(folder / "weed.log", "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                                   env=environment | {"HOME": str(folder)}, start_new_session=True)
    return process, ports["s3"][0]


def wait_for_bucket(process, variables):
    """True once an object can be written and read; false if the server ends or takes too long."""
    endpoint = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
    path = f"{variables['WINDROW_TEST_BUCKET']}/.probe"
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until and process.poll() is None:
        try:
            files = pyarrow.fs.S3FileSystem(
                access_key=variables["AWS_ACCESS_KEY_ID"], secret_key=variables["AWS_SECRET_ACCESS_KEY"],
                endpoint_override=endpoint, scheme="http", region="us-east-1", request_timeout=5,
                connect_timeout=1, retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1))
            with files.open_output_stream(path) as stream:
                stream.write(b"up")
            files.delete_file(path)
            return True
        except OSError:
            time.sleep(0.2)
    return False


def arguments_of(pid):
    """The command line of a running process, empty if there is none."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        return raw.decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        pass
    listed = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True)
    return listed.stdout.split()


def is_server(pid):
    words = arguments_of(pid)
    return len(words) > 2 and Path(words[0]).name == "weed" and words[1] == "mini"


def end(pid):
    """Ends the server with this id, gently at first."""
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS_MAX), (signal.SIGKILL, STOP_SECONDS_MAX)):
        until = time.monotonic() + seconds
        while is_server(pid) and time.monotonic() < until:
            try:
                os.kill(pid, number)
                # Reaps it if it is a child of this process.
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                pass
            time.sleep(0.1)
    if is_server(pid):
        raise ServerError(f"process {pid} does not end")


def stop(pid):
    """Ends the server and removes its folder, if `start` made it."""
    if not is_server(pid):
        raise ServerError(f"process {pid} is no server of this script")
    data = next(word for word in arguments_of(pid) if word.startswith("-dir="))
    folder = Path(data.removeprefix("-dir=")).parent
    end(pid)
    remove_own(folder)


def remove_own(folder):
    if (folder / MARK).exists():
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    begin = commands.add_parser("start", help="start a server and print its variables")
    begin.add_argument("--dir", help="folder for the data, kept by stop (default: a temporary one)")
    begin.add_argument("--bucket", default="windrow-test", help="bucket to make (default: %(default)s)")
    finish = commands.add_parser("stop", help="end a server")
    finish.add_argument("pid", type=int, help="SEAWEED_PID as start printed it")
    options = parser.parse_args()
    try:
        if options.command == "stop":
            stop(options.pid)
        else:
            for name, value in start(options.dir, options.bucket).items():
                print(f"{name}={value}")
    except ServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
