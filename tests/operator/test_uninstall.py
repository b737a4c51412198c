"""An uninstall that cannot know where the operator was says so soon, instead of waiting for nobody."""

from typing import Any, cast

import pytest

from gpushare.kube import client, resources
from gpushare.kube.requests import Request
from gpushare.obs.errors import UserError
from gpushare.operator import crds, uninstall
from tests.support.applied_api import AppliedApi


class Finalized(AppliedApi):
    """A policy with a finalizer stays when it is deleted."""

    def _delete(self, path: str, request: Request) -> dict[str, Any]:
        return self._there(path)


async def test_without_an_operator_and_a_namespace_the_way_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(uninstall, "KNOWN_SECONDS", 0.003)
    api = Finalized()
    api.put(resources.CLUSTER_POLICIES.item("", "cluster-policy"), {})
    with pytest.raises(UserError) as refused:
        await uninstall.uninstall(cast(client.Api, api), "", keep=True)
    assert "gpushare operator --uninstall --namespace NAME" in refused.value.render()
    assert 'ClusterPolicy "cluster-policy" is still there' in refused.value.render()
