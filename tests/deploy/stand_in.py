#!/usr/bin/env python3
"""Stands in for `windrow` in tests of the local cluster: it takes the options of both roles, listens
where it is told, answers health checks, and ends on SIGTERM. It computes nothing."""

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STARTED = time.monotonic()
# A start takes its time: until then it lives and is not ready.
READY_AFTER_SECONDS = 0.5


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path != "/health/ready" or time.monotonic() > STARTED + READY_AFTER_SECONDS
        self.send_response(200 if ready else 503)
        self.end_headers()

    def log_message(self, *_):
        pass


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    roles = parser.add_subparsers(dest="role", required=True)
    scheduler = roles.add_parser("scheduler", allow_abbrev=False)
    scheduler.add_argument("--bind", type=address, required=True)
    scheduler.add_argument("--storage", required=True)
    scheduler.add_argument("--allow-path", action="append")
    executor = roles.add_parser("executor", allow_abbrev=False)
    executor.add_argument("--scheduler", required=True)
    executor.add_argument("--slots", type=int, required=True)
    executor.add_argument("--work-dir", required=True)
    executor.add_argument("--bind", type=address, required=True)
    executor.add_argument("--http", type=address, required=True)
    for role in (scheduler, executor):
        role.add_argument("--drain-seconds", type=int, required=True)
    options = parser.parse_args()
    if os.environ.get("WINDROW_LOG") == f"fail-{options.role}":
        sys.exit(f"{options.role} was told to fail")
    server = ThreadingHTTPServer(options.http if options.role == "executor" else options.bind, Answers)
    print(f"listening on {server.server_address[0]}:{server.server_address[1]}", flush=True)
    print("store", os.environ["AWS_ENDPOINT_URL"], flush=True)

    def drain(_number, _frame):
        print("drained", flush=True)
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, drain)
    server.serve_forever()


if __name__ == "__main__":
    main()
