"""Writes the protobuf code in src/gpushare/kubelet/pb again, from the .proto files beside it.

    .venv/bin/python tools/protos.py

A test compares what this would write with what is there. The code demands a protobuf at least as new as the compiler:
when grpcio-tools moves up, so does `protobuf` in pyproject.toml.
"""

import sys
from importlib import resources
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
FOLDER = SOURCE / "gpushare" / "kubelet" / "pb"


def generate(into: Path) -> list[Path]:
    """The files, below `into` as they stand below src."""
    from grpc_tools import protoc  # type: ignore[import-untyped]  # a test imports this file

    protos = sorted(str(path.relative_to(SOURCE)) for path in FOLDER.glob("*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    words = ["protoc", f"-I{SOURCE}", f"-I{well_known}", f"--python_out={into}", f"--pyi_out={into}", *protos]
    if protoc.main(words):
        raise SystemExit("protoc refused a file; it says above which, and why")
    return sorted((into / "gpushare" / "kubelet" / "pb").glob("*_pb2.py*"))


if __name__ == "__main__":
    for path in generate(SOURCE):
        print(path.relative_to(SOURCE.parent), file=sys.stderr)
