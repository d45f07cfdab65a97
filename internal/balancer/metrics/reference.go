// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
)

// Reference returns the page that explains every metric, in Markdown.
func Reference() string {
	var page strings.Builder
	page.WriteString(`# Metrics

Generated from the list of metrics in the program (` + "`go test ./internal/balancer/metrics -run Reference -update`" + `): do not edit.
How to scrape them: [metrics](../guides/metrics.md). Beside them are those of the process and of the Go runtime
(` + "`process_*`, `go_*`" + `), by the names that every Go program has.

| metric | type | labels | what it is |
|---|---|---|---|
`)
	for _, f := range families() {
		var labels []string
		for _, label := range f.labels {
			labels = append(labels, "`"+label+"`")
		}
		kind := "gauge"
		if f.kind == counter {
			kind = "counter"
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", f.name, kind, strings.Join(labels, ", "), f.help)
	}
	return page.String()
}
