// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// serviceFile is a file of services of two backends each, the i-th with the i-th of these
// fields.
func serviceFile(top string, fields ...string) string {
	var b strings.Builder
	b.WriteString(top + "interface: eth0\nservices:\n")
	for i, field := range fields {
		fmt.Fprintf(&b,
			"  - {name: s%d, vip: 198.18.%d.%d, port: 80, %s, backends: [{name: a, address: 192.0.2.1}, {name: b, address: 192.0.2.2}]}\n",
			i, i>>8, i&255, field)
	}
	return b.String()
}

func repeated(n int, field string) []string { return slices.Repeat([]string{field}, n) }

// TestTablesTogether: tables that each service may have may be too large together; and the size that the error offers
// fits.
func TestTablesTogether(t *testing.T) {
	const large = "table_size: 16777213"
	most := append(repeated(7, large), "table_size: 16776989") // 256 bytes are left for the backends' rows
	tests := map[string]struct{ file, want string }{
		"as many as there can be": {serviceFile("", repeated(7, large)...), ""},
		"of the services": {serviceFile("", append(repeated(1, "table_size: 1021"), repeated(8, large)...)...),
			"f:4: services[1].table_size: the tables of all services take 268438602 bytes together, and can take 268435456; table_size: 14913013 for each of the 9 would fit"},
		"with the rows of backends": {serviceFile("", append(most, "table_size: 1021")...),
			"f:3: services[0].table_size: the tables of all services take 268438154 bytes together, and can take 268435456; table_size: 14913013 for each of the 9 would fit"},
		"of the file": {serviceFile("table_size: 1048573\n", repeated(129, "mode: gue")...),
			"f:1: table_size: the tables of all services take 270548346 bytes together, and can take 268435456; table_size: 1040381 for each of the 129 would fit"},
		"failover has none": {serviceFile("table_size: 1048573\n",
			append(repeated(127, "mode: gue"), repeated(100, "scheduler: fo")...)...), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("f", []byte(test.file))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || err.Error() != test.want {
				t.Fatalf("error %v, want %s", err, test.want)
			}
			_, fits, _ := strings.Cut(test.want, "; ")
			fits, _, _ = strings.Cut(fits, " for")
			lines := strings.Split(test.file, "\n")
			for i := range lines {
				for _, size := range []string{large, "table_size: 16776989", "table_size: 1048573",
					"table_size: 1021"} {
					lines[i] = strings.Replace(lines[i], size, fits, 1)
				}
			}
			if _, err := Parse("f", []byte(strings.Join(lines, "\n"))); err != nil {
				t.Errorf("%s does not fit: %v", fits, err)
			}
		})
	}
}

// TestTablesOfManyBackends: where nothing is written, the number of backends has
// asked for too much.
func TestTablesOfManyBackends(t *testing.T) {
	p := &parser{File: yamlfile.NewFile("f"),
		cfg: &Config{Services: slices.Repeat([]lb.Service{{Backends: make([]lb.Backend, 11)}}, 16500)}}
	p.checkTables()
	want := "f: services: the tables of all services take 281919000 bytes together, and can take 268435456; table_size: 7759 for each of the 16500 would fit"
	if got := p.Problems.Error(); got != want {
		t.Errorf("problems %s, want %s", got, want)
	}
}
