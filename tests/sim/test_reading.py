"""Files become a trace, or one clear sentence: the file, the row, the reason."""

import contextlib
import io
import json
import random
import struct
import zipfile
from pathlib import Path

import pytest

from gpushare.obs.errors import UserError
from gpushare.sim import arrivals
from gpushare.sim.reading import checks, files, load
from gpushare.sim.reading.numbers import Lists
from gpushare.sim.trace import Gpu, Node, Pod, Trace, written
from tests.sim import small

OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-1,8000,16384,2,T4\nn-2,16000,32768,8,G2\n"
OPENB_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np-1,1000,1024,1,500,\np-2,1000,1024,2,1000,G2|T4\n"
PLAIN_NODES = "name,cpu_milli,memory_mib,gpu_memory_mib,model\nn-1,8000,16384,16276|24268,T4|A10\nn-2,4000,8192,,\n"
PLAIN_PODS = "name,cpu_milli,memory_mib,gpus,gpu_memory_mib,models,arrival,duration\np-1,1,2,1,3500,T4|A10,5,60.5\n"


def read(folder: Path, pods: str, nodes: str = "") -> Trace:
    (folder / "pods").write_text(pods)
    (folder / "nodes").write_text(nodes)
    return load.trace(str(folder / "pods"), str(folder / "nodes") if nodes else "")


def refused(folder: Path, pods: str, nodes: str = "") -> UserError:
    with pytest.raises(UserError) as raised:
        read(folder, pods, nodes)
    assert raised.value.code == 2
    return raised.value


def test_an_openb_trace_counts_thousandths_of_gpus(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB_PODS, OPENB_NODES)
    assert trace.nodes[0] == Node("n-1", 8000, 16384, (Gpu(1000, "T4"), Gpu(1000, "T4")))
    assert trace.pods == (Pod("p-1", 1000, 1024, 1, 500), Pod("p-2", 1000, 1024, 2, 0, ("G2", "T4")))
    assert (trace.capacity, trace.gpus, trace.timed) == (10000, 10, False)


def test_an_openb_pod_lasts_from_its_start_to_its_deletion(tmp_path: Path) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
    trace = read(tmp_path, head + "a,1,1,1,500,10,100,30\nb,1,1,1,500,10,100,\nc,1,1,1,500,10,,\n", OPENB_NODES)
    assert [(pod.arrival, pod.duration) for pod in trace.pods] == [(10, 70), (10, 90), (10, None)]
    assert trace.timed


def test_our_own_csv_knows_unequal_gpus_and_nodes_without_any(tmp_path: Path) -> None:
    trace = read(tmp_path, PLAIN_PODS, PLAIN_NODES)
    assert trace.nodes[0].gpus == (Gpu(16276, "T4"), Gpu(24268, "A10"))
    assert trace.nodes[1].gpus == ()
    assert trace.pods == (Pod("p-1", 1, 2, 1, 3500, ("T4", "A10"), 5.0, 60.5),)


def test_what_is_written_as_json_reads_the_same(tmp_path: Path) -> None:
    made = small.trace()
    assert read(tmp_path, written(made.nodes, made.pods)) == made


def test_what_is_written_as_openb_reads_the_same(tmp_path: Path) -> None:
    made = small.trace()
    assert load.trace(*small.openb(made, tmp_path)) == made


def test_quotes_blank_lines_other_columns_and_a_byte_order_mark_do_no_harm(tmp_path: Path) -> None:
    pods = '\ufeff"name",extra,cpu_milli,memory_mib,"num_gpu","gpu_milli"\r\n"p,1",x,1,1,1,500\r\n\n'
    assert read(tmp_path, pods, OPENB_NODES).pods[0].name == "p,1"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_machine(tmp_path: Path, end: str) -> None:
    (tmp_path / "nodes").write_text(OPENB_NODES)
    (tmp_path / "pods").write_bytes(OPENB_PODS.replace("\n", end).encode())
    trace = load.trace(str(tmp_path / "pods"), str(tmp_path / "nodes"))
    assert trace == read(tmp_path, OPENB_PODS, OPENB_NODES)


