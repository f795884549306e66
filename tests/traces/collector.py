"""A collector of traces for tests: takes spans over gRPC as OpenTelemetry's own messages have them.

Prints its address, and then each span as a line of JSON, with the service that it is from. Ends when its
stdin does.
"""

import concurrent.futures
import json
import sys
import threading

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

SAYING = threading.Lock()


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def Export(self, request, context):
        for of_process in request.resource_spans:
            service = attributes(of_process.resource.attributes).get("service.name")
            for scope in of_process.scope_spans:
                for span in scope.spans:
                    self.say({
                        "service": service, "name": span.name, "kind": span.kind, "trace": span.trace_id.hex(),
                        "span": span.span_id.hex(), "parent": span.parent_span_id.hex(),
                        "nanos": span.end_time_unix_nano - span.start_time_unix_nano,
                        "attributes": attributes(span.attributes),
                    })
        return trace_service_pb2.ExportTraceServiceResponse()

    def say(self, what):
        with SAYING:
            print(json.dumps(what), flush=True)


def main():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Collector(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"http://127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
