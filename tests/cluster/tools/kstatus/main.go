// Command kstatus prints what the kstatus library computes for objects: one JSON object a line in, one status a line out.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Statuses of real objects are long.
const longestLine = 16 << 20

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(lines.Bytes()); err != nil {
			log.Fatal(err)
		}
		result, err := status.Compute(&object)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.Status)
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
