"""What `make up` prints: where everything is, and calls to copy."""

from sandbox.plan import TENANT, Plan

PAGE = """
Notify Queue is up. Ctrl-C stops it.

  Scheduler          {scheduler}
  Worker             {worker}
  WebhookDispatcher  {dispatcher}
  inbox              {sandbox}/inbox            (open it: mail, SMS, pushes and webhooks, as they arrive)
  mailbox            {sandbox}/mails            (SMTP on {smtp})
  SMS and pushes     {sandbox}/messages         (as Twilio and FCM take them)
  webhooks received  {receiver}
  logs               {logs}

  API key            {key}
                     role ADMIN of the tenant {tenant}; in {state}/key
  PLATFORM key       {platform_key}
                     for workers, dispatchers and lanes; in {state}/platform_key

Schedule a mail:

  export NOTIFYQUEUE_API_KEY=$(cat {state}/key)
  .venv/bin/grpcurl -plaintext -H "authorization: Bearer $NOTIFYQUEUE_API_KEY" -d '{{
    "idempotency_key": "hello-1", "address": "you@example.com",
    "email": {{"subject": "Hello", "text": "It works."}}}}' {scheduler} notifyqueue.v1.Scheduler/ScheduleNotification

See it delivered, what happened to it, and its webhook:

  curl -s {sandbox}/mails
  .venv/bin/grpcurl -plaintext -H "authorization: Bearer $NOTIFYQUEUE_API_KEY" \\
    -d '{{"idempotency_key": "hello-1", "include_timeline": true}}' {scheduler} notifyqueue.v1.Scheduler/GetNotification
  curl -s {receiver}
"""


def page(plan: Plan) -> str:
    return PAGE.format(
        scheduler=plan.address("scheduler"),
        worker=plan.address("worker"),
        dispatcher=plan.address("dispatcher"),
        smtp=plan.address("smtp"),
        sandbox=plan.sandbox_url,
        receiver=plan.receiver_url,
        logs=plan.state / "*.log",
        state=plan.state,
        tenant=TENANT,
        key=plan.key,
        platform_key=plan.platform_key,
    )
