# The local Kubernetes: see docs/testbed.md. Included by the Makefile.
CLUSTER_CLI := python3 -m tests.cluster
# With STORAGE=s3, the cluster also has the images of an S3 server and of a REST catalog.
STORAGE ?= volume
export STORAGE
WITH_S3 := $(if $(filter s3,$(STORAGE)),--s3)

.PHONY: cluster cluster-down cluster-reset cluster-check-clean cluster-images cluster-smoke cluster-tools cluster-purge
.PHONY: cluster-kubectl kube-up kube-down

cluster: ## Start the local Kubernetes with the project's images
	@$(CLUSTER_CLI) up $(WITH_S3)

cluster-down: ## Stop it; nothing stays running, mounted or configured
	@$(CLUSTER_CLI) down

cluster-reset: ## Stop it and forget its objects and volumes
	@$(CLUSTER_CLI) reset

cluster-check-clean: ## Fail if a stopped cluster left anything on the machine
	@$(CLUSTER_CLI) check-clean

cluster-images: ## Rebuild changed images and hand them to the running cluster
	@$(CLUSTER_CLI) images $(WITH_S3)

cluster-smoke: ## Run a Spark driver with one executor on the cluster
	@$(CLUSTER_CLI) smoke

cluster-tools: ## Build the Kubernetes programs from their pinned modules
	@$(CLUSTER_CLI) tools

cluster-kubectl: ## Build kubectl alone: tests against the server of `skipstone local` need no other program
	@$(CLUSTER_CLI) kubectl

cluster-purge: ## Stop it and remove everything that was built for it
	@$(CLUSTER_CLI) purge

kube-up: ## Start a Kubernetes API without a node
	@$(CLUSTER_CLI) kube-up

kube-down: ## Stop it
	@$(CLUSTER_CLI) kube-down
