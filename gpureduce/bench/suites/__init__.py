"""The suites of ``gpureduce bench``: cases as data, and the tables of their records."""
