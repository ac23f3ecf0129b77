# The local Kubernetes: see docs/testbed.md.
CLUSTER_CLI := python3 -m tests.cluster

.PHONY: cluster-tools kube-up kube-down

cluster-tools: ## Build the Kubernetes programs from their pinned modules
	@$(CLUSTER_CLI) tools

kube-up: ## Start a Kubernetes API without a node (for tests/kube)
	@$(CLUSTER_CLI) kube-up

kube-down: ## Stop it
	@$(CLUSTER_CLI) kube-down
