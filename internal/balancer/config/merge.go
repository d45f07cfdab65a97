// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// FileOwner is the owner of the services that the configuration file has.
const FileOwner = "file"

// Source is a text of configuration: the file, under its path, or a fragment, under its name.
type Source struct {
	Name string
	Data []byte
}

// fragment is a source beside the file; its services are those from first on.
type fragment struct {
	name  string
	first int
}

// fragmentKeys are the keys of a fragment: what is not a service is the file's to say.
var fragmentKeys = fragmentTable()

func fragmentTable() keytable.Table[Config] {
	table := keytable.Table[Config]{}
	for _, key := range rootKeys {
		switch {
		case key.Name == "services":
			table = append(table, key)
		case key.Gone == "":
			table = append(table,
				keytable.Key[Config]{Name: key.Name,
					Gone: "is the configuration file's to say; here stand services only: remove it"})
		}
	}
	return table
}

var fragmentKind = yamlfile.Kind{Noun: "a fragment of configuration", Needs: "services", MaxBytes: MaxBytes}

// fragmentName is what a fragment can be called: it becomes the name of a file.
var fragmentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckFragmentName says why a fragment cannot have a name; nil if it can.
func CheckFragmentName(name string) error {
	if name == FileOwner {
		return fmt.Errorf("%q stands for the configuration file; choose another name", name)
	}
	if !fragmentName.MatchString(name) {
		return fmt.Errorf("%s is not 1 to 63 lower-case letters, digits and hyphens", yamlfile.Quote(name))
	}
	return nil
}

// Merge checks a file and fragments together into one configuration: what holds among the services
// of a file holds among those of all. A fragment without content has no services. The
// error is a yamlfile.Problems with everything that is wrong, each under the name of its source.
func Merge(file Source, fragments ...Source) (*Config, error) {
	p := &parser{File: yamlfile.NewFile(file.Name), cfg: New()}
	p.cfg.File, p.cfg.file = file.Name, p.File
	root := p.Document(file.Data, fileKind)
	if root != nil {
		rootKeys.Read(p.File, root, "", p.cfg)
	}
	for _, source := range fragments {
		p.add(source)
	}
	if n := len(p.cfg.Services); n > MaxServices && len(fragments) > 0 {
		p.Fail("services",
			"%d services of all sources are more than the %d that a balancer can hold; split them between two", n,
			MaxServices)
	}
	if root != nil {
		p.check()
	}
	if err := p.Problems.Err(); err != nil {
		p.Problems.SortByLine()
		return nil, err
	}
	p.cfg.Warnings.SortByLine()
	return p.cfg, nil
}

// add reads a fragment, whose services follow those that are there.
func (p *parser) add(source Source) {
	part, read := yamlfile.NewFile(source.Name), New()
	if !blank(source.Data) {
		if root := part.Document(source.Data, fragmentKind); root != nil {
			fragmentKeys.Read(part, root, "", read)
		}
	}
	p.cfg.fragments = append(p.cfg.fragments, fragment{source.Name, len(p.cfg.Services)})
	p.Append(part, "services", len(p.cfg.Services))
	p.cfg.Services = append(p.cfg.Services, read.Services...)
}

// blank says whether a text has nothing but comments.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// Owner returns the name of the source that service i (from 0) is of.
func (c *Config) Owner(i int) string {
	owner := FileOwner
	for _, f := range c.fragments {
		if i >= f.first {
			owner = f.name
		}
	}
	return owner
}

// WriteFragment returns the text of the services of one owner, which Merge reads into equal ones
// beside the same other sources. Without a service it is empty.
func WriteFragment(c *Config, owner string) ([]byte, error) {
	short := withoutDerived(c)
	services := short.Services[:0:0]
	for i, s := range short.Services {
		if c.Owner(i) == owner {
			services = append(services, s)
		}
	}
	if len(services) == 0 {
		return nil, nil
	}
	only := Config{Services: services}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(fragmentKeys.Write(&only)); err != nil {
		return nil, fmt.Errorf("write the services of %s: %w", owner, err)
	}
	return text.Bytes(), nil
}
