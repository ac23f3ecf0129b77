"""Prints the rows of shop.orders as PyIceberg reads them, in a pod that mounts the claim at /skipstone/lake."""

from __future__ import annotations

from pyiceberg.catalog.sql import SqlCatalog

catalog = SqlCatalog("skipstone", uri="sqlite:////skipstone/lake/catalog.db", warehouse="/skipstone/lake")
table = catalog.load_table("shop.orders")
for row in sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["order_id"]):
    print(row["order_id"], row["customer"], row["price"])