@pytest.mark.parametrize(
    ("pods", "what", "why"),
    [
        ("name,cpu_milli,memory_mib,num_gpu\np,1,1,1\n", "has no column gpu_milli", "row 1 has the columns name, cpu"),
        ("", "has no pods", "nothing to place"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "has no pods", "nothing to place"),
        ("name,name,cpu_milli,memory_mib,num_gpu,gpu_milli\n", "has two columns name", "which of them"),
        (OPENB_PODS + "p-3,1,1,-1,500,\n", "row 4", 'num_gpu is "-1"'),
        (OPENB_PODS + "p-3,1,1,1.5,500,\n", "row 4", 'num_gpu is "1.5"'),
        (OPENB_PODS + "p-3,1,1,1,x,\n", "row 4", 'gpu_milli is "x"'),
        (OPENB_PODS + "p-3,1,1,1,,\n", "row 4", "gpu_milli is empty"),
        (OPENB_PODS + "p-3,1,1,1,1001,\n", "row 4", "num_gpu is 1 and gpu_milli is 1001"),
        (OPENB_PODS + "p-3,1,1,0,500,\n", "row 4", "num_gpu is 0 and gpu_milli is 500"),
        (OPENB_PODS + "p-3,1,1,1,0,\n", "row 4", "num_gpu is 1 and gpu_milli is 0"),
        (OPENB_PODS + "p-3,1,1e3,1,1,\n", "row 4", 'memory_mib is "1e3"'),
        (OPENB_PODS + "p-3,1,٣,1,1,\n", "row 4", 'memory_mib is "٣"'),
        (OPENB_PODS + f"p-3,1,{'9' * 5000},1,1,\n", "row 4", 'memory_mib is "9999'),
        (OPENB_PODS + ",1,1,1,1,\n", "row 4", "name is empty"),
        (OPENB_PODS + "p-1,1,1,1,1,\n", "row 4", "row 2 has a pod p-1 too"),
        (OPENB_PODS + "p-3,1000,10", "row 4", "it has 3 of 6 columns"),
        (OPENB_PODS + "p-3,1,1,1,1,,,\n", "row 4", "it has 8 of 6 columns"),
        (OPENB_PODS + 'p-3,1,1,1,1,"\n', "row 4", "it is not CSV"),
        (OPENB_PODS + "p-3,1,1,9,1000,\n", "row 4", "p-3 asks 9 GPUs; the most that a node has is 8"),
        (
            OPENB_PODS + "p-3,99000,1,1,1000,\n",
            "row 4",
            "asks 99000 thousandths of a CPU; the most that",
        ),
        (OPENB_PODS + "p-3,9000,30000,3,1000,\np-4,9000,40000,1,1,\n", "row 5", "asks 40000 MiB of memory; the most"),
        (PLAIN_PODS + "p-2,1,1,0,5,,,\n", "row 3", "it asks 5 of no GPU"),
        (PLAIN_PODS + "p-2,1,1,2,20000,,,\n", "row 3", "p-2 asks 2 GPUs of 20000 MiB; the most that a node has is 1"),
        (PLAIN_PODS + "p-2,1,1,1,5,,-3,\n", "row 3", 'arrival is "-3"'),
        (PLAIN_PODS + "p-2,1,1,1,5,,nan,\n", "row 3", 'arrival is "nan"'),
        (OPENB_PODS + "a\u2028b\x0cc\x85d,1,1,1,1,\np-4,1,1,1,-1,\n", "row 5", 'gpu_milli is "-1"'),
    ],
)
def test_a_bad_pod_is_told_with_its_row(tmp_path: Path, pods: str, what: str, why: str) -> None:
    error = refused(tmp_path, pods, PLAIN_NODES if pods.startswith(PLAIN_PODS) else OPENB_NODES)
    assert what in error.what
    assert "pods" in error.what
    assert why in error.why


@pytest.mark.parametrize(
    ("nodes", "what", "why"),
    [
        ("sn,cpu_milli,memory_mib,gpu\n", "has no column model", "row 1 has the columns"),
        (OPENB_NODES.partition("\n")[0], "has no nodes", "nothing to place pods on"),
        ("sn,cpu_milli,memory_mib,gpu,model\nn-1,1,1,0,\n", "has a GPU", "GPUs are what is given out"),
        (OPENB_NODES + "n-3,1,1,-2,T4\n", "row 4", 'gpu is "-2"'),
        (OPENB_NODES + "n-3,1,1,0.5,T4\n", "row 4", 'gpu is "0.5"'),
        (OPENB_NODES + "n-3,1,1,99999,T4\n", "row 4", "gpu is 99999"),
        (OPENB_NODES + "n-2,1,1,1,T4\n", "row 4", "row 3 has a node n-2 too"),
        (PLAIN_NODES + "n-3,1,1,16276;16276,T4\n", "row 4", 'gpu_memory_mib is "16276;16276"'),
        (PLAIN_NODES + "n-3,1,1,1|2|3,T4|A10\n", "row 4", "it has 3 GPUs and 2 models"),
        (PLAIN_NODES + "n-3,1,1,0,T4\n", "row 4", "a GPU has 0 MiB"),
        (PLAIN_NODES + "n-3,1,1,9999999,T4\n", "row 4", "a GPU has 9999999 MiB"),
    ],
)
def test_a_bad_node_is_told_with_its_row(tmp_path: Path, nodes: str, what: str, why: str) -> None:
    error = refused(tmp_path, OPENB_PODS, nodes)
    assert what in error.what
    assert "nodes" in error.what
    assert why in error.why


