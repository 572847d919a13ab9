"""Combine several runs into one."""
