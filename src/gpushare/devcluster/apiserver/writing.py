"""Turns a writing request into a verb of the registry with its arguments.

Nothing here awaits, so nothing can change between a read and the write that follows.
"""

from aiohttp import web

from gpushare.devcluster.apiserver import answers, listing, patches, status
from gpushare.devcluster.apiserver.paths import Target
from gpushare.devcluster.apiserver.registry import Registry


def write(registry: Registry, request: web.BaseRequest, target: Target, body: bytes) -> web.Response:
    kind, namespace, name = target.kind, target.namespace, target.name
    match request.method, bool(name), target.subresource:
        case "POST", _, "binding":
            registry.bind(namespace, answers.decode(body, "Binding"), name)
            return answers.reply(201, status.success(201))
        case "POST", False, "" if namespace or not kind.namespaced:
            obj, trial = answers.decode(body, kind.kind), is_trial(request, target)
            return answers.whole(201, kind, registry.create(kind, namespace, obj, trial=trial))
        case "PUT", True, "" | "status":
            obj = answers.decode(body, kind.kind)
            return answers.whole(200, kind, registry.update(kind, namespace, name, obj, target.subresource))
        case "PUT", True, "scale":
            return answers.reply(200, registry.rescale(kind, namespace, name, answers.decode(body, "Scale")))
        case "PATCH", True, "" | "status" | "scale":
            return _patch(registry, request, target, body)
        case "DELETE", True, "":
            options = answers.delete_options(request, body)
            return answers.whole(200, kind, registry.delete(kind, namespace, name, options))
        case "DELETE", False, "" if namespace or not kind.namespaced:
            return _delete_collection(registry, request, target, body)
    raise status.not_allowed()


def is_trial(request: web.BaseRequest, target: Target) -> bool:
    """Whether it is a dry run. Only creating can be tried here."""
    return request.method == "POST" and not target.subresource and request.query.get("dryRun") == "All"


def _patch(registry: Registry, request: web.BaseRequest, target: Target, body: bytes) -> web.Response:
    kind, namespace, name, how = target.kind, target.namespace, target.name, request.content_type
    if how.startswith(patches.APPLY_PREFIX):
        raise status.apply_not_supported(name)
    patches.check(how)
    patch = answers.decode(body, "patch")
    if target.subresource == "scale":
        wanted = patches.apply(how, registry.scale(kind, namespace, name), patch)
        return answers.reply(200, registry.rescale(kind, namespace, name, wanted))
    by_apply = request.query.get("fieldManager") == patches.APPLY_MANAGER
    changed = registry.patch(kind, namespace, name, how, patch, target.subresource, by_apply=by_apply)
    return answers.whole(200, kind, changed)


def _delete_collection(registry: Registry, request: web.BaseRequest, target: Target, body: bytes) -> web.Response:
    kind, namespace, options = target.kind, target.namespace, answers.delete_options(request, body)
    query = listing.read(kind, request.query)
    answer = listing.answer(kind, *listing.page(registry.store, kind, namespace, query))
    for entry in listing.select(registry.store, kind, namespace, query)[1]:
        registry.delete(kind, namespace, entry.key.rpartition("/")[2], options)
    return web.Response(body=answer, content_type=answers.JSON)
