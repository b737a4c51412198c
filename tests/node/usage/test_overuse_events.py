"""Events about containers that use more than they asked for."""

from gpushare.kube.events import MESSAGE
from tests.node.usage.over import GRACE, Scene, use

SENTENCE = "container main uses 9100 MiB of GPU 0 on gpu-a, and asked for 6000 MiB; "


def test_the_event_names_the_gpu_the_amounts_and_the_neighbours_at_risk() -> None:
    scene = Scene()
    scene.runs("web")
    uses = use("web", 6000, 9100), use("a", 4000, 100), use("b", 1000, 0)
    scene.look(0, *uses)
    scene.look(GRACE, *uses)
    assert scene.book.events == []
    scene.look(GRACE + 1, *uses)
    text = SENTENCE + "pods at risk: ml/a, ml/b"
    assert scene.book.events == [("Warning", "GPUOverUse", "ml/web", text)]
    assert [over.pod for over in scene.over.current] == ["web"]


def test_a_pod_alone_on_its_gpu_endangers_nobody() -> None:
    scene = Scene()
    scene.lasts(use("web", 6000, 9100))
    assert [text for *_, text in scene.book.events] == [SENTENCE + "no other pod is on this GPU"]


def test_an_event_lists_as_many_neighbours_as_it_has_room_for() -> None:
    scene = Scene()
    scene.lasts(use("web", 6000, 9100), *(use(f"a-neighbour-{i}", 10, 0) for i in range(20)))
    ((*_, text),) = scene.book.take()
    assert len(text) <= MESSAGE
    assert text.startswith(SENTENCE + "pods at risk: ml/a-neighbour-0, ml/a-neighbour-1")
    assert text.endswith(" more")
    scene = Scene()
    scene.lasts(use("web", 6000, 9100), use("n" * 200, 10, 0))
    assert [text for *_, text in scene.book.events] == [SENTENCE + "pods at risk: 1"]


def test_it_is_said_again_every_ten_minutes_while_it_lasts() -> None:
    scene = Scene()
    for at in range(0, 1300, 5):
        scene.look(at, use("web", 6000, 9000 + at))
    assert [text.split()[3] for *_, text in scene.book.events] == ["9065", "9665", "10265"]


def test_its_end_is_said_once() -> None:
    scene = Scene()
    scene.runs("web")
    scene.lasts(use("web", 6000, 9100))
    scene.book.take()
    scene.look(70, use("web", 6000, 6000))
    scene.look(75, use("web", 6000, 6000))
    text = "container main no longer uses more of GPU 0 on gpu-a than it asked for"
    assert scene.book.events == [("Normal", "GPUOverUseEnded", "ml/web", text)]
    assert scene.over.current == ()


def test_neither_a_pod_that_is_gone_nor_figures_that_are_gone_are_told_as_an_end() -> None:
    scene = Scene()
    scene.lasts(use("web", 6000, 9100))
    scene.book.take()
    scene.look(70)
    assert scene.book.events == []
    scene = Scene()
    scene.runs("web")
    scene.lasts(use("web", 6000, 9100))
    scene.book.take()
    scene.look(70, use("web", 6000, None))
    assert [over.pod for over in scene.over.current] == ["web"]
    scene.look(140, use("web", 6000, None))
    assert not [*scene.over.current, *scene.book.events]
