"""A server that answers as a test says, whatever the real one would: for what a client does about it."""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
from google.protobuf import any_pb2, message_factory
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from notifyqueue.v1 import dispatcher_pb2, scheduler_pb2, worker_pb2

METHODS = {
    f"/{service.full_name}/{method.name}": method
    for contract in (scheduler_pb2, worker_pb2, dispatcher_pb2)
    for service in contract.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status, with the details that the contract promises."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "refused"
    domain: str = "notifyqueue"
    metadata: Mapping[str, str] = field(default_factory=dict)
    details: tuple[Message, ...] = ()

    def status(self) -> status_pb2.Status:
        found = status_pb2.Status(code=self.code.value[0], message=self.message)
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain=self.domain, metadata=self.metadata)
        for detail in ((info,) if self.reason else ()) + self.details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            found.details.append(packed)
        return found


class Hang:
    """No answer at all."""


Answer: TypeAlias = Message | Refusal | Hang | Callable[[Any], Message]


class Scripted(grpc.GenericRpcHandler):
    """Answers each method with what its script says next, the last for ever, and keeps what it was asked."""

    def __init__(self) -> None:
        self._scripts: dict[str, deque[Answer]] = {}
        self.asked: dict[str, list[Any]] = defaultdict(list)
        self.metadata: list[dict[str, str | bytes]] = []
        self.address = ""
        self.ended = threading.Event()

    def answers(self, method: str, *script: Answer) -> None:
        self._scripts[method] = deque(script)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        if (method := METHODS.get(handler_call_details.method)) is None or method.name not in self._scripts:
            return None
        name = method.name

        def answer(request: Message, context: Any) -> Message:
            self.asked[name].append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            script = self._scripts[name]
            said = script[0] if len(script) == 1 else script.popleft()
            if isinstance(said, Refusal):
                context.abort_with_status(rpc_status.to_status(said.status()))
            if isinstance(said, Hang):
                self.ended.wait()
                context.abort(grpc.StatusCode.UNAVAILABLE, "stopped")
            return said(request) if callable(said) else said  # type: ignore[return-value]

        def tell(request: Message, context: Any) -> Iterator[Message]:
            """What the script says next, up to a refusal, or to the end of what there is."""
            self.asked[name].append(request)
            script = self._scripts[name]
            while script:
                said = script.popleft()
                if isinstance(said, Refusal):
                    context.abort_with_status(rpc_status.to_status(said.status()))
                if isinstance(said, Hang):
                    self.ended.wait()
                    return
                yield said(request) if callable(said) else said  # type: ignore[misc]

        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        return make(
            tell if method.server_streaming else answer,
            request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )


@contextmanager
def serving(credentials: grpc.ServerCredentials | None = None) -> Iterator[Scripted]:
    """In threads, so that it also answers a client that has the loop, or none."""
    scripted = Scripted()
    server = grpc.server(ThreadPoolExecutor(8), handlers=[scripted], options=[("grpc.so_reuseport", 0)])
    where = "127.0.0.1:0"
    port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    scripted.address = f"127.0.0.1:{port}"
    server.start()
    try:
        yield scripted
    finally:
        scripted.ended.set()
        server.stop(None).wait()
