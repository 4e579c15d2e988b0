# One image, three commands: python -m services.scheduler, services.worker or services.dispatcher.
# docs/deploy.md says how it is run. The target `sandbox` adds the other side, for development.
FROM python:3.13-slim-bookworm AS base

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /app

COPY requirements-services.txt ./
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements-services.txt

COPY notifyqueue notifyqueue
COPY shared shared
COPY services services
# Readable for whoever runs it, and compiled, for it may not write.
RUN chmod -R a+rX . && python -m compileall -q .

# A container's own loopback is of no use to others. 50061 answers probes alone.
ENV NOTIFYQUEUE_LISTEN_ADDRESS=0.0.0.0:50051 \
    NOTIFYQUEUE_HEALTH_LISTEN=0.0.0.0:50061
EXPOSE 50051 50061
# As a list, here and in every command: a shell in between would keep SIGTERM, which drains, to itself.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["python", "-m", "shared.healthcheck", "127.0.0.1:50061"]
STOPSIGNAL SIGTERM


FROM base AS sandbox

COPY sandbox sandbox
RUN chmod -R a+rX sandbox
EXPOSE 52525 58080
HEALTHCHECK NONE
USER 10001:10001
CMD ["python", "-m", "sandbox"]


FROM base AS services

USER 10001:10001
CMD ["python", "-m", "services.scheduler"]
