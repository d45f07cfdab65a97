// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/config"
	"github.com/jeoul/jeoul/internal/results"
)

// maxSuiteBytes bounds a suite: it is written by hand.
const maxSuiteBytes = 1 << 20

// suiteFile is a suite as it is written.
type suiteFile struct {
	Name      string `yaml:"name"`
	Title     string `yaml:"title"`
	Baseline  string `yaml:"baseline"`
	Form      `yaml:",inline"`
	Quick     *Form              `yaml:"quick"`
	Published *results.Published `yaml:"published"`
}

// ParseSuite reads and checks a suite; name is that of the file, for messages.
// Its error is a list of config.Problem, each with file, line and field.
func ParseSuite(name string, data []byte) (*Suite, error) {
	p := &suiteParser{file: name, lines: map[string]int{}}
	suite := p.parse(data)
	slices.SortStableFunc(p.problems, func(a, b config.Problem) int { return cmp.Compare(a.Line, b.Line) })
	if err := p.problems.Err(); err != nil {
		return nil, err
	}
	digest := sha256.Sum256(data)
	suite.Digest = hex.EncodeToString(digest[:])
	return suite, nil
}

type suiteParser struct {
	file     string
	lines    map[string]int // of each field, by its path
	problems config.Problems
}

func (p *suiteParser) parse(data []byte) *Suite {
	if len(data) > maxSuiteBytes {
		p.add(0, "", "larger than %d MiB; this is hardly a suite", maxSuiteBytes>>20)
		return nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		p.decodeError(err)
		return nil
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		p.add(0, "", "not a suite; it needs at least name, lab, subjects, loads and repeats")
		return nil
	}
	p.index(root.Content[0], nil)
	var file suiteFile
	if !p.decode(data, &file) {
		return nil
	}
	suite := &Suite{Name: file.Name, Title: file.Title, Long: file.Form, Quick: file.Form,
		Baseline: file.Baseline, Published: file.Published}
	if file.Quick != nil {
		// Read again, over a copy of the long form: what quick has replaces that,
		// a list as a whole.
		if !p.decode(data, &suiteFile{Quick: &suite.Quick}) {
			return nil
		}
	}
	p.check(suite, file.Quick != nil)
	return suite
}

// check reports everything that is wrong with a suite that could be read.
func (p *suiteParser) check(suite *Suite, hasQuick bool) {
	if suite.Name == "" {
		p.fail(path{"name"}, "missing; give the suite a name")
	}
	if strings.ContainsAny(suite.Name, "/\x00\n") {
		p.fail(path{"name"}, "%q cannot be part of a directory's name", suite.Name)
	}
	if suite.Baseline != "" && !slices.ContainsFunc(suite.Long.Subjects, func(s Subject) bool { return s.Name == suite.Baseline }) {
		p.fail(path{"baseline"}, "%s is none of the subjects", suite.Baseline)
	}
	suite.Long.complete()
	suite.Long.check(nil, p.fail)
	suite.Quick.complete()
	if hasQuick {
		// What quick does not have was found in the long form already.
		suite.Quick.check(path{"quick"}, func(at path, format string, args ...any) {
			if _, written := p.lines[path{"quick", at[1]}.String()]; written {
				p.fail(at, format, args...)
			}
		})
	}
	if suite.Published != nil {
		for i, row := range suite.Published.Rows {
			if len(row) != len(suite.Published.Columns) {
				p.fail(path{"published", "rows", i}, "has %d cells, but there are %d columns", len(row), len(suite.Published.Columns))
			}
		}
		for i, beside := range suite.Published.Beside {
			p.checkBeside(suite, beside, path{"published", "beside", i})
		}
	}
}

// checkBeside checks which of our figures stand beside a document's.
func (p *suiteParser) checkBeside(suite *Suite, b results.Beside, at path) {
	if strangers := suite.Published.Strangers(b); len(strangers) > 0 {
		p.fail(at, "%q is no column of the document, or no row of it has that word", strangers)
	}
	if !slices.ContainsFunc(suite.Long.Loads, func(l Load) bool { return l.Name == b.Load }) {
		p.fail(at.to("load"), "the suite has no load %q", b.Load)
	}
	if b.Metric == "" {
		p.fail(at.to("metric"), "missing; name the metric that is the document's figure")
	}
	for _, word := range slices.Sorted(maps.Keys(b.Subjects)) {
		for i, name := range b.Subjects[word] {
			if !slices.ContainsFunc(suite.Long.Subjects, func(s Subject) bool { return s.Name == name }) {
				p.fail(at.to("subjects", word, i), "%s is none of the suite's subjects", name)
			}
		}
	}
}

