"""What tests on columns say of partition values."""
