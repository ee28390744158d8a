"""Helpers of the launcher."""
