"""The check of user-facing text against the word list."""

import pytest

from check_wording import check_fields, find_avoided, read_markdown, read_python, read_template

AVOIDED = {"goes on|go on": "'continues'"}


@pytest.mark.parametrize(
    "source",
    [
        'message = "The event goes on."',
        'message = f"{event} goes on."',
        '@command(app, "watch")\ndef watch():\n    """The event goes on."""',
    ],
)
def test_strings_and_help_of_commands_are_checked(source: str) -> None:
    ((_, phrase, better),) = find_avoided(read_python(source), AVOIDED)

    assert (phrase, better) == ("goes on", "'continues'")


@pytest.mark.parametrize(
    "source",
    [
        '"""The event goes on."""',
        'limit = 1\n"""How long it goes on."""',
        'def watch():\n    """The event goes on."""',
        "# it goes on",
        'message = "The event gets on."',
    ],
)
def test_comments_and_docstrings_that_no_user_sees_are_not(source: str) -> None:
    assert not [*find_avoided(read_python(source), AVOIDED)]


def test_line_of_a_phrase_in_a_page_is_told() -> None:
    page = "{# it goes\non #}\n<p title='goes on'>\nThe event goes on.</p>"

    assert [line for line, _, _ in find_avoided(read_template(page), AVOIDED)] == [4]


def test_code_in_the_documentation_is_not_checked() -> None:
    page = "# Title\n```console\n$ it goes on\n```\nRun `go on`.\nThen it goes on.\n"

    assert [line for line, _, _ in find_avoided(read_markdown(page), AVOIDED)] == [6]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('raise E("Give `wait`, or --wait.")', "rule.py:1: name the field in backticks"),
        ('raise E("Give `wait`, or run forewarn wait.")', "rule.py:1: name the field in backticks"),
        ('raise E("Give `wait` or `pause`.")', "`pause` has no option in OPTIONS"),
        ('raise E("Give it.")', "no sentence names `wait` of OPTIONS"),
    ],
)
def test_sentences_of_rules_name_fields_and_each_has_an_option(source: str, problem: str) -> None:
    (found,) = check_fields({"rule.py": source}, ["wait"])

    assert found.startswith(problem)


def test_docstrings_of_rules_may_name_options() -> None:
    source = '"""See --wait."""\nmessage = "Give `wait`."'

    assert not [*check_fields({"rule.py": source}, ["wait"])]
