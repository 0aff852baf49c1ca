"""The cost of exact sums; ``python -m gpureduce.exact_bench`` measures it on this machine."""

from gpureduce.bench.suites.exact import load, main, markdown

__all__ = ["load", "main", "markdown"]

if __name__ == "__main__":
    raise SystemExit(main())
