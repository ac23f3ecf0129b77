#!/usr/bin/env bash
# Kubernetes: 60.0 is valid in an integer field of a CRD until a CEL rule reads the field; 164074574702.8226 is valid, too.
#
# One expects: 60.0 is an integer, as in JSON Schema, or it is not; and a number with a fraction is none.
# What happens: the schema takes 60.0, and it is stored as 60. But a rule that only names the field, be it by has(), ends with
#   "invalid data, expected int, got float64", which refuses the object. So one object is refused, and the same value in a
#   field without rules is not. And a fraction of less than a billionth of the number counts as nothing: an integer field
#   takes 164074574702.8226, and keeps it so.
# Versions: k8s.io/apiextensions-apiserver 0.34.4 (Kubernetes 1.34.4), built by Go 1.24 or newer.
# Why it matters: what generates manifests from numbers of its own (Python's json.dumps(60.0), Helm's arithmetic) writes 60.0,
#   and who adds a rule to a field of a CRD refuses manifests that were valid, with a sentence that does not name the field.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
PATH=$PATH:/usr/local/go/bin
cd "$folder"
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

func judge(value string, rules ...string) {
	fields := map[string]apiextensions.JSONSchemaProps{"seconds": {Type: "integer"}}
	definition := apiextensions.JSONSchemaProps{Type: "object", Properties: fields}
	for _, rule := range rules {
		definition.XValidations = append(definition.XValidations, apiextensions.ValidationRule{Rule: rule})
	}
	structural, err := schema.NewStructural(&definition)
	if err != nil {
		panic(err)
	}
	validator, _, err := validation.NewSchemaValidator(&definition)
	if err != nil {
		panic(err)
	}
	var object map[string]interface{}
	if err := json.Unmarshal([]byte(`{"seconds": `+value+`}`), &object); err != nil {
		panic(err)
	}
	found := validation.ValidateCustomResource(nil, object, validator)
	if byRules := cel.NewValidator(structural, false, celconfig.PerCallLimit); byRules != nil {
		more, _ := byRules.Validate(context.Background(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
		found = append(found, more...)
	}
	fmt.Printf("%s, rules %v: %v\n", value, rules, found.ToAggregate())
}

func main() {
	judge("60", "self.seconds >= 30")
	judge("60.0")
	judge("60.0", "self.seconds >= 30")
	judge("60.0", "has(self.seconds)")
	judge("60.5")
	judge("164074574702.8226")
}
GO
go mod init finding 2>/dev/null
GOFLAGS=-mod=mod go get k8s.io/apiextensions-apiserver@v0.34.4 2>/dev/null
seen=$(go run .)
echo "$seen"
expected=$(cat <<'SEEN'
60, rules [self.seconds >= 30]: <nil>
60.0, rules []: <nil>
60.0, rules [self.seconds >= 30]: <nil>: Invalid value: "object": invalid data, expected int, got float64 evaluating rule: self.seconds >= 30
60.0, rules [has(self.seconds)]: <nil>: Invalid value: "object": invalid data, expected int, got float64 evaluating rule: has(self.seconds)
60.5, rules []: seconds: Invalid value: "number": seconds in body must be of type integer: "number"
164074574702.8226, rules []: <nil>
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
