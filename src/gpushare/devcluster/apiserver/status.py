"""Every refusal as the Status object a client of Kubernetes expects, in kube-apiserver's own words.

Raised by the store and the rules, turned into an HTTP answer by `server`, and sent in a watch as its last event. The
sentences are kube-apiserver's, because clients and people read them.
"""

from typing import Any, Final

Object = dict[str, Any]

MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"
NOT_HERE: Final = "the server could not find the requested resource"
CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter."
)
LIST_EXPIRED: Final = "The resourceVersion for the provided list is too old."


class ApiError(Exception):
    """An answer other than success; `body` is the Status object."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.headers: dict[str, str] = {}
        self.body: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({"details": details} if details is not None else {}),
            "code": code,
        }


def success(code: int = 201, details: Object | None = None) -> Object:
    """The Status object for success, where there is no object to return."""
    head: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return head | ({"details": details} if details else {"code": code})


def about(resource: str, name: str) -> Object:
    """The object of a refusal. `resource` may have its group: deployments.apps."""
    kind, _, group = resource.partition(".")
    return ({"name": name} if name else {}) | ({"group": group} if group else {}) | {"kind": kind}


def not_found(resource: str, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', about(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", NOT_HERE, {})


def already_exists(resource: str, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', about(resource, name))


def forbidden(resource: str, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{resource} "{name}" is forbidden: {why}', about(resource, name))


def conflict(resource: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, about(resource, name))


def precondition(resource: str, key: str, name: str, what: str, wanted: str, found: str) -> ApiError:
    """The uid or resourceVersion that the request demands is not the object's."""
    inner = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
    where = f"Code: 4, Key: /registry/{resource}/{key}, ResourceVersion: 0"
    return conflict(resource, name, f"StorageError: invalid object, {where}, AdditionalErrorMsg: {inner}")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def invalid(kind: str, name: str, causes: list[tuple[str, str, str]]) -> ApiError:
    """`causes` are (field, type, sentence); the types are kube-apiserver's: FieldValueRequired, FieldValueInvalid…"""
    sentences = [f"{field}: {sentence}" for field, _, sentence in causes]
    listed = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    listed_causes = [{"reason": type_, "message": sentence, "field": field} for field, type_, sentence in causes]
    details = about(kind, name) | {"causes": listed_causes}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {listed}', details)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> ApiError:
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


def not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def apply_not_supported(name: str) -> ApiError:
    """Only a server with all schemas can merge every patch of kubectl apply correctly."""
    message = f'kubectl apply cannot change "{name}" in gpushare\'s test API server: use kubectl replace'
    return ApiError(415, "UnsupportedMediaType", message)


def no_protobuf() -> ApiError:
    message = (
        "gpushare's test API server reads JSON, not protobuf; let kubectl write the object first: "
        "kubectl create ... --dry-run=client -o yaml | kubectl create -f -"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def unsupported_media_type(accepted: list[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def too_big(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def not_supported(what: str) -> ApiError:
    """A real server can do this, this one cannot and says so."""
    return ApiError(501, "NotImplemented", f"{what} is not part of gpushare's test API server; use a real cluster")


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")
