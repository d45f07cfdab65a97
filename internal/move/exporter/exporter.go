// SPDX-License-Identifier: Apache-2.0

// Package exporter writes a Jeoul configuration in another balancer's language, as far as that language can express it.
// It is the reverse of package importer. Each dialect is a subpackage that writes from a ledger. No part of the
// configuration is dropped silently.
package exporter

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/move/exporter/haproxy"
	"github.com/jeoul/jeoul/internal/move/exporter/ipvsadm"
	"github.com/jeoul/jeoul/internal/move/exporter/keepalived"
	"github.com/jeoul/jeoul/internal/move/exporter/ledger"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// ErrNothing means that the other program can express no service; the remarks give the reasons.
var ErrNothing = errors.New("no service can be expressed")

// Result is the result of an export.
type Result struct {
	// Text is the other program's configuration; nil where no service can be expressed.
	Text []byte
	// Remarks are on the lines that were not carried over unchanged, in the order of the lines.
	Remarks []remark.Remark
	// Services is the number of services carried over. Left is the number of remarks on lines that were left out.
	Services, Left int
}

// dialect is a target language.
type dialect struct {
	name string
	// write returns the services without a heading. The comment on each service names its line in the source.
	write func(*ledger.Ledger) string
	// reasons give, by key, why the language has no equivalent of it.
	reasons map[string]ledger.Reason
}

var dialects = []dialect{
	{"haproxy", haproxy.Write, haproxy.Reasons},
	{"ipvsadm", ipvsadm.Write, ipvsadm.Reasons},
	{"keepalived", keepalived.Write, keepalived.Reasons},
}

// Dialects returns the names of the target languages.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}

// Export writes a configuration in a dialect. An error lists the configuration's problems, as config.Parse does.
// ErrNothing comes with a result, whose remarks give the reasons.
func Export(name string, file config.Source) (*Result, error) {
	i := slices.IndexFunc(dialects, func(d dialect) bool { return d.name == name })
	if i < 0 {
		return nil, fmt.Errorf("export %s: unknown dialect %q", file.Name, name)
	}
	l, err := ledger.New(name, file)
	if err != nil {
		return nil, err
	}
	body := dialects[i].write(l)
	l.Account(dialects[i].reasons)
	result := &Result{Remarks: l.Remarks, Services: l.Carried(), Left: l.Count(remark.Left)}
	if result.Services == 0 {
		return result, ErrNothing
	}
	var text strings.Builder
	for _, line := range l.Heading() {
		fmt.Fprintf(&text, "# %s\n", line)
	}
	result.Text = []byte(text.String() + body)
	return result, nil
}
