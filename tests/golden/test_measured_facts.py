"""The measured facts that ship: a few hundred rows, each with source and date, that read as runs and are predicted.

Bars are loose here on purpose (`stoker validate` and benchmarks/LOG.md tell the true ones): this test fails when a
change makes predictions of published runs useless, names a GPU wrongly, or loses rows.
"""

from dataclasses import replace

import pytest

from stoker.catalogue.efficiency import load_efficiency
from stoker.catalogue.gpus import find_device
from stoker.catalogue.measurements import all_measurements, as_columns
from stoker.catalogue.tables import read_rows
from stoker.validation.run import Compared, compare
from stoker.validation.summary import Summary, summarise
from stoker.validation.table import Row


@pytest.fixture(scope="module")
def rows() -> list[Compared]:
    facts = [Row(columns=as_columns(fact), line=fact.line, measurement=fact) for fact in all_measurements()]
    return compare(facts, replace(load_efficiency(), corrections=()))


@pytest.fixture(scope="module")
def summary(rows: list[Compared]) -> Summary:
    return summarise(rows)


def test_the_facts_span_sources_and_gpus() -> None:
    """Issue 3: a curated few hundred rows over at least 8 sources and 10 GPUs."""
    facts = all_measurements()
    assert len(facts) >= 200
    assert len({fact.source for fact in facts}) >= 8
    assert len({fact.gpu for fact in facts}) >= 10


def test_every_row_names_its_source_place_and_date() -> None:
    assert all(
        row["source"] and row["table"] and row["date"] and row["quality"] for row in read_rows("measurements.csv")
    )
    efficiency = load_efficiency()
    assert all(row.origin and row.date for row in efficiency.speeds)
    assert all(row.origin and row.date for row in efficiency.frameworks)


def test_gpus_stand_under_the_names_of_the_table_where_their_form_is_known() -> None:
    exact = [fact.gpu for fact in all_measurements() if "-SXM" in fact.gpu or "-PCIe" in fact.gpu]
    assert len(exact) >= 100
    assert all(find_device(name).name == name for name in exact)


def test_every_fact_is_predicted(rows: list[Compared]) -> None:
    assert [(row.row.line, row.reason) for row in rows if row.prediction is None] == []
