"""What Parquet files say of themselves beside their footers, in Thrift. Knows no table and decodes no value."""
