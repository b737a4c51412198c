"""Which image a component runs: the fields of the policy, where one is empty that of the image that is the default."""

from gpushare.operator.desired.policy import Image

ANOTHER = "{field}.image is {image}, and no version says which: set {field}.version, too"
DIGEST = "sha256:"


def name(said: Image, default: str) -> str:
    """`default`: a whole name, such as `registry/team/gpushare:0.1.0`, or with `@sha256:...`."""
    repository, image, version = _split(default)
    repository, image, version = said.repository or repository, said.image or image, said.version or version
    path = f"{repository}/{image}" if repository else image
    return f"{path}@{version}" if version.startswith(DIGEST) else f"{path}:{version}"


def problem(said: Image, field: str) -> str:
    """What is wrong with an image that is named only in part; empty: nothing. The version of one image says nothing
    about another one. The API server refuses it, too."""
    return ANOTHER.format(field=field, image=said.image) if said.image and not said.version else ""


def _split(whole: str) -> tuple[str, str, str]:
    path, at, version = whole.partition("@")
    head, slash, tail = path.rpartition("/")
    image, colon, tag = tail.partition(":")
    return (head if slash else ""), image, version if at else (tag if colon else "latest")
