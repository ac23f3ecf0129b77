//go:build tools

// Package tools pins the S3 server that tests of object storage use.
package tools

import (
	_ "github.com/versity/versitygw/cmd/versitygw"
)
