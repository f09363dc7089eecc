"""The one error tree: what can go wrong, whose fault it is, and what the caller is told.

    GatewayError
    +-- ClientError            fault client     400  the request cannot be served as it stands
    |   +-- BadRequest                          400  malformed JSON, wrong type, refused parameter
    |   +-- UnknownEndpoint                     404  not on the endpoint map; nothing was sent upstream
    |   +-- MethodNotAllowed                    405  the path exists, the verb does not
    |   +-- UnknownModel                        404  no pool serves a model of that name
    |   +-- BodyTooLarge                        413  over limits.body_bytes
    |   +-- UnsupportedEncoding                 415  the body is compressed
    |   +-- ExpectationFailed                   417  an Expect other than 100-continue
    |   +-- BodyTimeout                         408  the body did not arrive within limits.body_s
    |   +-- NotAuthenticated                    401  no token, or none that is known
    |   +-- NotAllowed                          403  the token lacks the scope, or a foreign Host or Origin
    |   +-- NotFound                            404  no backend, request or other thing of that name
    |   +-- TooManyAttempts                     429  too many wrong tokens from one address
    |   +-- Quarantined                         422  backends died with such a request in flight
    |   +-- ReaderTooSlow                       408  a side stream is read slower than its bound allows; an event
    +-- Overloaded             fault gateway    429  the gateway's own in-flight limit is reached
    +-- NothingServing         fault backend    503  no backend of the pool is serving
    +-- ShuttingDown           fault gateway    503  the gateway is on its way out
    +-- BackendError           fault backend    502
    |   +-- ConnectFailed                       502  refused, unreachable or not in time; may be retried elsewhere
    |   +-- BackendRefused                      503  503 before a byte; may be retried elsewhere
    |   +-- BackendDied                         502  the connection ended after the request was written
    |   +-- BackendGarbled                      502  not HTTP, or an answer that is not what was asked for
    |   +-- BackendSilent                       504  no first event within timers.first_event_s
    |   +-- BackendStalled                      504  no byte within timers.stall_s
    +-- GatewayFault           fault gateway    500  a defect of ours
    |   +-- LinkGarbled                         500  a message between our own processes cannot be framed or read
    +-- OperatorError          fault operator   exit code 2 / 422: configuration, files, ports
        +-- ConfigError                         one or more faults, each with its place
        +-- PortInUse
        +-- StoreUnusable
        +-- RuntimeDirUnusable
What admission refuses stands in ``gateway/refusals.py``.  Each ``code`` is stable: scripts may match it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class Fault(StrEnum):
    """Who has to act for the error to go away."""

    CLIENT = "client"
    BACKEND = "backend"
    GATEWAY = "gateway"
    OPERATOR = "operator"


class GatewayError(Exception):
    """Root of the tree.  ``message`` is shown: no prompt, no key; ``param``: the field; ``retry_after_s``: a header."""

    code: ClassVar[str] = "gateway_error"
    type: ClassVar[str] = "gateway_error"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    fault: ClassVar[Fault] = Fault.GATEWAY

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class ClientError(GatewayError):
    """The request cannot be served as it stands."""

    code = "bad_request"
    type = "invalid_request_error"
    status = 400
    fault = Fault.CLIENT


class BadRequest(ClientError):
    """Malformed JSON, a wrong type, a refused parameter."""


class UnknownEndpoint(ClientError):
    """Path not on the endpoint map."""

    code = "unknown_endpoint"
    type = "not_found_error"
    status = 404


class MethodNotAllowed(ClientError):
    """The path exists, the verb does not."""

    code = "method_not_allowed"
    status = 405


class UnknownModel(ClientError):
    """No pool serves a model of that name."""

    code = "model_not_found"
    type = "not_found_error"
    status = 404


class BodyTooLarge(ClientError):
    """The body is over ``limits.body_bytes``."""

    code = "body_too_large"
    status = 413


class BodyTimeout(ClientError):
    """The body did not arrive within ``limits.body_s``."""

    code = "body_timeout"
    status = 408


class NotAuthenticated(ClientError):
    """No token, or none that is known."""

    code = "not_authenticated"
    type = "authentication_error"
    status = 401


class NotAllowed(ClientError):
    """The token lacks the scope that the route asks for, or the ``Host`` or ``Origin`` is not the listener's own."""

    code = "not_allowed"
    type = "permission_error"
    status = 403


