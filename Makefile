# Everything a contributor types. `make help` lists it.

GO         ?= go
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD      ?= $(shell git log -1 --format=%cs 2>/dev/null || echo unknown)
REVISION   ?= $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)
LDFLAGS    := -s -w -X main.version=$(VERSION) -X main.build=$(BUILD) -X main.revision=$(REVISION)

# The linter comes from the Go module proxy, in this version, once.
LINT_VERSION := v2.15.0
TOOLS        := $(CURDIR)/bin/tools
LINT         := $(TOOLS)/golangci-lint-$(LINT_VERSION)

# Runs tests, repeats those that fail and lists flaky and slow ones.
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM         := $(TOOLS)/gotestsum-$(GOTESTSUM_VERSION)

# The version is stamped by LDFLAGS; Go need not ask git a second time, which
# fails in a checkout that belongs to another user.
export GOFLAGS := -buildvcs=false

# The header of NVML marks much of what go-nvml wraps as deprecated.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations

# The Go client, a module of its own.
SDK := berth/sdk/go

.DEFAULT_GOAL := help
.PHONY: help supervisor build client demo test test-long security check race lint openapi-lint fmt faults faults-long faults-report faults-binary clean

help: ## List what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

SUPERVISOR := node/executor/program/berth-supervisor
comma      := ,
space      := $(subst ,, )

# The program of supervisors, which the node has inside when it is built with the tag supervisor.
supervisor:
	CGO_ENABLED=0 $(GO) build $(TRIM) -ldflags '-s -w' -o $(SUPERVISOR).new ./cmd/berth-supervisor
	@mv $(SUPERVISOR).new $(SUPERVISOR)

build: TRIM := -trimpath
build: supervisor ## Build bin/berth; TAGS=gcs adds Google Cloud Storage (gs://)
	$(GO) build -trimpath -tags 'supervisor,$(subst $(space),$(comma),$(TAGS))' -ldflags '$(LDFLAGS)' -o bin/berth ./cmd/berth

client: ## Build clients for other machines: bin/client/berth-OS-ARCH, without the parts of a node
	@for target in darwin/arm64 darwin/amd64 windows/amd64 linux/arm64 linux/amd64; do \
		os=$${target%/*} arch=$${target#*/}; suffix=; test $$os = windows && suffix=.exe; \
		echo bin/client/berth-$$os-$$arch$$suffix; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -trimpath -tags client -ldflags '$(LDFLAGS)' \
			-o bin/client/berth-$$os-$$arch$$suffix ./cmd/berth || exit 1; \
	done

demo: ## Start three nodes on this machine and let them pick a GPU type; KEEP=1 leaves them up
	@scripts/setup.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/as-root.sh bin/berth demo $(if $(KEEP),--keep)

test: ## Install what tests need, then run those that prove a change; at most 13 minutes is the aim
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory $(GOTESTSUM) supervisor
	@GOTESTSUM=$(GOTESTSUM) scripts/test.sh $(or $(PKG),./... $(SDK))

test-long: ## Run all tests in their long form: fault round, failpoints, planted bugs, cgroup v2 guest
	@scripts/setup.sh test-long
	@$(MAKE) --no-print-directory $(GOTESTSUM)
	@GOTESTSUM=$(GOTESTSUM) scripts/test.sh --long $(or $(PKG),./... $(SDK))

security: ## Run the attacks of docs/security.md and print which classes were tried and held
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory supervisor
	@scripts/security.sh $(PATTERN)

race: ## Run the tests of PKG (all by default) under the race detector, without set-up
	$(GO) test -race -shuffle=on -timeout 40m $(or $(PKG),./...)

check: lint ## Check words, format, lint, the OpenAPI document and known vulnerabilities, then run make test
	@scripts/vulnerabilities.sh
	@scripts/setup.sh test
	@rm -f bin/skipped.txt
	@SKIPPED=bin/skipped.txt scripts/openapi.sh
	@$(MAKE) --no-print-directory test
	@if [ -s bin/skipped.txt ]; then echo "checks that were skipped: $$(wc -l <bin/skipped.txt)"; cat bin/skipped.txt; fi

lint: $(LINT) supervisor ## Check words, format, vet and lint
	scripts/words.sh
	$(LINT) fmt --diff
	$(GO) vet ./... $(SDK)
	$(GO) vet -tags gpu ./gpu
	$(GO) vet -tags long ./...
	$(GO) vet -tags supervisor ./node/executor/...
	$(GO) vet -tags long,gcs ./node/objects/remote/...
	$(LINT) run
	cd sdk/go && $(abspath $(LINT)) run --config ../../.golangci.yml

openapi-lint: ## Lint the OpenAPI document with Spectral; SKIP_OPENAPI_LINT=1 lets it be skipped without npm
	@scripts/openapi.sh

fmt: $(LINT) ## Format the code
	$(LINT) fmt

# A program with failpoints and planted bugs, for test clusters only.
faults-binary:
	@scripts/setup.sh test
	$(GO) build -trimpath -tags faults -ldflags '$(LDFLAGS)' -o bin/berth-faults ./cmd/berth

faults: faults-binary ## Break a cluster for 6 minutes and check it, then see that planted bugs are found; SEED=n repeats a run
	@scripts/as-root.sh bin/berth-faults bench faults --points --workers 1 --duration 6m $(if $(SEED),--seed $(SEED))
	@scripts/as-root.sh bin/berth-faults bench faults --controls $(if $(SEED),--seed $(SEED))
	$(GO) test -tags long ./fault -timeout 40m -run 'TestPlantedBugsAreFound|TestSimulationFindsPlantedBugs' -args -all
	$(GO) test -tags long ./bench/dst -run TestInvariantsHold

faults-long: faults-binary ## The same for DURATION (1h), with each run added to docs/reliability/faults.jsonl, and all told in faults.md
	@mkdir -p docs/reliability
	@scripts/as-root.sh bin/berth-faults bench faults --points --workers 1 --total $(or $(DURATION),1h) --out docs/reliability/faults.jsonl; \
	code=$$?; $(MAKE) --no-print-directory faults-report && exit $$code

FAULT_RUNS := docs/reliability/faults.jsonl

faults-report: ## Write what the lines of docs/reliability/faults.jsonl add up to into faults.md and docs/reliability.md
	@mkdir -p bin
	@$(GO) build -o bin/berth-report ./cmd/berth
	bin/berth-report bench faults --report $(FAULT_RUNS) --markdown > bin/faults.md
	@cp bin/faults.md docs/reliability/faults.md
	bin/berth-report bench faults --report $(FAULT_RUNS) --into docs/reliability.md
	@bin/berth-report bench faults --report $(FAULT_RUNS)

clean: ## Remove what was built
	rm -rf bin $(SUPERVISOR)

$(GOTESTSUM):
	@echo "building gotestsum $(GOTESTSUM_VERSION), once"
	@GOBIN=$(TOOLS) $(GO) install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	@mv $(TOOLS)/gotestsum $@

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION), once"
	@GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv $(TOOLS)/golangci-lint $@