HALF_GPU = '{"name": "p", "cpu_milli": 1, "memory_mib": 1, "gpus": 0.5}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"version": 1, "nodes": [], "pods": []', "truncated"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ('{"version": 1, "nodes": []}', "missing required field `pods`"),
        ('{"version": 2, "nodes": [], "pods": []}', "its version is 2"),
        ('{"version": 1, "nodes": [], "pods": [{"name": "p", "cpu_milli": "x"}]}', "pods[0].cpu_milli: Expected `int`"),
        (f'{{"version": 1, "nodes": [], "pods": [{HALF_GPU}]}}', "pods[0].gpus"),
        ('{"version": 1, "more": ' + "[" * 100_000, "recursion"),
    ],
)
def test_json_that_is_no_trace_is_told_with_the_place(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text).why


def test_json_is_checked_like_csv(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "nodes": [{"name": "n", "cpu_milli": 1, "memory_mib": 1, "gpus": [{"memory_mib": 10}]}],
        "pods": [
            {"name": "p", "cpu_milli": 1, "memory_mib": 1},
            {"name": "q", "cpu_milli": 1, "memory_mib": 1, "gpus": -1},
        ],
    }
    error = refused(tmp_path, json.dumps(document))
    assert "pods[1]" in error.what
    assert error.why == "it asks -1 GPUs and 0 MiB of each"


ONE_NODE = (Node("n", 1, 1, (Gpu(10),)),)


@pytest.mark.parametrize("field", ["arrival", "duration"])
def test_no_time_is_so_long_that_it_cannot_be_counted(tmp_path: Path, field: str) -> None:
    pod = {"name": "p", "cpu_milli": 1, "memory_mib": 1, "gpus": 1, field: 1e308}
    document = json.loads(written(ONE_NODE, ())) | {"pods": [pod]}
    assert "its arrival or duration is negative, or more than" in refused(tmp_path, json.dumps(document)).why


def test_long_names_and_numbers_and_characters_of_control_leave_the_sentence_readable(tmp_path: Path) -> None:
    for pods in (
        [Pod("\x1b[2J" + "x" * 100_000, 2, 1, 1)],
        [Pod("\x1b[2J" + "x" * 100_000, 1, 1, 1)] * 2,
        [Pod("p", 10**4000, 1, 1)],
        [Pod("p", 1, 1, 10**4000)],
    ):
        error = refused(tmp_path, written(ONE_NODE, ()).replace('"pods": [\n  ]', f'"pods": {many(pods)}'))
        assert len(error.render()) < 600
        assert error.render().replace("\n", "").isprintable()
    assert len(refused(tmp_path, written((), ()).replace("1,", f"{10**4000},", 1)).why) < 100


def many(pods: list[Pod]) -> str:
    return json.dumps(
        [{name: getattr(pod, name) for name in ("name", "cpu_milli", "memory_mib", "gpus")} for pod in pods]
    )


def test_pods_alone_need_nodes(tmp_path: Path) -> None:
    assert refused(tmp_path, OPENB_PODS).what == "no nodes are named"


def test_pods_that_their_models_keep_off_are_replayed_and_named(tmp_path: Path) -> None:
    trace = read(tmp_path, OPENB_PODS + "p-3,1,1,1,1000,H100\np-4,16000,1,1,1000,T4\n", OPENB_NODES)
    assert checks.kept_off(trace.pods, trace.nodes) == ["p-3", "p-4"]


def test_ten_gigabytes_of_zeros_are_not_read(tmp_path: Path) -> None:
    zeros = tmp_path / "zeros"
    with zeros.open("wb") as file:
        file.truncate(10 << 30)
    for names in ((str(zeros), ""), (str(tmp_path / "pods"), str(zeros))):
        (tmp_path / "pods").write_text(OPENB_PODS)
        with pytest.raises(UserError, match="is not a text file"):
            load.trace(*names)


def test_a_text_file_that_is_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_text("x" * 5000)
    with pytest.raises(UserError, match="too large"):
        files.text(str(large), most=4096)


@pytest.mark.parametrize("content", [b"\x00\x01\x02", b"name,\xff\xfe\n", bytes(range(256)) * 10])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "binary").write_bytes(content)
    with pytest.raises(UserError, match="is not a text file"):
        load.trace(str(tmp_path / "binary"), "")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    for name in (str(tmp_path), str(tmp_path / "missing")):
        with pytest.raises(UserError, match="cannot be read"):
            load.trace(name, "")


# Orders of arrival


def npy(numbers: list[int], kind: str = "<i8", letter: str = "q", shape: str = "") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape or f'{len(numbers)},'}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    packed = struct.pack(f"{'>' if kind[0] == '>' else '<'}{len(numbers)}{letter}", *numbers)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + packed


