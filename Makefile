# Every target sets up what it needs: no other command has to run first.

PYTHON ?= python3
BUILD_TOOLS := $(PYTHON) -m build_tools

.DEFAULT_GOAL := help
.PHONY: help demo cpp train test sim mutation bench docs wheel new lint format cache clean

help:  ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */  make \1\t/' | expand -t 16

demo:  ## Generate text with a small GPT (ARGS="--prompt 'Once upon a time'")
	@$(BUILD_TOOLS) demo $(ARGS)

cpp:  ## Run the kernels from C++, without Python and torch (ARGS=--simulator: on the CPU)
	@$(BUILD_TOOLS) cpp $(ARGS)

train:  ## Train a GPT-2 without Python and torch (ARGS="--train tokens.bin", ARGS=--help)
	@$(BUILD_TOOLS) train $(ARGS)

test:  ## Run every test that this machine can (TIER=1..5, TORCH=2.15.0, ARGS="-k norm")
	@$(BUILD_TOOLS) test $(if $(TIER),--tier $(TIER)) $(if $(TORCH),--torch $(TORCH)) $(ARGS)

sim:  ## Run one case of a kernel on the CPU (KERNEL=attention, ARGS="--rows 64 --trace t.json")
	@$(BUILD_TOOLS) sim $(or $(KERNEL),attention) $(ARGS)

mutation:  ## Plant every mistake in the kernels; the simulator has to find it (ARGS="--help")
	@$(BUILD_TOOLS) mutation $(ARGS)

bench:  ## Measure the kernels (ARGS="--help")
	@$(BUILD_TOOLS) bench $(ARGS)

docs:  ## Build the documentation as a site (build/site/index.html)
	@$(BUILD_TOOLS) docs

wheel:  ## Make the wheel for this torch, in dist/ (ARGS=--check: install it apart, run tier 2)
	@$(BUILD_TOOLS) wheel $(ARGS)

new:  ## Write a new op that works, to change (OP=family/op)
	@$(BUILD_TOOLS) new $(OP)

lint:  ## Check the code's form
	@$(BUILD_TOOLS) lint

format:  ## Repair the code's form
	@$(BUILD_TOOLS) format

cache:  ## Say what is kept between clones (ARGS=--clear: remove it)
	@$(BUILD_TOOLS) cache $(ARGS)

clean:  ## Remove what builds have made; the virtual environments stay
	@$(BUILD_TOOLS) clean
