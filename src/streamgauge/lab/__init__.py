"""Train and compare."""