class NotFound(ClientError):
    """No backend, request or other thing of that name."""

    code = "not_found"
    type = "not_found_error"
    status = 404


class TooManyAttempts(ClientError):
    """Too many wrong tokens came from one address; even the right one has to wait now."""

    code = "too_many_attempts"
    type = "rate_limit_error"
    status = 429
    retryable = True


class Quarantined(ClientError):
    """Several backends died with a request like this one in flight; it is refused for a while."""

    code = "quarantined"
    status = 422


class ReaderTooSlow(ClientError):
    """Reasoning on a stream of its own was read so slowly that it could not be kept."""

    code = "reader_too_slow"
    status = 408


class UnsupportedEncoding(ClientError):
    """The body is compressed; the engine would not take it either."""

    code = "unsupported_content_encoding"
    status = 415


class ExpectationFailed(ClientError):
    """An ``Expect`` other than ``100-continue``."""

    code = "expectation_failed"
    status = 417


class Overloaded(GatewayError):
    """The gateway's own in-flight limit is reached."""

    code = "overloaded"
    type = "rate_limit_error"
    status = 429
    retryable = True


class NothingServing(GatewayError):
    """No backend of the pool is serving."""

    code = "nothing_serving"
    type = "service_unavailable"
    status = 503
    retryable = True
    fault = Fault.BACKEND


class ShuttingDown(GatewayError):
    """The gateway is on its way out."""

    code = "shutting_down"
    type = "service_unavailable"
    status = 503
    retryable = True


class BackendError(GatewayError):
    """A backend did not keep its side."""

    code = "backend_error"
    type = "upstream_error"
    status = 502
    fault = Fault.BACKEND


class ConnectFailed(BackendError):
    """Refused, unreachable, or no connection in time: nothing of the request was accepted."""

    code = "connect_failed"
    retryable = True


class BackendRefused(BackendError):
    """The backend answered 503 before a byte of an answer: nothing of the request was accepted."""

    code = "backend_refused"
    status = 503
    retryable = True


class BackendDied(BackendError):
    """The connection ended after the request was written; it is never replayed."""

    code = "backend_died"


class BackendGarbled(BackendError):
    """What came is not HTTP, or not the kind of answer that was asked for."""

    code = "backend_garbled"


class BackendSilent(BackendError):
    """No first event within ``timers.first_event_s``."""

    code = "backend_silent"
    status = 504


class BackendStalled(BackendError):
    """No byte within ``timers.stall_s`` and no sign of progress from the engine."""

    code = "backend_stalled"
    status = 504


class GatewayFault(GatewayError):
    """A defect of ours."""

    code = "gateway_fault"


class LinkGarbled(GatewayFault):
    """A message between our own processes cannot be framed or read; that connection ends."""

    code = "link_garbled"


class OperatorError(GatewayError):
    """Configuration, files or ports: the operator has to act.  Commands end with exit code 2."""

    code = "operator_error"
    status = 422
    fault = Fault.OPERATOR


class ConfigError(OperatorError):
    """One or more faults in a configuration; ``message`` has a line for each, with its place."""

    code = "config_error"


class PortInUse(OperatorError):
    """Somebody else listens on a configured address."""

    code = "port_in_use"


class StoreUnusable(OperatorError):
    """The history store cannot be opened, written or migrated."""

    code = "store_unusable"


class RuntimeDirUnusable(OperatorError):
    """The directory for sockets and the token cannot be made or is not ours."""

    code = "runtime_dir_unusable"
