"""The branch of the error tree that admission adds: keys, quotas, the queue.

    ClientError
    +-- InvalidKey          401  no key of a client, or none that is good
    +-- KeyForbidden        403  the key is good, but not for this
    +-- QuotaExceeded       429  the key's own limits are used up
    GatewayError
    +-- QueueFull           503  no place to wait is left
    +-- QueueTimeout        503  waited for as long as the pool allows
    +-- DeadlineExceeded    504  the request's own deadline passed while it waited
    +-- ControlAway         503  keys or usage are not known here at present
    +-- ReceptionFull       503  as many bytes of bodies are coming in as may

See :mod:`gateway.errors`, which this stands on.
"""

from __future__ import annotations

from gateway.errors import ClientError, GatewayError


class InvalidKey(ClientError):
    """No key of a client, or one that is unknown, revoked or expired: the answer does not tell which."""

    code = "invalid_api_key"
    type = "authentication_error"
    status = 401


class KeyForbidden(ClientError):
    """The client's key is good, but not for this model, endpoint or priority."""

    code = "key_forbidden"
    type = "permission_error"
    status = 403


class QuotaExceeded(ClientError):
    """A limit of the client's own key is used up: requests at once, by minute or day, or its part of the queue."""

    code = "quota_exceeded"
    type = "rate_limit_error"
    status = 429
    retryable = True


class QueueFull(GatewayError):
    """Every place in the pool's queue is taken."""

    code = "queue_full"
    type = "service_unavailable"
    status = 503
    retryable = True


class QueueTimeout(GatewayError):
    """The request waited for as long as the pool lets one wait."""

    code = "queue_timeout"
    type = "service_unavailable"
    status = 503
    retryable = True


class DeadlineExceeded(GatewayError):
    """The request's deadline passed while it waited; no backend has heard of it."""

    code = "deadline_exceeded"
    type = "service_unavailable"
    status = 504
    retryable = True


class ControlAway(GatewayError):
    """The worker has not been told the keys, or control does not answer what only it knows."""

    code = "control_away"
    type = "service_unavailable"
    status = 503
    retryable = True


class ReceptionFull(GatewayError):
    """The worker is receiving as many bytes of request bodies as ``limits.receiving_bytes`` allows."""

    code = "reception_full"
    type = "service_unavailable"
    status = 503
    retryable = True
