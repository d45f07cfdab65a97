// SPDX-License-Identifier: Apache-2.0

// Package ledger accounts for each key of a configuration while it is written in the language of another program. The
// writer of a dialect notes the keys that it has written. Account adds remarks on all others, so that no key is dropped
// silently.
package ledger

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/move/remark"
)

// Ledger is a configuration that is being written in another language.
type Ledger struct {
	*config.Config
	// Dialect names the language.
	Dialect string
	Remarks []remark.Remark

	texts []string
	// noted has the outcome of a field and of all fields below it, or, for an approximated field, of that field alone;
	// "": carried over.
	noted map[string]remark.Kind
	made  map[remark.Remark]bool
	// carried has the indexes of the services that are in the result.
	carried map[int]bool
}

// New parses a configuration. Its errors are those of config.Parse.
func New(dialect string, file config.Source) (*Ledger, error) {
	cfg, err := config.Parse(file.Name, file.Data)
	if err != nil {
		return nil, err
	}
	l := &Ledger{Config: cfg, Dialect: dialect, noted: map[string]remark.Kind{}, made: map[remark.Remark]bool{},
		carried: map[int]bool{}}
	for text := range strings.Lines(string(file.Data)) {
		l.texts = append(l.texts, text)
	}
	return l, nil
}

// Carry notes that fields, and all fields below them, are in the result.
func (l *Ledger) Carry(fields ...string) {
	for _, field := range fields {
		l.noted[field] = ""
	}
}

// CarryService notes that a service (from 0) and the given keys of it are in the result.
func (l *Ledger) CarryService(i int, keys ...string) {
	l.carried[i] = true
	for _, key := range keys {
		l.Carry(config.ServiceField(i, key))
	}
}

// CarryBackend notes that keys of a backend (both from 0) are in the result.
func (l *Ledger) CarryBackend(i, j int, keys ...string) {
	for _, key := range keys {
		l.Carry(config.BackendField(i, j, key))
	}
}

// Noted reports whether a writer has noted a field.
func (l *Ledger) Noted(field string) bool {
	_, noted := l.noted[field]
	return noted
}

// Left notes that a field, and all fields below it, are left out, with the reason and the remedy.
func (l *Ledger) Left(field, format string, args ...any) { l.note(field, remark.Left, format, args...) }

// Approximate notes that the result's form of a field differs slightly. The note does not cover the fields below it.
func (l *Ledger) Approximate(field, format string, args ...any) {
	l.note(field, remark.Approximated, format, args...)
}

func (l *Ledger) note(field string, kind remark.Kind, format string, args ...any) {
	before, noted := l.noted[field]
	if l.Written(field) && (!noted || before != "" || kind == remark.Left) { // carried over, but may differ
		l.noted[field] = kind
	}
	l.remark(l.At(field), kind, format, args...)
}

// ApproximateService calls Approximate for a service's key or its default. It does not affect the service's other keys.
func (l *Ledger) ApproximateService(i int, key, format string, args ...any) {
	l.Approximate(config.ServiceField(i, key), key+": "+format, args...)
}

func (l *Ledger) remark(at remark.At, kind remark.Kind, format string, args ...any) {
	r := remark.Remark{At: at, Kind: kind, Text: l.text(at), Why: fmt.Sprintf(format, args...)}
	if !l.made[r] {
		l.made[r] = true
		l.Remarks = append(l.Remarks, r)
	}
}

// At returns the line of a field or, if the field is not written, of the mapping that it would be in.
func (l *Ledger) At(field string) remark.At {
	problem := l.Config.At(field, "")
	return remark.At{File: problem.File, Line: problem.Line}
}

func (l *Ledger) text(at remark.At) string {
	if at.Line < 1 || at.Line > len(l.texts) {
		return ""
	}
	return remark.Shorten(strings.TrimPrefix(strings.TrimSpace(l.texts[at.Line-1]), "- "))
}

// Origin returns a service's line and name, for a comment in the result.
func (l *Ledger) Origin(i int) string {
	return fmt.Sprintf("%s, service %s", remark.Printable(l.At(config.ServiceField(i, "")).String()),
		l.Services[i].Name)
}

