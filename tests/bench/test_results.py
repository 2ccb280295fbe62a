from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.results import Results

from bench import machine
from tests.bench.sample_results import failure, measurement, results


def test_a_result_file_gives_back_every_repetition(tmp_path: Path) -> None:
    """Whoever doubts a median can look at what it was made of."""
    file = tmp_path / "some" / "results.json"
    found = results(
        measurement("drain", "arq", 0, jobs_per_second=800),
        measurement("drain", "arq", 1, jobs_per_second=900),
        failure("drain", "saq", "not measured: no Redis"),
    )
    found.save(file)
    assert Results.load(file) == found
    assert [path.name for path in file.parent.iterdir()] == ["results.json"]


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="has format 99"):
        Results.load(file)


def test_only_repetitions_with_the_figure_count() -> None:
    found = results(
        measurement("drain", "arq", 0, jobs_per_second=800), failure("drain", "arq", "failed: oh")
    )
    summary = found.summary("drain", "arq", "jobs_per_second")
    assert summary is not None
    assert summary.repetitions == 1
    assert found.summary("drain", "arq", "p50_ms") is None
    assert found.problem("drain", "arq") == "failed: oh"


def test_the_machine_is_described() -> None:
    described = machine.describe()
    assert described["cores"] >= 1
    assert {"kernel", "processor", "memory", "python", "sqlite"} <= described.keys()
