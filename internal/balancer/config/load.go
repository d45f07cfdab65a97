// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"

	"go.yaml.in/yaml/v3"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// MaxBytes bounds a configuration file: room for some three hundred thousand
// backends, and little enough that a wrong file (a device, a disk image) does no
// harm.
const MaxBytes = 32 << 20

// New returns the configuration of an empty file: one without interfaces and services, for a program to fill in and
// Write.
func New() *Config {
	c := &Config{file: yamlfile.NewFile("")}
	keytable.Reset(rootKeys, c)
	c.Flows.Unproven = c.Flows.defaultUnproven()
	return c
}

// Load reads and checks a file. The error is a yamlfile.Problems where the content is at
// fault.
func Load(path string) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse checks the content of a file; name stands for the file in messages. The
// error is a yamlfile.Problems with everything that is wrong, not only the first.
func Parse(name string, data []byte) (*Config, error) { return Merge(Source{name, data}) }

// fileKind is the kind of a configuration, for messages about a file as a whole.
var fileKind = yamlfile.Kind{Noun: "a configuration", Needs: "at least interface and services", MaxBytes: MaxBytes}

// Source is a text of configuration: the file, under its path, or a fragment, under its name.
type Source struct {
	Name string
	Data []byte
}

// fragmentKeys are the keys of a fragment: only the file may have anything but services.
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

// fragmentName matches the names that a fragment can have: they become names of files.
var fragmentName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckFragmentName returns the reason why a fragment cannot have a name; nil if it can.
func CheckFragmentName(name string) error {
	if name == FileOwner {
		return fmt.Errorf("%q stands for the configuration file; choose another name", name)
	}
	if !fragmentName.MatchString(name) {
		return fmt.Errorf("%s is not 1 to 63 lower-case letters, digits and hyphens", yamlfile.Quote(name))
	}
	return nil
}

// Merge checks a file and fragments together into one configuration: the rules among the services of a file hold among
// those of all. A fragment without content has no services. The error is a yamlfile.Problems with all mistakes, each
// under the name of its source.
func Merge(file Source, fragments ...Source) (*Config, error) {
	p := &parser{File: yamlfile.NewFile(file.Name), cfg: New()}
	p.cfg.File, p.cfg.file = file.Name, p.File
	root := p.Document(file.Data, fileKind)
	if root != nil {
		keytable.Read(rootKeys, p.File, root, "", p.cfg)
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

// add parses a fragment, whose services follow the present ones.
func (p *parser) add(source Source) {
	part, read := yamlfile.NewFile(source.Name), New()
	if !blank(source.Data) {
		if root := part.Document(source.Data, fragmentKind); root != nil {
			keytable.Read(fragmentKeys, part, root, "", read)
		}
	}
	p.cfg.fragments = append(p.cfg.fragments, fragment{source.Name, len(p.cfg.Services)})
	p.Append(part, "services", len(p.cfg.Services))
	p.cfg.Services = append(p.cfg.Services, read.Services...)
}

// blank reports whether a text has nothing but comments.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

// WriteFragment returns the text of the services of one owner, which Merge reads into equal ones
// beside the same other sources. Without a service it is empty.
func WriteFragment(c *Config, owner string) ([]byte, error) {
	var services []lb.Service
	for i, s := range c.Services {
		if c.Owner(i) == owner {
			services = append(services, withoutDefaults(c, s))
		}
	}
	if len(services) == 0 {
		return nil, nil
	}
	text, err := yamlfile.Encode(keytable.Write(fragmentKeys, &Config{Services: services}))
	if err != nil {
		return nil, fmt.Errorf("write the services of %s: %w", owner, err)
	}
	return text, nil
}

// backendList is a file of backends that another program writes.
type backendList struct{ backends []lb.Backend }

var backendListKind = yamlfile.Kind{Noun: "a list of backends", Needs: "backends", MaxBytes: 8 << 20}

// ReadBackends reads a list of backends, with the keys that backends have in a configuration; name
// stands for the file in messages. Backends without a port have 0. The error is a yamlfile.Problems
// with everything that is wrong.
func ReadBackends(name string, data []byte, most int) ([]lb.Backend, error) {
	keys := keytable.Table[backendList]{{Name: "backends", Required: true,
		Value: keytable.Mappings(func(l *backendList) *[]lb.Backend { return &l.backends }, backendKeys,
			keytable.Length{Max: most,
				TooMany: "of the key `most` of this service's discovery; raise it, or write fewer"})}}
	file, list := yamlfile.NewFile(name), backendList{}
	root := file.Document(data, backendListKind)
	if root == nil {
		return nil, file.Problems.Err()
	}
	if noBackends(root) {
		return nil, nil
	}
	keytable.Read(keys, file, root, "", &list)
	checkList(file, list.backends)
	return list.backends, file.Problems.Err()
}

// checkList checks values of a list against one another.
func checkList(f *yamlfile.File, list []lb.Backend) {
	names, places := map[string]int{}, map[netip.AddrPort]int{}
	for j, b := range list {
		at := yamlfile.Element("backends", j)
		if first, duplicate := claim(names, b.Name, j); duplicate && b.Name != "" {
			f.Fail(at+".name", "%s is already the name of %s; give each backend its own", b.Name,
				f.Place(yamlfile.Element("backends", first)))
		}
		place := netip.AddrPortFrom(b.Address, b.Port)
		if first, duplicate := claim(places, place, j); duplicate && b.Address.IsValid() {
			f.Fail(at+".address", "%s is already %s; write each backend once", b.Address,
				f.Place(yamlfile.Element("backends", first)))
		}
		if b.Lower > b.Upper && !f.Bad(at+".upper") {
			f.Fail(at+".lower", "%d is above upper, %d; write a number up to that", b.Lower, b.Upper)
		}
	}
}

// noBackends reports whether a document is an explicit empty list, which a half-written file cannot be.
func noBackends(root *yaml.Node) bool {
	return root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "backends" &&
		root.Content[1].Kind == yaml.SequenceNode && len(root.Content[1].Content) == 0
}
