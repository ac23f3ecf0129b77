"""The rules by which queries are planned: each turns the state of a query into the next one, by what that costs."""
