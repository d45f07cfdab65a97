// SPDX-License-Identifier: Apache-2.0

// Package importer converts another balancer's configuration to Jeoul's. Each dialect is a subpackage that fills a
// draft. No line of an input is dropped silently.
package importer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jeoul/jeoul/internal/move/importer/draft"
	"github.com/jeoul/jeoul/internal/move/importer/haproxy"
	"github.com/jeoul/jeoul/internal/move/importer/ipvsadm"
	"github.com/jeoul/jeoul/internal/move/importer/keepalived"
	"github.com/jeoul/jeoul/internal/move/importer/netfilter"
	"github.com/jeoul/jeoul/internal/move/importer/nginx"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// Result is the result of an import.
type Result struct {
	// Text is the configuration, as a file that Jeoul reads; nil where no service could be carried over.
	Text []byte
	// Remarks are on the lines that were not carried over unchanged, in the order of the lines.
	Remarks []remark.Remark
	// Carried are the lines that are in the configuration. Some of them have a remark as well.
	Carried []remark.At
	// Services is the number of services carried over. Left is the number of remarks on lines that were left out.
	Services, Left int
}

// dialect is a source language.
type dialect struct {
	name string
	read func(*draft.Draft, draft.File) error
	// comments are the marks that begin a comment.
	comments string
}

var dialects = []dialect{
	{"ipvsadm", ipvsadm.Read, "#"},
	{"haproxy", haproxy.Read, "#"},
	{"iptables", netfilter.ReadIPTables, "#"},
	{"nftables", netfilter.ReadNFTables, "#"},
	{"keepalived", keepalived.Read, "#!"},
	{"nginx", nginx.Read, "#"},
}

// Dialects returns the names of the source languages.
func Dialects() []string {
	names := make([]string, len(dialects))
	for i, d := range dialects {
		names[i] = d.name
	}
	return names
}

// Import reads a file in a dialect. An error names the line that cannot be parsed. draft.ErrNothing comes with a
// result, whose remarks give the reasons.
func Import(name string, file draft.File, options draft.Options) (*Result, error) {
	i := slices.IndexFunc(dialects, func(d dialect) bool { return d.name == name })
	if i < 0 {
		return nil, fmt.Errorf("import %s: unknown dialect %q", file.Name, name)
	}
	d := draft.New(name, file.Name, options)
	if err := dialects[i].read(d, file); err != nil {
		return nil, fmt.Errorf("import %w", err)
	}
	d.Account(dialects[i].comments)
	text, err := d.Finish()
	slices.SortStableFunc(d.Remarks, func(a, b remark.Remark) int {
		return cmp.Or(cmp.Compare(a.At.File, b.At.File), cmp.Compare(a.At.Line, b.At.Line))
	})
	return &Result{text, d.Remarks, d.Carried(), len(d.Services), d.Count(remark.Left)}, err
}
