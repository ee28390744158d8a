"""Builds Syrtos through CMake; every other setting lives in pyproject.toml."""

from setuptools import setup

setup(cmake_source_dir=".")
