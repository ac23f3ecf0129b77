//go:build tools

// Package tools pins the API server and the controllers of Kubernetes 1.31.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
)
