// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/shlex"

	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// The groups of an inventory that make a lab.
const (
	groupClients   = "clients"
	groupBalancers = "balancers"
	groupServers   = "servers"
)

// Inventory holds the machines of a lab, checked.
type Inventory struct {
	// File is the name that the inventory was read under.
	File                        string
	Clients, Balancers, Servers []Host
	// VIP is the address that clients connect to; no machine has it.
	VIP netip.Addr
	// FullNAT is a second free address; not valid where none was given.
	FullNAT netip.Addr
}

// Host is a machine of an inventory.
type Host struct {
	Name string
	// Line is the first line of the inventory that names the host.
	Line int
	// Address, Port, User, Key and Options are for ssh; ssh's own configuration replaces an empty one, or 0.
	Address   string
	Port      int
	User, Key string
	Options   []string
	// Become gives the user root's rights by sudo.
	Become bool
	// Interface and IPv4 select the interface that belongs to the lab, by its name or address.
	Interface string
	IPv4      netip.Addr
}

// maxInventoryBytes bounds an inventory, maxHosts the number of hosts that a range in it can match.
const (
	maxInventoryBytes = 1 << 20
	maxHosts          = 1000
)

// LoadInventory reads and checks the Ansible inventory at path: YAML if its name ends in .yaml or .yml, otherwise INI.
// Its errors are yamlfile.Problems, with file, line and the remedy.
func LoadInventory(path string) (*Inventory, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the inventory: %w", err)
	}
	return ParseInventory(path, data)
}

// ParseInventory is LoadInventory for a file that has been read.
func ParseInventory(name string, data []byte) (*Inventory, error) {
	p := &parser{file: name, groups: map[string]*group{}, hosts: map[string]*hostVars{}, within: map[string][]mention{}}
	switch {
	case len(data) > maxInventoryBytes:
		p.fail(0, "", "larger than %d MiB; this is hardly an inventory", maxInventoryBytes>>20)
	case slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(name)):
		p.readYAML(data)
	default:
		p.readINI(string(data))
	}
	var inventory *Inventory
	if len(p.problems) == 0 {
		inventory = p.inventory()
	}
	p.problems.SortByLine()
	if err := p.problems.Err(); err != nil {
		return nil, err
	}
	return inventory, nil
}

// parser collects the groups and hosts of an inventory, in either form.
type parser struct {
	file     string
	groups   map[string]*group
	hosts    map[string]*hostVars
	problems yamlfile.Problems
	// within caches the hosts of groups.
	within map[string][]mention
}

// value is the value of a variable, with its line.
type value struct {
	text string
	line int
}

// group is a group of hosts; children are groups that belong to it.
type group struct {
	line     int
	hosts    []mention
	children []mention
	vars     map[string]value
}

// mention is a name, with its line.
type mention struct {
	name string
	line int
}

// hostVars are the variables of a host itself.
type hostVars struct {
	line int
	vars map[string]value
}

func (p *parser) fail(line int, field, format string, args ...any) {
	p.problems = append(p.problems, yamlfile.Problem{File: p.file, Line: line, Field: field,
		Message: fmt.Sprintf(format, args...)})
}

// group returns the group of a name, and creates it at its first mention.
func (p *parser) group(name string, line int) *group {
	if p.groups[name] == nil {
		p.groups[name] = &group{line: line, vars: map[string]value{}}
	}
	return p.groups[name]
}

// addHosts adds the hosts that a pattern matches to a group, with their own variables.
func (p *parser) addHosts(in *group, pattern string, line int, vars map[string]value) {
	names, err := expand(pattern)
	if err != nil {
		p.fail(line, "", "%v", err)
		return
	}
	if len(p.hosts) > maxHosts {
		return // already reported
	}
	for _, name := range names {
		if p.hosts[name] == nil && len(p.hosts) == maxHosts {
			p.fail(line, "", "more than %d hosts", maxHosts)
			p.hosts[name] = &hostVars{line: line, vars: map[string]value{}}
			return
		}
		if p.hosts[name] == nil {
			p.hosts[name] = &hostVars{line: line, vars: map[string]value{}}
		}
		for key, v := range vars {
			if old, again := p.hosts[name].vars[key]; again && old.text != v.text {
				p.fail(line, key, "%s has another value on line %d", name, old.line)
			}
			p.hosts[name].vars[key] = v
		}
		in.hosts = append(in.hosts, mention{name, line})
	}
}

