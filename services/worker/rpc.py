"""The Worker service: about the process that answers."""

import structlog

from notifyqueue.v1 import worker_pb2, worker_pb2_grpc
from services.worker import messages
from services.worker.worker import Worker
from shared.drain import drain_timeout
from shared.layers import Context, current_call
from shared.server import Service

log = structlog.get_logger()

FULL_NAME = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name
UNTIMED = frozenset({f"{FULL_NAME}/DrainWorker"})


class WorkerControl(worker_pb2_grpc.WorkerServicer):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def GetWorkerStatus(
        self, request: worker_pb2.GetWorkerStatusRequest, context: Context
    ) -> worker_pb2.GetWorkerStatusResponse:
        return worker_pb2.GetWorkerStatusResponse(worker=messages.status(self._worker))

    async def DrainWorker(
        self, request: worker_pb2.DrainWorkerRequest, context: Context
    ) -> worker_pb2.DrainWorkerResponse:
        timeout = drain_timeout(request, self._worker.shutdown_timeout)
        log.info("worker.drain_asked", actor=current_call.get().actor)
        await self._worker.drain(timeout)
        return worker_pb2.DrainWorkerResponse(worker=messages.status(self._worker))

    async def ResumeWorker(
        self, request: worker_pb2.ResumeWorkerRequest, context: Context
    ) -> worker_pb2.ResumeWorkerResponse:
        log.info("worker.resume_asked", actor=current_call.get().actor)
        self._worker.resume()
        return worker_pb2.ResumeWorkerResponse(worker=messages.status(self._worker))


def service(worker: Worker) -> Service:
    control = WorkerControl(worker)
    return Service(FULL_NAME, lambda server: worker_pb2_grpc.add_WorkerServicer_to_server(control, server))
