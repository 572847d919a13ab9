"""Commands for people: run, plan, status, show, compare and others."""
