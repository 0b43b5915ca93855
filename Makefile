# The front door. Everything is built by CMake (see CMakePresets.json); these are short names.

PREFIX  ?= /usr/local
DESTDIR ?=

.DEFAULT_GOAL := all
.PHONY: all run test test-fast test-verbs test-planted bench bench-fabric bench-store bench-kv
.PHONY: bench-rdma bench-verbs soak vm-shell lint format install uninstall deb test-deb clean help
MAKEFLAGS += --no-print-directory

all: ## build everything, optimized, into build/ (this is what plain `make` does)
	@scripts/build release

run: ## install what building needs, build, and show a server and a client at work on this machine
	@scripts/setup
	@scripts/build release
	@scripts/kv-tour

test: ## install what it needs, then lint and run all tests, also with sanitizers and fuzzers
	@scripts/setup lab
	@scripts/test

test-fast: ## the fast tests of the release build only
	@scripts/test --fast

test-verbs: ## the tests with kernel verbs only, in emulated guests (part of `make test`)
	@scripts/setup lab
	@scripts/test-verbs

vm-shell: ## a shell in an emulated guest that has kernel verbs, to try things by hand
	@scripts/setup lab
	@scripts/build release
	@scripts/vm-shell

soak: ## linearizability for long: every run of the checker takes SECONDS (default 60)
	@scripts/build release
	@REMORA_SOAK_SECONDS=$(or $(SECONDS),60) build/tests/linear_test

test-planted: ## show that the tests can fail: plant bugs in a copy of the tree (two minutes)
	@scripts/setup test
	@scripts/planted

bench: bench-fabric bench-store bench-kv bench-rdma ## all benchmarks

bench-fabric: ## the fabric beside other transports, with the ratios
	@scripts/setup bench
	@scripts/build release
	@scripts/bench-fabric

bench-store: ## the store engine beside a bare table, Redis and memcached (ten minutes)
	@scripts/setup bench
	@scripts/build release
	@scripts/bench-store

bench-kv: ## server and client beside Redis and memcached, and in a guest beside perftest
	@scripts/setup bench
	@scripts/setup lab
	@scripts/build release
	@scripts/bench-kv

bench-rdma: ## the easy RDMA library beside the bare fabric, and the same in a guest
	@scripts/setup lab
	@scripts/build release
	@scripts/bench-rdma

bench-verbs: ## the fabric on verbs beside perftest, in an emulated guest
	@scripts/setup lab
	@scripts/build release
	@scripts/bench-verbs

lint: ## formatting, static analysis, and the rules of the tree
	@scripts/lint

format: ## format all C files in place
	@scripts/lint --format

install: all ## install to PREFIX (/usr/local), below DESTDIR if it is set
	@cmake -S . -B build -DCMAKE_INSTALL_PREFIX="$(PREFIX)" > build/install.log
	@DESTDIR="$(DESTDIR)" cmake --install build

uninstall: ## remove what `make install` of this build installed; the configuration stays
	@DESTDIR="$(DESTDIR)" cmake -DMANIFEST=build/install_manifest.txt -P cmake/Uninstall.cmake

deb: ## Debian packages of what `make install` installs, in build/package
	@scripts/setup deb
	@scripts/build release
	@rm -rf build/package
	@cd build && cpack -G DEB -B package

test-deb: deb ## install, use and remove them in a bare Debian (minutes; needs root)
	@scripts/test-deb build/package/*.deb

clean: ## remove everything that was built
	@rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile
