"""Errors for people keep their form whatever they are about."""

from gpushare.obs import errors


def unknown_policy() -> errors.UserError:
    return errors.UserError('unknown policy "binpak"', "policies: binpack, spread", "--policy binpack")


def test_an_error_reads_as_what_why_and_way_out() -> None:
    assert unknown_policy().render() == (
        'error: unknown policy "binpak"\n  why: policies: binpack, spread\n  try: --policy binpack'
    )


def test_an_error_is_bad_input_unless_it_says_otherwise() -> None:
    assert unknown_policy().code == 2
    assert errors.UserError("no kubeconfig found", "not given", "export KUBECONFIG=FILE", code=3).code == 3


def test_line_breaks_of_others_do_not_break_the_three_lines() -> None:
    error = errors.UserError("the API server\ndoes not answer", "refused\n  try: rm -rf /\r\n", " again ")
    assert error.render().splitlines() == [
        "error: the API server does not answer",
        "  why: refused try: rm -rf /",
        "  try: again",
    ]


def test_a_log_line_names_cause_and_way_as_the_terminal_does() -> None:
    assert unknown_policy().fields() == {"why": "policies: binpack, spread", "try": "--policy binpack"}
