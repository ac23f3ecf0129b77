//go:build tools

// Package tools pins the Helm client that the test cluster builds.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
