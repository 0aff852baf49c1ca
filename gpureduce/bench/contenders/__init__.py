"""The contenders of the suites: what is timed, on which arrays, and by which clock."""
