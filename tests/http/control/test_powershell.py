"""The PowerShell module in contrib: what can be said about it without a PowerShell.

It uses paths, parameters and members that the OpenAPI document has, and exports what it defines.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

MODULE = Path(__file__).parents[3] / "contrib" / "powershell" / "Forewarn"
SOURCE = (MODULE / "Forewarn.psm1").read_text(encoding="utf-8")
MANIFEST = (MODULE / "Forewarn.psd1").read_text(encoding="utf-8")
PRIVATE = {"Assert-Private", "Select-Given", "Expand-Route", "Invoke-ForewarnControl"}
VERBS = {
    "Approve", "Complete", "Connect", "Get", "New", "Remove", "Restart", "Set", "Start", "Step",
    "Stop",
}  # fmt: skip
"""The approved verbs of PowerShell that are used."""
CALL = re.compile(r"Invoke-ForewarnControl -Method (\w+) -Path '([^']*)'(.*)")
FUNCTION = re.compile(r"^function ([\w-]+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
CALLS = [(method, path, rest) for method, path, rest in CALL.findall(SOURCE)]


def functions() -> dict[str, str]:
    return dict(FUNCTION.findall(SOURCE))


def keys(rest: str, flag: str) -> set[str]:
    """Return the names in the table that *flag* is given."""
    table = re.search(rf"-{flag} @\{{(.*?)\}}(?=\)| -[A-Z]|$)", rest)
    return set(re.findall(r"(?:^|;)\s*(\w+) =", table[1])) if table else set()


def names(schema: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    """Yield the members of the objects that *schema* allows."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", ())
    for choice in schema.get("anyOf", ()):
        yield from names(choice, document)


def test_manifest_exports_what_the_module_defines() -> None:
    exported = re.findall(r"'([A-Z]\w+-\w+)'", MANIFEST)

    assert sorted(exported) == sorted(functions().keys() - PRIVATE)
    assert "RootModule        = 'Forewarn.psm1'" in MANIFEST


@pytest.mark.parametrize("name", sorted(functions().keys() - PRIVATE))
def test_function_has_an_approved_verb_and_an_example_of_itself(name: str) -> None:
    assert name.partition("-")[0] in VERBS
    assert name.partition("-")[2].startswith("Forewarn")
    example = re.search(r"\.EXAMPLE\n(.+)", functions()[name])
    assert example is not None
    assert name in example[1]


def test_calls_are_those_that_the_api_describes(app: FastAPI) -> None:
    document = app.openapi()
    for method, path, rest in CALLS:
        operation = document["paths"][f"/api/v1/{path}"][method.lower()]
        content = operation.get("requestBody", {}).get("content", {})
        schema = content.get("application/json", {}).get("schema", {})
        asked = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}

        assert keys(rest, "Values") == set(re.findall(r"\{(\w+)\}", path)), path
        assert keys(rest, "Query") <= asked, path
        assert keys(rest, "Body") <= set(names(schema, document)), path
        assert bool(keys(rest, "Body")) == ("-Body" in rest), path
        assert bool(keys(rest, "Query")) == ("-Query" in rest), path


def test_every_call_is_looked_at() -> None:
    assert len(CALLS) == SOURCE.count("Invoke-ForewarnControl -Method") > 15
    assert len({(method, path) for method, path, _ in CALLS}) == len(CALLS)


def test_token_goes_in_the_clear_to_loopback_only_and_follows_no_redirect() -> None:
    ask = functions()["Invoke-ForewarnControl"]
    check = functions()["Assert-Private"]

    assert ask.index("Assert-Private -Server $server") < ask.index('"Bearer $token"')
    assert "MaximumRedirection = 0" in ask
    assert "$uri.Scheme -eq 'https' -or $uri.IsLoopback" in check
    assert "$env:FOREWARN_INSECURE_CONTROL" in check
    assert "throw" in check
    assert SOURCE.count("Bearer") == 1


def test_readme_says_that_it_is_untested() -> None:
    readme = (MODULE.parent / "README.md").read_text(encoding="utf-8")

    assert "The module is untested" in readme
    for name in re.findall(r"\b[A-Z]\w+-Forewarn\w+", readme):
        assert name in functions()
