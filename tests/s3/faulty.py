"""A way to an S3 server on which some requests go wrong, as they do on a busy or a broken network.

    faulty.py --share 0.1 --seed 7

Prints its own address, then serves until it is killed. A chosen share of the requests (by seed) gets one
of: 503 SlowDown or 500 without being passed on; an answer that is lost after the request was done; an
answer whose body breaks off; no answer for some seconds. Everything else goes on as it came, so that
signatures stay valid. Reads AWS_ENDPOINT_URL. On the way out (SIGTERM) it prints how many of each there were.
"""

import argparse
import collections
import http.client
import http.server
import os
import random
import signal
import sys
import threading
import time

SERVER = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
FAULTS = ("slow_down", "internal_error", "lost_answer", "truncated", "silence")
SILENCE_SECONDS = 3

counts = collections.Counter()
lock = threading.Lock()
chance = random.Random()
share = 0.0


def chosen():
    with lock:
        counts["requests"] += 1
        fault = chance.choice(FAULTS) if chance.random() < share else None
        if fault:
            counts[fault] += 1
        return fault


class Faulty(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = chosen()
        if fault in ("slow_down", "internal_error"):
            status, code = (503, "SlowDown") if fault == "slow_down" else (500, "InternalError")
            self.answer(status, code, [], f"<Error><Code>{code}</Code></Error>".encode())
            return
        if fault == "silence":
            time.sleep(SILENCE_SECONDS)
            self.break_off()
            return
        connection = http.client.HTTPConnection(SERVER, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if fault == "lost_answer":
            self.break_off()
            return
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        if fault == "truncated" and len(content) > 1:
            self.answer(answer.status, answer.reason, answer.getheaders(), content[: len(content) // 2], length)
            self.break_off()
            return
        self.answer(answer.status, answer.reason, answer.getheaders(), content, length)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

    def answer(self, status, reason, headers, content, length=None):
        self.send_response_only(status, reason)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def break_off(self):
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        # A client that went away is what this is about.
        pass


def tell(*_):
    print(" ".join(f"{name}={count}" for name, count in sorted(counts.items())), flush=True)
    sys.exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    share = arguments.share
    chance.seed(arguments.seed)
    signal.signal(signal.SIGTERM, tell)
    server = Server(("127.0.0.1", 0), Faulty)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
