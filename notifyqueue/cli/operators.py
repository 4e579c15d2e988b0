"""Commands that steer: the lanes of all workers, and one process."""

from enum import StrEnum
from typing import Annotated

import typer

from notifyqueue import Channel
from notifyqueue.cli import exits
from notifyqueue.cli.output import enum_name, plain
from notifyqueue.cli.session import Session, command
from notifyqueue.cli.stats import lane_table, standing
from notifyqueue.cli.values import to_value
from notifyqueue.processes import connect_dispatcher, connect_worker
from notifyqueue.v1.dispatcher_pb2 import DispatcherStatus
from notifyqueue.v1.process_pb2 import PROCESS_PHASE_DRAINING
from notifyqueue.v1.worker_pb2 import WorkerStatus


class Action(StrEnum):
    LIST = "list"
    PAUSE = "pause"
    RESUME = "resume"


class ProcessKind(StrEnum):
    WORKER = "worker"
    DISPATCHER = "dispatcher"


@command()
async def lanes(
    session: Session,
    *,
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    channel: Annotated[str | None, typer.Argument(metavar="[EMAIL|SMS|PUSH]", help="To which lane.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for everybody who wonders. `pause` needs one.")] = "",
) -> None:
    """Shows the lanes, or pauses or resumes one on every worker. What waits in a paused lane is kept."""
    if action is not Action.LIST and channel is None:
        raise typer.BadParameter(f"say which lane: {action} EMAIL, SMS or PUSH")
    if action is Action.PAUSE and not reason:
        raise typer.BadParameter("a pause needs a --reason")
    async with session.scheduler() as client:
        if action is Action.LIST or channel is None:
            answer = await client.stats()
            if session.output.as_json:
                for lane in answer.lanes:
                    session.output.show(lane, "")
            else:
                session.output.show(answer, lane_table(answer))
            return
        which = to_value(Channel, channel)
        if action is Action.PAUSE:
            changed = await client.pause_lane(which, reason=reason)
        else:
            changed = await client.resume_lane(which, reason=reason)
    session.output.show(changed, plain(f"{enum_name(changed, 'channel')}: {standing(changed)}"))


@command()
async def drain(session: Session, *, process: Annotated[ProcessKind, typer.Argument(help="Which kind.")]) -> int:
    """Lets a process finish what it has under way, and take nothing more. It stays, and can be resumed.

    --address says which process (default: NOTIFYQUEUE_WORKER_ADDRESS, else 127.0.0.1:50052, or
    NOTIFYQUEUE_DISPATCHER_ADDRESS, else 127.0.0.1:50053), and --timeout how long to wait (default: as long as the
    process takes to stop).
    """
    address, wait = session.address(process), session.options.timeout
    status: WorkerStatus | DispatcherStatus
    if process is ProcessKind.WORKER:
        async with connect_worker(address, **session.how()) as worker:
            status = await worker.drain(wait)
    else:
        async with connect_dispatcher(address, **session.how()) as dispatcher:
            status = await dispatcher.drain(wait)
    _show(session, status)
    if status.phase == PROCESS_PHASE_DRAINING:
        session.output.note("it goes on: ask again, or stop it with SIGTERM")
        return exits.TRY_AGAIN
    return exits.OK


@command()
async def resume(session: Session, *, process: Annotated[ProcessKind, typer.Argument(help="Which kind.")]) -> None:
    """Lets a drained process take work again. --address is as for `drain`."""
    address = session.address(process)
    status: WorkerStatus | DispatcherStatus
    if process is ProcessKind.WORKER:
        async with connect_worker(address, **session.how()) as worker:
            status = await worker.resume()
    else:
        async with connect_dispatcher(address, **session.how()) as dispatcher:
            status = await dispatcher.resume()
    _show(session, status)


def _show(session: Session, status: WorkerStatus | DispatcherStatus) -> None:
    if isinstance(status, WorkerStatus):
        name, held = f"worker {status.worker_id}", sum(lane.in_flight for lane in status.lanes)
    else:
        name, held = f"dispatcher {status.dispatcher_id}", status.in_flight
    session.output.show(status, plain(f"{name}: {enum_name(status, 'phase')}, {held:,} under way"))
