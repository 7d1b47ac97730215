# Every target sets up what it needs; `make` alone lists them.
python := .venv/bin/python
ARGS ?=
# The tests' own files live in memory where there is plenty: a kill does not need a disk, and a disk is slow.
memory := $(shell [ "$$(df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 {print $$4}')" -gt 1000 ] 2>/dev/null && echo /dev/shm)
# Many tests start processes, and without compiled files each of them would compile Postroad anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo marketplace marketplace-servers catalog catalog-servers genesis genesis-servers test check bench model simulate mutation chaos requirements protos pictures services-up services-down clean

help: ## this list
	@awk -F ':.*## ' -v bold="$$([ -t 1 ] && tput bold 2>/dev/null)" -v plain="$$([ -t 1 ] && tput sgr0 2>/dev/null)" \
	  '/^[a-z-]+:.*## / {printf "  %smake %-20s%s %s\n", bold, $$1, plain, $$2}' $(MAKEFILE_LIST)

setup: ## the virtual environment in .venv, with all dependencies
	@scripts/setup

demo: setup ## a small shop, from order to receipt
	@$(python) examples/shop/demo.py $(ARGS)

marketplace: setup ## a second-hand shop with a page, on SQLite and the embedded broker; orders must be paid in 30 s
	@$(python) -m examples.marketplace --payment-seconds 30 $(ARGS)

marketplace-servers: setup ## the same shop on MariaDB and RabbitMQ
	@scripts/services up mariadb rabbitmq
	@eval "$$(scripts/services env)" && DATABASE_URL="$${POSTROAD_TEST_MARIADB_URL%/*}/marketplace" \
	  BROKER_URL="$$POSTROAD_TEST_RABBITMQ_URL" $(python) -m examples.marketplace --payment-seconds 30 $(ARGS)

genesis: setup ## stories, written with three workers in processes of their own, on SQLite and the embedded broker
	@$(python) -m examples.genesis $(ARGS)

genesis-servers: setup ## the same on PostgreSQL and Kafka
	@scripts/services up postgresql kafka
	@eval "$$(scripts/services env)" && DATABASE_URL="$${POSTROAD_TEST_POSTGRESQL_URL%/*}/genesis" \
	  BROKER_URL="$$POSTROAD_TEST_KAFKA_URL" $(python) -m examples.genesis $(ARGS)

catalog: setup ## videos: a service that writes them, one that finds them, and a page; SQLite and the embedded broker
	@$(python) -m examples.catalog $(ARGS)

catalog-servers: setup ## the same two services on PostgreSQL, each with its schema and role, and Pub/Sub
	@scripts/services up postgresql pubsub
	@eval "$$(scripts/services env)" && $(python) -m examples.catalog --postgresql "$${POSTROAD_TEST_POSTGRESQL_URL%/*}/catalog" \
	  --broker-url "$$POSTROAD_TEST_PUBSUB_URL" $(ARGS)

test: setup services-up ## all tests, on real databases; ARGS="-k relay" for some
	@$(if $(ARGS),,rm -f build/requirements.json)
	@PYTEST_DEBUG_TEMPROOT=$(memory) $(python) -m pytest $(or $(ARGS),--numprocesses 3 --dist loadscope --no-loadscope-reorder)

check: setup ## lint, format, types
	@scripts/check

bench: setup ## throughput and latency
	@scripts/services down
	@POSTROAD_DURABLE=1 scripts/services up postgresql $(if $(filter-out --%,$(ARGS)),$(filter rabbitmq kafka pubsub,$(ARGS)),rabbitmq kafka pubsub) || true
	@$(python) -m bench $(ARGS); measured=$$?; scripts/services down; exit $$measured

model: setup ## every state of the protocol within small bounds, and planted mistakes; ARGS="--story all" tells them
	@$(python) -m proof.model $(ARGS)

simulate: setup ## the real code on virtual time, thousands of seeds; ARGS="--seed 7 --trace" tells one
	@$(python) -m proof.simulator $(ARGS)

mutation: setup services-up ## small mistakes planted in the code, to see which no test notices
	@$(python) -m proof.mutation $(ARGS)

chaos: setup ## real processes, killed, frozen and cut off; ARGS=--long for minutes of it
	@$(python) -m proof.chaos $(ARGS)

requirements: setup ## which requirements the last tests proved
	@$(python) scripts/requirements.py $(ARGS)

protos: setup ## the Python code of the examples' .proto files
	@scripts/protos

pictures: setup ## the dashboard's screens for the guide, in docs/images/dashboard
	@scripts/services up chromium
	@$(python) scripts/pictures.py

# A service that cannot be had is no reason to stop: its tests are skipped, and say why.
services-up: ## the databases the tests need
	@scripts/services up || true

services-down: ## stop what services-up started
	@scripts/services down

clean: services-down ## remove all that was built, installed or stored here
	@scripts/clean
