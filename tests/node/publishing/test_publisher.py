"""What is written to a node, and where."""

import pytest

from gpushare.kube.errors import ApiError
from gpushare.node.publishing import publisher
from tests.support.scripted_api import answer, refuse, serve_api

NODE = "/api/v1/nodes/gpu-a"


async def test_a_node_is_patched_where_annotations_and_capacity_are() -> None:
    async with serve_api() as (server, api_):
        server.on(f"PATCH {NODE}", answer({"metadata": {"name": "gpu-a", "annotations": {"a": "b"}}}))
        server.on(f"PATCH {NODE}/status", answer({"status": {"capacity": {"cpu": "2"}}}), refuse(404, "NotFound"))
        annotated = await publisher.annotate(api_, "gpu-a", {"a": "b"})
        counted = await publisher.set_capacity(api_, "gpu-a", {"aliyun.com/gpu-mem": 30720, "aliyun.com/gpu-count": 0})
        assert (annotated.metadata.annotations, counted.status.capacity) == ({"a": "b"}, {"cpu": "2"})
        assert [asked.headers["Content-Type"] for asked in server.asked] == ["application/merge-patch+json"] * 2
        assert [asked.body for asked in server.asked] == [
            {"metadata": {"annotations": {"a": "b"}}},
            {"status": {"capacity": {"aliyun.com/gpu-mem": "30720", "aliyun.com/gpu-count": "0"}}},
        ]
        with pytest.raises(ApiError):
            await publisher.set_capacity(api_, "gpu-a", {})
