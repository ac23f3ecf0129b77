//go:build tools

// Package tools pins the program that signs what is released.
package tools

import (
	_ "github.com/sigstore/cosign/v3/cmd/cosign"
)