def npz(folder: Path, **lists: bytes) -> str:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in lists.items():
            archive.writestr(f"{name}.npy", content)
    (folder / "arrivals.npz").write_bytes(held.getvalue())
    return str(folder / "arrivals.npz")


@pytest.mark.parametrize(("kind", "letter"), [("<i8", "q"), (">i4", "i"), ("|u1", "B"), ("<u2", "H")])
def test_lists_of_whole_numbers_are_read_without_numpy(tmp_path: Path, kind: str, letter: str) -> None:
    assert Lists(npz(tmp_path, order_1=npy([3, 1, 2], kind, letter))).read("order_1") == (3, 1, 2)


def test_arrivals_count_pods_and_nodes_by_name(tmp_path: Path) -> None:
    nodes = tuple([Node(name, 1, 1, (Gpu(1000),)) for name in ("b", "a")])
    trace = Trace(nodes, tuple([Pod(name, 1, 1, 1) for name in ("y", "x", "z")]))
    file = npz(tmp_path, order_7=npy([0, 0, 2]), rank_7=npy([1, 0]))
    assert arrivals.read(trace, file, 7) == ([1, 1, 2], [0, 1])


@pytest.mark.parametrize(
    ("lists", "what", "why"),
    [
        ({"order_1": npy([0]), "rank_1": npy([0])}, "has no seed 7", "its seeds: 1"),
        ({}, "has no seed 7", "its seeds: none"),
        ({"order_7": npy([0, 3]), "rank_7": npy([0, 1])}, "does not belong to these pods", "other rows than 0 to 2"),
        ({"order_7": npy([]), "rank_7": npy([0, 1])}, "does not belong to these pods", "is empty"),
        ({"order_7": npy([0]), "rank_7": npy([0, 0])}, "does not belong to these nodes", "not an order of 2 nodes"),
        ({"order_7": npy([0]), "rank_7": npy([0])}, "does not belong to these nodes", "not an order of 2 nodes"),
        ({"order_7": b"\x93NUMPY", "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list of whole numbers"),
        ({"order_7": npy([0], "<f8"), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0])[:-2], "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0], shape="1, 1"), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0], shape="10**9,"), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0], shape="'0f1',"), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0], shape="-" * 60_000), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_7": npy([0], kind="|O"), "rank_7": npy([0, 1])}, "order_7 cannot be read", "not a list"),
        ({"order_" + "9" * 60_000: npy([0])}, "has no seed 7", "its seeds: 99"),
    ],
)
def test_a_bad_file_of_arrivals_is_told(tmp_path: Path, lists: dict[str, bytes], what: str, why: str) -> None:
    trace = Trace(tuple([Node(name, 1, 1) for name in "ab"]), tuple([Pod(name, 1, 1) for name in "xyz"]))
    with pytest.raises(UserError) as raised:
        arrivals.read(trace, npz(tmp_path, **lists), 7)
    assert what in raised.value.what
    assert why in raised.value.why


def test_a_file_of_arrivals_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(UserError, match="is too large"):
        Lists("/dev/zero")


def test_what_is_no_zip_or_cut_off_is_told(tmp_path: Path) -> None:
    whole = Path(npz(tmp_path, order_7=npy(list(range(2000))))).read_bytes()
    for content in (b"", b"nothing", whole[: len(whole) // 2], bytes(1 << 20)):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(UserError, match=r"not an \.npz file"):
            Lists(str(tmp_path / "bad.npz"))


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_any_zip_gives_lists_or_a_sentence(tmp_path: Path, packed: int) -> None:
    held, chance = io.BytesIO(), random.Random(packed)
    with zipfile.ZipFile(held, "w", packed) as archive:
        archive.writestr("order_7.npy", npy(list(range(100))))
    for _ in range(300):
        data = bytearray(held.getvalue())
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.choice([0, 255, chance.randrange(256)])
        (tmp_path / "a.npz").write_bytes(data)
        with contextlib.suppress(UserError):
            Lists(str(tmp_path / "a.npz")).read("order_7")


def test_any_bytes_give_a_trace_or_a_sentence(tmp_path: Path) -> None:
    chance = random.Random(1)
    made = small.trace(pods=3, nodes=2)
    texts = [OPENB_PODS, OPENB_NODES, PLAIN_PODS, PLAIN_NODES, written(made.nodes, made.pods)]
    for _ in range(300):
        broken = []
        for text in (chance.choice(texts), chance.choice(texts)):
            data = bytearray(text.encode())
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(data))
                data[at : at + chance.randrange(9)] = chance.randbytes(chance.randrange(3))
            broken.append(bytes(data))
        (tmp_path / "a").write_bytes(broken[0])
        (tmp_path / "b").write_bytes(broken[1])
        with contextlib.suppress(UserError):
            load.trace(str(tmp_path / "a"), str(tmp_path / "b"))