// Heading returns a comment for the result: its source, and the tasks that are left to the operator.
func (l *Ledger) Heading() []string {
	lines := []string{fmt.Sprintf("Made of %s by `jeoul export %s`.", remark.Printable(l.File), l.Dialect)}
	var vips []netip.Addr
	for i, s := range l.Services {
		if l.carried[i] && !slices.Contains(vips, s.VIP) {
			vips = append(vips, s.VIP)
		}
	}
	for _, vip := range vips {
		lines = append(lines, fmt.Sprintf("The VIP must be on this host: ip address add %s dev %s",
			netip.PrefixFrom(vip, vip.BitLen()), remark.Printable(l.Interfaces[0])))
	}
	if left := l.Count(remark.Left); left > 0 {
		lines = append(lines, fmt.Sprintf("Left out, as the command says of each: %d.", left))
	}
	return lines
}

// Carried returns the number of services in the result.
func (l *Ledger) Carried() int { return len(l.carried) }

// Count returns the number of remarks of a kind.
func (l *Ledger) Count(kind remark.Kind) int {
	n := 0
	for _, r := range l.Remarks {
		if r.Kind == kind {
			n++
		}
	}
	return n
}

// Reason is the reason why a language has no equivalent of a key, with the remedy.
type Reason struct {
	Kind remark.Kind
	Why  string
}

// Account adds remarks on each written key that no writer has noted. The remark's reason is that of the key, or of the
// nearest key above it. Paths of reasons have no numbers: services[].backends[].port.
func (l *Ledger) Account(reasons map[string]Reason) {
	for _, field := range l.Leaves() {
		above, known := l.nearest(field)
		switch {
		case !known:
			why := reasonFor(reasons, field, l.Dialect)
			l.remark(l.At(field), why.Kind, "%s: %s", lastKey(field), why.Why)
		case l.noted[above] == remark.Left && l.At(above) != l.At(field):
			l.remark(l.At(field), remark.Left, "below %s, which is left out", l.At(above))
		}
	}
	slices.SortStableFunc(l.Remarks, func(a, b remark.Remark) int { return cmp.Compare(a.At.Line, b.At.Line) })
}

// nearest returns the field, or the nearest one above it, whose note covers all fields below.
func (l *Ledger) nearest(field string) (string, bool) {
	for own := field; ; {
		if kind, noted := l.noted[field]; noted && (kind != remark.Approximated || field == own) {
			return field, true
		}
		if field == "" {
			return "", false
		}
		field = parent(field)
	}
}

func parent(field string) string { return field[:max(strings.LastIndexAny(field, ".["), 0)] }

var (
	number   = regexp.MustCompile(`\[\d+\]`)
	atEnd    = regexp.MustCompile(`(\[\d+\])+$`)
	onlyKeys = regexp.MustCompile(`^(services\[\d+\]\.)?(backends\[\d+\]\.)?`)
)

// lastKey returns a field without the service and the backend, which its line shows, and without its index in a list.
func lastKey(field string) string {
	key := cmp.Or(strings.TrimPrefix(field, onlyKeys.FindString(field)), field)
	return atEnd.ReplaceAllString(key, "")
}

// reasonFor returns the reason for a field or for the nearest field above it.
func reasonFor(reasons map[string]Reason, field, dialect string) Reason {
	for path := number.ReplaceAllString(field, "[]"); path != ""; path = parent(path) {
		for _, table := range []map[string]Reason{reasons, own} {
			if why, known := table[path]; known {
				return why
			}
		}
	}
	return Reason{remark.Left, dialect + " has nothing like it"}
}

// process is the reason for keys of the process and its tables, which any other program has in its own way.
var process = Reason{remark.Needless, "of Jeoul's own process and tables"}

// own has the reasons for keys that no other program needs.
var own = map[string]Reason{
	"interface":             {remark.Needless, "the other program takes packets on every interface that has the VIP"},
	"interfaces":            {remark.Needless, "the other program takes packets on every interface that has the VIP"},
	"hook":                  process,
	"socket":                process,
	"survive":               process,
	"orphan":                process,
	"table_size":            process,
	"transition":            process,
	"flows":                 process,
	"metrics":               process,
	"api":                   process,
	"proxy":                 {remark.Needless, "of the HAProxy that Jeoul runs"},
	"services[].proxy":      {remark.Left, "of the HAProxy that Jeoul runs; its file has it"},
	"local":                 {remark.Needless, "the other program serves clients on its own host anyway"},
	"services[].table_size": process,
	"services[].hairpin":    process,
}
