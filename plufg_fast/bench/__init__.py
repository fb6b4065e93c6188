"""The side-by-side benchmark: what is compared, how it is timed, what it is compared with."""
