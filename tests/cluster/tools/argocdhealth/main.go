// Command argocdhealth prints what Argo CD makes of objects by health checks of its users.
//
// Its argument is JSON: the scripts by group and kind, as Argo CD names them. Objects come in as one JSON object a line;
// a status and a message go out for each, as JSON.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Statuses of real objects are long.
const longestLine = 16 << 20

func main() {
	overrides := map[string]v1alpha1.ResourceOverride{}
	scripts := map[string]string{}
	if err := json.Unmarshal([]byte(os.Args[1]), &scripts); err != nil {
		log.Fatal(err)
	}
	for name, script := range scripts {
		overrides[name] = v1alpha1.ResourceOverride{HealthLua: script}
	}
	checks := lua.ResourceHealthOverrides(overrides)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			log.Fatal(err)
		}
		judged, err := health.GetResourceHealth(&object, checks)
		if err != nil {
			log.Fatal(err)
		}
		answer, err := json.Marshal(judged)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(answer))
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
