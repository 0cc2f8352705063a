"""Episodes as rows: played, written, read, replayed and compared. docs/records.md has the fields."""
