"""How the queue stands, on a terminal of 80 columns: whatever it stands like, nothing of it is cut."""

import io
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from rich.console import Console

from notifyqueue import Channel, Notification
from notifyqueue.cli.rates import Rate
from notifyqueue.cli.stats import Speeds, board
from notifyqueue.times import to_timestamp
from notifyqueue.v1 import process_pb2
from notifyqueue.v1.scheduler_pb2 import GetQueueStatsResponse

CHANNELS = (Channel.CHANNEL_EMAIL, Channel.CHANNEL_SMS, Channel.CHANNEL_PUSH)
REASON = "the provider is moving"
Status = Notification.Status
ENDS = (
    Status.STATUS_SENT,
    Status.STATUS_FAILED,
    Status.STATUS_DEAD_LETTERED,
    Status.STATUS_CANCELLED,
    Status.STATUS_EXPIRED,
    Status.STATUS_SUPPRESSED,
)


def busy() -> GetQueueStatsResponse:
    """As wide as it gets."""
    answer, now = GetQueueStatsResponse(), datetime.now(UTC)
    for channel in CHANNELS:
        lane = answer.lanes.add(channel=channel)
        for count in (lane.due, lane.scheduled, lane.waiting, lane.processing):
            count.count, count.at_least = 10_000, True
        lane.lag.FromTimedelta(timedelta(hours=23, minutes=59))
        lane.lane.open_breaker.cause = "smtp:421"
        lane.lane.hold_time.FromDatetime(now)
        for status in ENDS:
            lane.totals.add(status=status).count.count = 100_000_000
    answer.lanes[0].lane.pause.reason = REASON
    for _ in range(3):
        worker = answer.workers.add(worker_id=str(uuid4()), phase=process_pb2.PROCESS_PHASE_DRAINING)
        worker.start_time.CopyFrom(to_timestamp(now - timedelta(hours=23, minutes=59)))
        worker.heartbeat_time.CopyFrom(to_timestamp(now - timedelta(seconds=55.5)))
        for channel in CHANNELS:
            worker.lanes.add(channel=channel, concurrency=10_000, in_flight=10_000)
    return answer


def shown(answer: GetQueueStatsResponse, speeds: Speeds | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=80, markup=False, highlight=False)
    console.print(board(answer, speeds or Speeds()))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_nothing_is_cut_at_eighty_columns() -> None:
    answer = busy()
    answer.lanes[2].stranded = True
    speeds = Speeds(
        {channel: Rate(12_345.6, 1_234.5) for channel in CHANNELS}, backlog=dict.fromkeys(CHANNELS, -12345.6)
    )
    lines = shown(answer, speeds)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert "\u2026" not in text
    assert text.count("10,000/10,000") == 9
    assert text.count("DRAINING") == 3
    assert text.count("10,000+") == 12
    assert text.count("100,000,000") == 18
    assert (text.count("12,345.6"), text.count("-12,345.6"), text.count("1,234.5")) == (6, 3, 3)
    assert text.count("23h 59m") == 6
    for worker in answer.workers:
        assert worker.worker_id[:8] in text


def test_why_a_lane_does_not_run_is_on_a_line_of_its_own() -> None:
    answer = busy()
    answer.lanes[2].lane.Clear()
    answer.lanes[2].waiting.Clear()
    lines = shown(answer)
    assert [line.split()[-1] for line in lines[1:4]] == ["paused", "breaker", "running"]
    assert lines[4].startswith("EMAIL: paused since ")
    assert any(line.startswith("SMS: breaker open since ") for line in lines)
    assert REASON in "\n".join(lines)
    assert not any(line.startswith("PUSH: ") for line in lines)


def test_who_waits_for_a_recipients_limit_is_on_a_line_where_somebody_does() -> None:
    answer = busy()
    answer.lanes[0].waiting.Clear()
    answer.lanes[2].waiting.at_least = False
    assert [line for line in shown(answer) if "waiting" in line] == [
        "SMS: 10,000+ waiting for a free slot of their recipients",
        "PUSH: 10,000 waiting for a free slot of their recipients",
    ]


def test_that_no_worker_serves_a_lane_is_said_beside_why_else_it_does_not_run() -> None:
    answer = busy()
    for lane in answer.lanes:
        lane.stranded = True
    answer.lanes[2].lane.Clear()
    lines = shown(answer)
    assert [line.split()[-1] for line in lines[1:4]] == ["paused", "STRANDED", "STRANDED"]
    assert any(line.startswith("SMS: breaker open since ") for line in lines)
    assert "PUSH: STRANDED, no worker serves it" in lines
    assert " ".join(lines).count("; STRANDED,") == 2


def test_a_tenant_sees_how_fast_its_backlog_grows_and_no_workers() -> None:
    answer = busy()
    del answer.workers[:]
    header, *_ = shown(answer, Speeds(backlog={Channel.CHANNEL_SMS: 1.5}))
    assert header.split() == ["lane", "due", "scheduled", "processing", "lag", "backlog/s", "standing"]
    header, *lines = shown(answer, Speeds(ends={Channel.CHANNEL_SMS: Rate(7.0, 0.5)}))
    assert header.split() == ["lane", "due", "scheduled", "processing", "lag", "sent/s", "unsent/s", "standing"]
    assert lines[0].split()[-3:-1] == ["-", "-"]
    assert lines[1].split()[-3:-1] == ["7.0", "0.5"]
