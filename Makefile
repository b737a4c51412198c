# What people run here. The work is in tools/make.py; tools/python finds the interpreter for it.
# ARGS and PYTHON, given on the command line, reach it through the environment.
.PHONY: help test lint bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: ## lint, types, tests; ARGS="-k two_binds": only those tests, in full
	@tools/python tools/make.py test

lint: ## style, types and layers only
	@tools/python tools/make.py lint

bench: ## measure it; ARGS="-o json" for programs
	@tools/python tools/make.py bench
