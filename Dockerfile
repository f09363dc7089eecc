# The gateway alone; engines run elsewhere.  Two stages: one builds, the other holds the interpreter and the result.
# `make docker-check` carries out the same instructions, read from this file, where there is no Docker.
#
#   docker build -t pacekeeper .
#   docker run --network host -v ./gateway.yaml:/etc/pacekeeper/gateway.yaml:ro -v pacekeeper:/var/lib/pacekeeper pacekeeper
#
# Without keys the gateway listens on loopback or a Unix socket only, so a published port would reach nothing: share
# the host's network as above, or let it listen on a socket in a folder that clients mount too (deploy/docker/README.md).

ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python3 -m venv /build && /build/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements/build.txt
RUN python3 -m venv /opt/pacekeeper && /opt/pacekeeper/bin/pip install --quiet --require-hashes --only-binary :all: -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
RUN /build/bin/hatchling build -t wheel -d /dist
RUN /opt/pacekeeper/bin/pip install --quiet --no-deps --no-index /dist/*.whl && /opt/pacekeeper/bin/pip uninstall --quiet --yes pip

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/pacekeeper /opt/pacekeeper
COPY deploy/docker/healthcheck.py /opt/pacekeeper/healthcheck.py
COPY config/gateway.yaml /etc/pacekeeper/gateway.yaml
# By number, so that an orchestrator can see that it is not root; the folder holds history, token and sockets.
RUN install -d -o 10001 -g 10001 -m 0750 /var/lib/pacekeeper
ENV PATH=/opt/pacekeeper/bin:/usr/local/bin:/usr/bin:/bin HOME=/var/lib/pacekeeper PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/pacekeeper
USER 10001:10001
VOLUME ["/var/lib/pacekeeper"]
# Alive, not ready: a container whose engines are still loading must not be ended for it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 CMD ["python3", "/opt/pacekeeper/healthcheck.py"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["pacekeeper"]
CMD ["serve", "--config", "/etc/pacekeeper/gateway.yaml"]