// complete fills in what a load leaves out.
func (f *Form) complete() {
	f.Loads = slices.Clone(f.Loads)
	for i := range f.Loads {
		f.Loads[i].Name = cmp.Or(f.Loads[i].Name, f.Loads[i].Kind)
		if w := f.Loads[i].Wire; w != nil && len(f.Loads[i].Concurrency) == 0 {
			// Of a packet-level load there is one point, and how many connections it has
			// says the load itself.
			f.Loads[i].Concurrency = []int{w.connections()}
		}
	}
	f.completeTuning()
}

// decode reads data strictly into the file.
func (p *suiteParser) decode(data []byte, into *suiteFile) bool {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		p.decodeError(err)
		return false
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		p.add(0, "", "a second YAML document follows; keep one in a file")
		return false
	}
	return true
}

// path leads to a field: names, and indices that count from 0.
type path []any

func (p path) to(steps ...any) path { return append(slices.Clone(p), steps...) }

// String returns the path as it stands in messages: subjects[0].params.threads.
func (p path) String() string {
	var text strings.Builder
	for i, step := range p {
		switch step := step.(type) {
		case int:
			fmt.Fprintf(&text, "[%d]", step)
		default:
			if i > 0 {
				text.WriteByte('.')
			}
			fmt.Fprint(&text, step)
		}
	}
	return text.String()
}

// index notes the line of every field below node.
func (p *suiteParser) index(node *yaml.Node, at path) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			below := at.to(node.Content[i].Value)
			p.lines[below.String()] = node.Content[i].Line
			p.index(node.Content[i+1], below)
		}
	case yaml.SequenceNode:
		for i, item := range node.Content {
			below := at.to(i)
			p.lines[below.String()] = item.Line
			p.index(item, below)
		}
	}
}

// fail reports a problem at a field, on its line or that of what it would be in.
func (p *suiteParser) fail(at path, format string, args ...any) {
	line := 0
	for i := len(at); i > 0 && line == 0; i-- {
		line = p.lines[at[:i].String()]
	}
	p.add(line, at.String(), format, args...)
}

func (p *suiteParser) add(line int, field, format string, args ...any) {
	p.problems = append(p.problems, config.Problem{File: p.file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)})
}

var (
	yamlLine      = regexp.MustCompile(`(?s)^(?:yaml: )?line (\d+): (.*)$`)
	yamlUnknown   = regexp.MustCompile(`^field (.*) not found in type .*$`)
	yamlUnmarshal = regexp.MustCompile(`(?s)^cannot unmarshal (?:!!\w+ )?(.*) into (.*)$`)
)

// decodeError turns what the YAML library says into problems with a field.
func (p *suiteParser) decodeError(err error) {
	messages := []string{err.Error()}
	var kinds *yaml.TypeError
	if errors.As(err, &kinds) {
		messages = kinds.Errors
	}
	for _, message := range messages {
		line := 0
		if match := yamlLine.FindStringSubmatch(message); match != nil {
			line, _ = strconv.Atoi(match[1]) // digits; 0 if there are too many
			message = match[2]
		}
		field := p.fieldOn(line)
		if match := yamlUnknown.FindStringSubmatch(message); match != nil {
			p.add(line, field, "unknown key %s", match[1])
			continue
		}
		if match := yamlUnmarshal.FindStringSubmatch(message); match != nil {
			p.add(line, field, "%s is not %s", match[1], wanted(match[2]))
			continue
		}
		p.add(line, field, "%s", strings.TrimPrefix(message, "yaml: "))
	}
}

// wanted says in words what a Go type takes.
func wanted(kind string) string {
	switch {
	case kind == "int":
		return "a whole number"
	case kind == "float64":
		return "a number"
	case kind == "time.Duration":
		return "a duration such as 10s"
	case kind == "string":
		return "a text"
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	}
	return "a mapping (key: value)"
}

// fieldOn returns the first, outermost field on a line; the library's messages
// have lines only.
func (p *suiteParser) fieldOn(line int) string {
	best := ""
	for field, at := range p.lines {
		if at == line && (best == "" || len(field) < len(best) || len(field) == len(best) && field < best) {
			best = field
		}
	}
	return best
}
