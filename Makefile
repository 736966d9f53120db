# Short names for the entry points; CMake does the work (CMakePresets.json).

PREFIX ?= /usr/local
LLAMA := $(if $(filter no,$(WITH_LLAMA)),,tools/get-llama --print)
SOURCES = $(shell git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.mm')

.DEFAULT_GOAL := help
.PHONY: help build demo check check-storm check-vm asan tsan fuzz bench report install format format-check tidy clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: ## programs in build/release/bin, libraries in build/release/lib (WITH_LLAMA=no: without llama.cpp)
	cmake --preset release -DRESID_BENCH=OFF -DRESID_LLAMA_DIR="$(if $(LLAMA),$$($(LLAMA)))"
	cmake --build build/release

demo: ## a real model inside a RAM budget
	./demo

check: ## the quick tests
	./check

check-storm: ## the quick tests and the long stress tests
	./check --storm

check-vm: ## tests under Debian 12's kernel in a virtual machine (docs/testing.md)
	cmake --preset release -DRESID_TESTS=ON -DRESID_BENCH=OFF -DRESID_LLAMA_DIR="$$(tools/get-llama --print)"
	cmake --build build/release --target $$(tools/check-vm --targets)
	tools/check-vm

asan: ## the quick tests, and the library's own under the address and undefined-behaviour sanitizers
	./check --asan

tsan: ## the quick tests, and the library's own under the thread sanitizer
	./check --tsan

fuzz: ## build the fuzzers (clang) into build/fuzz
	cmake --preset fuzz
	cmake --build --preset fuzz

bench: ## build and run the micro-benchmarks, into build/bench (BENCH_FILTER=REGEX takes some, BENCH_ARGS=... adds options)
	cmake --preset release -DRESID_BENCH=ON
	cmake --build build/release
	bench/run $(if $(BENCH_FILTER),--filter='$(BENCH_FILTER)') $(BENCH_ARGS)

report: build ## the standard sweep of every arm into build/report: figures, tables, one page (REPORT_ARGS=... adds options)
	build/release/bin/residctl sweep --out build/report --size 1GiB --chunk 2MiB --arms A,B,C,D,E,OPT \
	  --ratios 0.25,0.375,0.5,0.625,0.75 --repeats 3 $(REPORT_ARGS)
	@echo "$(CURDIR)/build/report/report.html"

install: ## into PREFIX (default /usr/local), below DESTDIR if set
	cmake --preset release -DRESID_BENCH=OFF -DCMAKE_INSTALL_PREFIX="$(PREFIX)"
	cmake --build build/release
	cmake --install build/release

format: ## lay out every source with clang-format
	clang-format -i $(SOURCES)

format-check: ## fail when a source is not laid out so
	clang-format --dry-run --Werror $(SOURCES)

tidy: ## clang-tidy over every source
	cmake --preset clang -DRESID_BENCH=OFF
	run-clang-tidy -quiet -p build/clang "$(CURDIR)/(src|include|tests|examples)/"

clean: ## remove build/ (the llama.cpp cache stays)
	rm -rf build