// inventory makes hosts of the collected groups and variables.
func (p *parser) inventory() *Inventory {
	i := &Inventory{File: p.file}
	p.checkGroups()
	p.checkVars()
	if len(p.problems) > 0 {
		return nil
	}
	i.Clients, i.Balancers, i.Servers = p.members(groupClients), p.members(groupBalancers), p.members(groupServers)
	i.VIP = p.common(varVIP, true)
	i.FullNAT = p.common(varFullNAT, false)
	p.checkHosts(i)
	return i
}

// checkGroups reports groups that are required but missing, and groups that are named but not defined.
func (p *parser) checkGroups() {
	for _, name := range sortedKeys(p.groups) {
		for _, child := range p.groups[name].children {
			if p.groups[child.name] == nil {
				p.fail(child.line, name, "there is no group %s", child.name)
			}
		}
	}
	if cycle := p.cycle(); cycle != "" {
		p.fail(p.groups[cycle].line, cycle, "the group contains itself")
		return
	}
	for _, name := range []string{groupClients, groupBalancers, groupServers} {
		switch g := p.groups[name]; {
		case g == nil:
			p.fail(0, name, "there is no such group; a lab needs hosts in %s, %s and %s", groupClients, groupBalancers,
				groupServers)
		case len(p.mentions(name)) == 0:
			p.fail(g.line, name, "the group is empty; put at least one host into it")
		}
	}
}

// cycle returns a group that contains itself, if there is one.
func (p *parser) cycle() string {
	state := map[string]int{} // 1 on the way, 2 done
	var visit func(name string) bool
	visit = func(name string) bool {
		switch g := p.groups[name]; {
		case g == nil || state[name] == 2:
			return false
		case state[name] == 1:
			return true
		default:
			state[name] = 1
			for _, child := range g.children {
				if visit(child.name) {
					return true
				}
			}
			state[name] = 2
			return false
		}
	}
	for _, name := range sortedKeys(p.groups) {
		if visit(name) {
			return name
		}
	}
	return ""
}

// mentions lists the hosts of a group and its children, each once. The groups no longer change when it is first called.
func (p *parser) mentions(name string) []mention {
	if all, known := p.within[name]; known {
		return all
	}
	g := p.groups[name]
	if g == nil {
		return nil
	}
	var all []mention
	seen := map[string]bool{}
	add := func(list []mention) {
		for _, m := range list {
			if !seen[m.name] {
				seen[m.name] = true
				all = append(all, m)
			}
		}
	}
	add(g.hosts)
	for _, child := range g.children {
		add(p.mentions(child.name))
	}
	p.within[name] = all
	return all
}

// members returns the hosts of a group.
func (p *parser) members(name string) []Host {
	var all []Host
	for _, m := range p.mentions(name) {
		if !slices.ContainsFunc(all, func(h Host) bool { return h.Name == m.name }) {
			all = append(all, p.host(m.name))
		}
	}
	return all
}

// host makes a host from its variables.
func (p *parser) host(name string) Host {
	vars := p.resolve(name)
	h := Host{Name: name, Line: p.hosts[name].line, Address: name,
		User: vars["ansible_user"].text, Key: expandHome(vars["ansible_ssh_private_key_file"].text),
		Interface: vars[varInterface].text}
	if v, ok := vars["ansible_host"]; ok {
		h.Address = v.text
	}
	if v, ok := vars["ansible_port"]; ok {
		port, err := strconv.ParseUint(v.text, 10, 16)
		if err != nil || port == 0 {
			p.fail(v.line, "ansible_port", "%q is no port; use 1 to 65535", v.text)
		}
		h.Port = int(port)
	}
	if v, ok := vars["ansible_become"]; ok {
		become, err := yesOrNo(v.text)
		if err != nil {
			p.fail(v.line, "ansible_become", "%v", err)
		}
		h.Become = become
	}
	if v, ok := vars[varAddress]; ok {
		h.IPv4 = p.address(varAddress, v)
	} else if address, err := netip.ParseAddr(h.Address); err == nil && address.Is4() && h.Interface == "" {
		h.IPv4 = address
	}
	if !h.IPv4.IsValid() && h.Interface == "" {
		p.fail(h.Line, name, "which interface belongs to the lab is not known; give %s or %s", varInterface, varAddress)
	}
	for _, name := range []string{"ansible_ssh_common_args", "ansible_ssh_extra_args"} {
		options, err := shlex.Split(vars[name].text)
		if err != nil {
			p.fail(vars[name].line, name, "%v", err)
		}
		h.Options = append(h.Options, options...)
	}
	if strings.HasPrefix(h.Address, "-") || strings.HasPrefix(h.User, "-") || h.Address == "" {
		p.fail(h.Line, name, "%q at %q is no place that ssh could go to", h.User, h.Address)
	}
	return h
}

