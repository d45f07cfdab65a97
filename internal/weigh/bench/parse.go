// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
	"github.com/jeoul/jeoul/internal/weigh/results"
)

// maxSuiteBytes is the maximum size of a suite, which is written by hand.
const maxSuiteBytes = 1 << 20

// suiteFile is the content of a suite's file.
type suiteFile struct {
	Name      string `yaml:"name"`
	Title     string `yaml:"title"`
	Baseline  string `yaml:"baseline"`
	Form      `yaml:",inline"`
	Quick     *Form              `yaml:"quick"`
	Published *results.Published `yaml:"published"`
}

// ParseSuite reads and checks a suite. name is that of the file, for messages. Its error is a list of yamlfile.Problem,
// each with file, line and field.
func ParseSuite(name string, data []byte) (*Suite, error) {
	p := &suiteParser{yamlfile.NewFile(name)}
	suite := p.parse(data)
	p.Problems.SortByLine()
	if err := p.Problems.Err(); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	suite.Digest = hex.EncodeToString(digest[:])
	return suite, nil
}

// suiteKind describes suites, for messages about a complete file.
var suiteKind = yamlfile.Kind{Noun: "a suite", Needs: "at least name, lab, subjects, loads and repeats",
	MaxBytes: maxSuiteBytes}

type suiteParser struct{ *yamlfile.File }

func (p *suiteParser) parse(data []byte) *Suite {
	var file suiteFile
	if !p.Decode(data, suiteKind, &file) {
		return nil
	}
	read := p.settle(&file.Form, nil)
	suite := &Suite{Name: file.Name, Title: file.Title, Long: file.Form, Quick: file.Form,
		Baseline: file.Baseline, Published: file.Published}
	if file.Quick != nil {
		// Read the file again, over a copy of the long form: the keys of quick replace it; lists are replaced, not
		// merged.
		if !p.DecodeAgain(data, &suiteFile{Quick: &suite.Quick}) {
			return nil
		}
		if p.Written("quick.loads") {
			read = p.settle(&suite.Quick, Path{"quick"}) && read
		}
	}
	if !read {
		return nil // check would report unread keys as missing
	}
	p.check(suite, file.Quick != nil)
	return suite
}

// check reports all mistakes of a suite that has been read.
func (p *suiteParser) check(suite *Suite, hasQuick bool) {
	if suite.Name == "" {
		p.fail(Path{"name"}, "missing; give the suite a name")
	}
	if strings.ContainsAny(suite.Name, "/\x00\n") {
		p.fail(Path{"name"}, "%q cannot be part of a directory's name", suite.Name)
	}
	if suite.Baseline != "" && !slices.ContainsFunc(suite.Long.Subjects, func(s Subject) bool {
		return s.Name == suite.Baseline
	}) {
		p.fail(Path{"baseline"}, "%s is none of the subjects", suite.Baseline)
	}
	suite.Long.complete()
	suite.Long.check(nil, p.fail)
	suite.Quick.complete()
	if hasQuick {
		// The long form already has the mistakes in keys that quick does not have.
		suite.Quick.check(Path{"quick"}, func(at Path, format string, args ...any) {
			if p.Written(Path{"quick", at[1]}.String()) {
				p.fail(at, format, args...)
			}
		})
	}
	if suite.Published != nil {
		for i, row := range suite.Published.Rows {
			if len(row) != len(suite.Published.Columns) {
				p.fail(Path{"published", "rows", i}, "has %d cells, but there are %d columns", len(row),
					len(suite.Published.Columns))
			}
		}
		for i, beside := range suite.Published.Beside {
			p.checkBeside(suite, beside, Path{"published", "beside", i})
		}
	}
}

// checkBeside checks which of our figures are shown beside those of a document.
func (p *suiteParser) checkBeside(suite *Suite, b results.Beside, at Path) {
	if unknown := suite.Published.UnknownColumns(b); len(unknown) > 0 {
		p.fail(at, "%q is no column of `published`, or no row of it has that word", unknown)
	}
	if !slices.ContainsFunc(suite.Long.Loads, func(l Load) bool { return l.Name == b.Load }) {
		p.fail(at.To("load"), "the suite has no load %q", b.Load)
	}
	if b.Metric == "" {
		p.fail(at.To("metric"), "missing; name the metric that is the published figure")
	}
	for _, word := range slices.Sorted(maps.Keys(b.Subjects)) {
		for i, name := range b.Subjects[word] {
			if !slices.ContainsFunc(suite.Long.Subjects, func(s Subject) bool { return s.Name == name }) {
				p.fail(at.To("subjects", word, i), "%s is none of the suite's subjects", name)
			}
		}
	}
}

// complete sets the settings that a load omits.
func (f *Form) complete() {
	f.Loads = slices.Clone(f.Loads)
	for i := range f.Loads {
		f.Loads[i].Name = cmp.Or(f.Loads[i].Name, f.Loads[i].Kind)
		if e, _ := findExperiment(f.Loads[i].Kind); e != nil {
			if c, ok := e.(completing); ok {
				c.Complete(&f.Loads[i])
			}
		}
	}
	f.completeTuning()
}

// fail reports a problem at a field, on the field's line or on that of the mapping that lacks it.
func (p *suiteParser) fail(at Path, format string, args ...any) {
	p.Fail(at.String(), format, args...)
}

// LoadSuite reads and checks the suite at path. Its errors are problems with file, line and field.
func LoadSuite(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the suite: %w", err)
	}
	return ParseSuite(path, data)
}

// settle lets the kind of each load read its own keys. It returns false if a kind could not read them.
func (p *suiteParser) settle(f *Form, at Path) (read bool) {
	f.Loads, read = slices.Clone(f.Loads), true
	for i := range f.Loads {
		read = p.settleLoad(&f.Loads[i], at.To("loads", i)) && read
	}
	return read
}

// settleLoad reads the keys of a load's own kind, and reports keys that do not belong to that kind.
func (p *suiteParser) settleLoad(l *Load, at Path) (read bool) {
	e, ok := findExperiment(l.Kind)
	if !ok {
		return true // Load.check reports it
	}
	keys := keysOf(e)
	rest := maps.Clone(l.Rest)
	for _, key := range slices.Sorted(maps.Keys(rest)) {
		if owners := ownersOf(key); !slices.Contains(keys, key) && len(owners) > 0 {
			p.fail(at.To(key), "goes with %s, not with %s", strings.Join(owners, " and "), l.Kind)
			delete(rest, key)
		}
	}
	l.Rest = nil
	own, ok := e.(setting)
	if !ok {
		return p.DecodeRest(rest, &struct{}{})
	}
	l.settings = own.Settings(func(into any) { read = p.DecodeRest(rest, into) })
	return read
}

// keysOf returns the keys that only one kind has.
func keysOf(e Experiment) (keys []string) {
	if own, ok := e.(setting); ok {
		own.Settings(func(into any) { keys = yamlfile.Keys(into) })
	}
	return keys
}

// ownersOf returns the kinds that have a key.
func ownersOf(key string) (names []string) {
	for _, e := range registered {
		if slices.Contains(keysOf(e), key) {
			names = append(names, e.Name())
		}
	}
	return names
}
