"""The libraries of others in the dashboard are what VENDORED.toml says, and nothing else is there."""

import base64
import hashlib
import io
import tarfile
import tomllib

import pytest

from tools import vendor

LIST = tomllib.loads((vendor.FOLDER / vendor.LIST).read_text("utf-8"))["package"]


def test_each_file_has_the_sha256_of_the_list_and_none_is_missing_or_too_many() -> None:
    listed = {name: digest for package in LIST for name, digest in package["files"].items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendor.FOLDER.iterdir()}
    assert found.pop(vendor.LIST)
    assert found == listed


def test_the_list_is_of_the_versions_and_checksums_that_the_tool_fetches() -> None:
    wanted = [(it.name, it.version, it.licence, it.sha512, set(it.files.values())) for it in vendor.PACKAGES]
    assert wanted == [(it["name"], it["version"], it["licence"], it["sha512"], set(it["files"])) for it in LIST]


def test_every_library_comes_with_its_licence() -> None:
    for package in LIST:
        licence = next(name for name in package["files"] if name.endswith(".LICENSE"))
        assert "Copyright" in (vendor.FOLDER / licence).read_text("utf-8")


def test_no_address_of_a_registry_and_no_source_map_is_asked_for() -> None:
    for path in vendor.FOLDER.iterdir():
        text = path.read_text("utf-8")
        assert "registry" not in text.replace("registry of", "")
        assert "sourceMappingURL" not in text


def test_hooks_find_preact_as_a_file_beside_them() -> None:
    text = (vendor.FOLDER / "hooks.js").read_text("utf-8")
    assert 'from"./preact.js"' in text
    assert 'from"preact"' not in text


def test_a_package_of_another_content_is_refused() -> None:
    with pytest.raises(SystemExit, match="nothing was written"):
        vendor.checked(vendor.PACKAGES[0], b"something else")


def test_a_package_that_lost_a_file_is_refused() -> None:
    tarball = packed({"package/dist/htm.mjs": b"export default 1"})
    with pytest.raises(SystemExit, match=r"htm\.LICENSE"):
        vendor.contents(package("htm"), tarball)


def test_files_get_the_names_that_the_page_loads() -> None:
    tarball = packed(
        {"package/dist/htm.mjs": b"h\n//# sourceMappingURL=h.map\n", "package/LICENSE": b"l", "package/x": b""}
    )
    assert vendor.contents(package("htm"), tarball) == {"htm.js": b"h\n", "htm.LICENSE": b"l"}


def test_a_right_checksum_passes() -> None:
    tarball = packed({})
    digest = base64.b64encode(hashlib.sha512(tarball).digest()).decode()
    assert vendor.checked(package("htm")._replace(sha512=digest), tarball) == tarball


def package(name: str) -> vendor.Package:
    return next(it for it in vendor.PACKAGES if it.name == name)


def packed(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()
