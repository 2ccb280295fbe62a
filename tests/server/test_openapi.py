"""The OpenAPI document: made from the route table, committed, valid."""

from __future__ import annotations

import re

from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from tests.docs.generated import OPENAPI, openapi_text
from tests.docs.pages import ROOT
from tidewheel.core.model import DerivedState, State
from tidewheel.server import openapi
from tidewheel.server.problems import PROBLEMS
from tidewheel.server.route import Permission
from tidewheel.server.routes import ROUTES


def test_the_committed_document_is_the_one_that_is_served() -> None:
    """Clients are generated from it: run python -m tests.docs.generated."""
    assert OPENAPI.read_text("utf-8") == openapi_text()


def test_it_is_openapi_3_1() -> None:
    """It validates against the meta-schema of OpenAPI 3.1."""
    OPENAPI_31_VALIDATOR.validate(openapi.build_document(ROUTES))


def test_every_reference_in_it_leads_somewhere() -> None:
    """Nothing refers to a schema that is not there, and none is there for nothing."""
    text = openapi_text()
    referred = set(re.findall(r"#/components/schemas/(\w+)", text))
    assert referred == set(openapi.build_document(ROUTES)["components"]["schemas"])


def test_names_and_paths_are_taken_once() -> None:
    """Of two routes for one method and path the first would hide the second."""
    document = openapi.build_document(ROUTES)
    named = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(named) == len(set(named)) == sum(len(route.paths) for route in ROUTES)


def test_every_operation_lists_its_problems() -> None:
    """Whoever may be refused is told so in the document, with the media type of problems."""
    for route in ROUTES:
        kinds = {kind.code for kind in openapi.route_problems(route)}
        assert "invalid_input" in kinds
        if route.permission is not Permission.PUBLIC:
            assert {"not_authenticated", "not_permitted"} <= kinds
        assert kinds <= set(PROBLEMS)


def test_get_changes_nothing_and_everything_else_needs_a_caller() -> None:
    """What changes something is no GET, and is never public; a session may be begun by anybody."""
    for route in ROUTES:
        if route.is_mutation:
            assert route.permission is not Permission.PUBLIC, route.name
        if route.permission in {Permission.MANAGE, Permission.ENQUEUE}:
            assert route.method != "GET", route.name


def test_every_problem_is_explained() -> None:
    """The page of problems has each code with its status."""
    page = (ROOT / "docs/reference/http-problems.md").read_text("utf-8")
    for kind in PROBLEMS.values():
        assert f"| {kind.status} | `{kind.code}` |" in page


def test_times_and_states_are_said_to_be_what_they_are() -> None:
    """A client that is generated from it has times and states, not texts."""
    schemas = openapi.build_document(ROUTES)["components"]["schemas"]
    moments = re.compile(r"created|updated|minute|at|locked_until|searched_back_to|\w+_(at|after|before)")
    told = 0
    for name, schema in schemas.items():
        for member, described in schema.get("properties", {}).items():
            options = [option for option in described.get("anyOf", [described]) if "string" in str(option)]
            if moments.fullmatch(member) and options:
                assert [option.get("format") for option in options] == ["date-time"], (name, member)
                told += 1
    assert told > 40
    summary = schemas["JobSummary"]["properties"]
    assert summary["state"]["enum"] == summary["status"]["enum"] == [str(state) for state in State]
    assert set(summary["shown_state"]["enum"]) == {*State, *DerivedState}


def test_descriptions_are_not_indented() -> None:
    """They are shown as they are, by whatever shows the document."""
    assert "\\n    " not in openapi_text()
