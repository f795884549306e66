"""A way to an S3 server on which it replaces objects that it was told to leave alone.

Prints its own address, then serves until it is killed. A PUT with If-None-Match first removes what
is there; everything goes on as it came, so that signatures stay valid. Reads AWS_ENDPOINT_URL and the keys.
"""

import http.client
import http.server
import os
import urllib.parse

import pyarrow.fs

SERVER = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")


class Forgetful(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "PUT" and self.headers.get("If-None-Match"):
            self.remove()
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
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = pass_on

    def remove(self):
        files = pyarrow.fs.S3FileSystem(
            access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=SERVER, scheme="http", region=os.environ["AWS_REGION"])
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        try:
            files.delete_file(path)
        except OSError:
            pass

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
