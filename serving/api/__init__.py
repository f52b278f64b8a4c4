"""The HTTP tier. Nothing below this package imports torch."""
