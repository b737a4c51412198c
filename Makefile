# What people run here. tools/make.py does the work; tools/python finds an interpreter for it.
# ARGS and PYTHON on the command line reach it through the environment.
.PHONY: help demo test soak e2e e2e-versions cluster lint bench image

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## see it work on a simulated cluster; ARGS=--once: then end
	@tools/python tools/make.py demo

test: ## lint, types, tests; ARGS="-k two_binds": only those tests, in full
	@tools/python tools/make.py test

soak: ## random lives of a cluster until stopped; ARGS="--minutes 60 --seed 1"
	@tools/python tools/make.py soak

e2e: ## tests on a real control plane; root, Go; ARGS="-k wake": only those
	@tools/python tools/make.py e2e

e2e-versions: ## scheduling with kube-scheduler 1.22, 1.23, 1.25, 1.28, 1.31; root, Go
	@tools/python tools/make.py e2e-versions

cluster: ## a real Kubernetes to play with, only GPUs simulated; root, Go
	@tools/python tools/make.py cluster

lint: ## style, types and layers only
	@tools/python tools/make.py lint

bench: ## measurements with their budgets; ARGS="-o json" for programs
	@tools/python tools/make.py bench

image: ## a container image without docker: .build/image.tar; root
	@tools/python tools/make.py image