// resolve returns the variables of a host. Its own have precedence over those of its groups, a child group's over its
// parent's, and those of all come last.
func (p *parser) resolve(name string) map[string]value {
	resolved := map[string]value{}
	if all := p.groups["all"]; all != nil {
		copyVars(resolved, all.vars)
	}
	applied := map[string]bool{} // a group may belong to several
	var apply func(group string)
	apply = func(of string) {
		g := p.groups[of]
		if applied[of] {
			return
		}
		applied[of] = true
		within := slices.ContainsFunc(p.mentions(of), func(m mention) bool { return m.name == name })
		if g == nil || !within {
			return
		}
		copyVars(resolved, g.vars)
		for _, child := range g.children {
			apply(child.name)
		}
	}
	for _, root := range p.roots() {
		apply(root)
	}
	copyVars(resolved, p.hosts[name].vars)
	return resolved
}

// roots returns the groups that belong to no other group but all.
func (p *parser) roots() []string {
	children := map[string]bool{"all": true}
	for name, g := range p.groups {
		if name == "all" {
			continue
		}
		for _, child := range g.children {
			children[child.name] = true
		}
	}
	return slices.DeleteFunc(sortedKeys(p.groups), func(name string) bool { return children[name] })
}

// common returns an address that must be the same for all hosts that give it.
func (p *parser) common(name string, needed bool) netip.Addr {
	var found value
	var at netip.Addr
	for _, of := range []string{groupBalancers, groupClients, groupServers} {
		for _, m := range p.mentions(of) {
			v, ok := p.resolve(m.name)[name]
			switch {
			case !ok:
			case found.text == "":
				found, at = v, p.address(name, v)
			case v.text != found.text:
				p.fail(v.line, name, "%s here, but %s on line %d; a lab has one", v.text, found.text, found.line)
				return at
			}
		}
	}
	if found.text == "" && needed {
		p.fail(0, name, "missing; give a free address of the machines' segment, such as [all:vars] %s=192.0.2.100",
			name)
	}
	return at
}

// address reads an IPv4 address.
func (p *parser) address(name string, v value) netip.Addr {
	address, err := netip.ParseAddr(v.text)
	if err != nil || !address.Is4() {
		p.fail(v.line, name, "%q is no IPv4 address", v.text)
		return netip.Addr{}
	}
	return address
}

// checkHosts reports machines that are listed twice, under one name or under several.
func (p *parser) checkHosts(i *Inventory) {
	roles, places, addresses := map[string]string{}, map[string]Host{}, map[netip.Addr]Host{}
	for _, of := range []string{groupClients, groupBalancers, groupServers} {
		for _, h := range map[string][]Host{groupClients: i.Clients, groupBalancers: i.Balancers,
			groupServers: i.Servers}[of] {
			if other := roles[h.Name]; other != "" {
				p.fail(h.Line, h.Name, "the host is in %s and in %s; each machine has one part", other, of)
				continue
			}
			roles[h.Name] = of
			place := fmt.Sprintf("%s port %d", h.Address, cmp.Or(h.Port, 22))
			if other, again := places[place]; again {
				p.fail(h.Line, h.Name, "is the same machine as %s on line %d (%s)", other.Name, other.Line, place)
				continue
			}
			places[place] = h
			if other, again := addresses[h.IPv4]; again && h.IPv4.IsValid() {
				p.fail(h.Line, h.Name, "has the same address as %s on line %d (%v)", other.Name, other.Line, h.IPv4)
			}
			addresses[h.IPv4] = h
			if h.IPv4.IsValid() && (h.IPv4 == i.VIP || h.IPv4 == i.FullNAT) {
				p.fail(h.Line, h.Name, "has the address %v, which must be free for the balancers", h.IPv4)
			}
		}
	}
	if i.FullNAT.IsValid() && i.FullNAT == i.VIP {
		p.fail(0, varFullNAT, "%v is the VIP already; give another free address", i.FullNAT)
	}
	if len(i.Clients) > 99 || len(i.Servers) > 99 {
		p.fail(0, "", "%d clients and %d servers; use at most 99 of each", len(i.Clients), len(i.Servers))
	}
}
