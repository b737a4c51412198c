# What people run here. tools/make.py does the work; tools/python finds an interpreter for it.
# ARGS, DATA and PYTHON on the command line reach it through the environment.
.PHONY: help demo test soak e2e e2e-versions cluster lint bench bench-packing image

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## see it work on a simulated cluster; ARGS=--once: then end
	@tools/python -m tools.make demo

test: ## lint, types, tests; ARGS="-k two_binds": only those tests, in full
	@tools/python -m tools.make test

soak: ## random lives of a cluster until stopped; ARGS="--minutes 60 --seed 1"
	@tools/python -m tools.make soak

e2e: ## tests on a real control plane; root, Go; ARGS="-k wake": only those
	@tools/python -m tools.make e2e

e2e-versions: ## scheduling with kube-scheduler 1.22, 1.23, 1.25, 1.28, 1.31; root, Go
	@tools/python -m tools.make e2e-versions

cluster: ## a real Kubernetes to play with, only GPUs simulated; root, Go
	@tools/python -m tools.make cluster

lint: ## style, types and layers only
	@tools/python -m tools.make lint

bench: ## measurements with their budgets; ARGS="-o json" for programs
	@tools/python -m tools.make bench

bench-packing: ## published packing results, replayed; DATA=FOLDER has them
	@tools/python -m tools.make bench-packing

image: ## a container image without docker: .build/image.tar; root
	@tools/python -m tools.make image
