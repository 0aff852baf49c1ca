"""A class: submissions graded in one go, assignments, and bundles for other systems."""
