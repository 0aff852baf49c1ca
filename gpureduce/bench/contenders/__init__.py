"""The contenders that several suites have: what is timed, on which arrays, and by which clock."""
