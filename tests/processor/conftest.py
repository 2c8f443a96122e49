from __future__ import annotations

from collections.abc import Iterator

import pytest

from .bank import Bank, Customer, open_bank


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """The processor that all tests share."""
    with open_bank(tmp_path_factory.mktemp("processor") / "ledger.sqlite") as bank:
        yield bank


@pytest.fixture
def customer(bank: Bank) -> Iterator[Customer]:
    """A customer of this test's own."""
    customer = Customer(bank)
    try:
        yield customer
    finally:
        customer.forget()
