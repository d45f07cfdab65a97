// SPDX-License-Identifier: Apache-2.0

// Package config reads the YAML that a person writes and checks it into the
// desired state of a balancer. What it returns can be used as it stands, as far
// as the file alone can tell; what needs a look at the machine (is there such
// an interface, is the backend on its subnet) is checked by others, who can
// point at the same lines through Config.At.
package config

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/jeoul/jeoul/internal/lb"
)

// DefaultSocket is where the daemon answers unless told otherwise.
const DefaultSocket = "/run/jeoul/jeoul.sock"

// MaxBytes bounds a configuration file: room for some three hundred thousand
// backends, and little enough that a wrong file (a device, a disk image) does no
// harm.
const MaxBytes = 32 << 20

// Config is a checked configuration.
type Config struct {
	// File is the name that the configuration was read under.
	File string
	// Interfaces take the packets, at least one, each once; the first carries the
	// VIPs. Their names only are checked here.
	Interfaces []string
	Hook       lb.Hook
	// Socket is the absolute path of the unix socket of the API.
	Socket string
	// TableSize is the number of slots, a prime, of the hash tables of services that
	// do not say; 0: by the number of each one's backends. Each service's own field
	// says what holds for it.
	TableSize  uint32
	Flows      Flows
	Transition Transition
	// FullNAT has no addresses where no service has that mode.
	FullNAT  FullNAT
	Services []lb.Service
	// Warnings are what works but is hardly meant.
	Warnings Problems

	lines map[string]int
}

// FullNAT is where full NAT takes the source of a flow from.
type FullNAT struct {
	// Addresses are the balancer's own, of either family.
	Addresses []netip.Addr
	// FirstPort to LastPort, both included, belong to full NAT on each address.
	FirstPort, LastPort uint16
}

// What a file that does not say gets: ports above those of services, some of
// them in the range that Linux gives its own connections (which matters only
// for addresses that the host itself sends from).
const (
	DefaultFirstPort = 20000
	DefaultLastPort  = 59999
)

// ServiceField returns the path of a field of service i (from 0); with an
// empty name, that of the service itself.
func ServiceField(i int, name string) string {
	return join(element("services", i), name)
}

// BackendField returns the path of a field of backend j of service i (both from
// 0); with an empty name, that of the backend itself.
func BackendField(i, j int, name string) string {
	return join(element(ServiceField(i, "backends"), j), name)
}

// InterfaceField returns the path of the interfaces, as the file spells it.
func (c *Config) InterfaceField() string {
	if _, several := c.lines["interfaces"]; several {
		return "interfaces"
	}
	return "interface"
}

// element returns the path of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// At returns a problem at a field; the line is that of the field or, where the
// file leaves it out, of what it would stand in.
func (c *Config) At(field, format string, args ...any) Problem {
	return Problem{File: c.File, Line: lineOf(c.lines, field), Field: field, Message: fmt.Sprintf(format, args...)}
}

// lineOf returns the line of a field or of its nearest written parent.
func lineOf(lines map[string]int, field string) int {
	for {
		if line, ok := lines[field]; ok {
			return line
		}
		if field == "" {
			return 0
		}
		field = field[:max(strings.LastIndexAny(field, ".["), 0)]
	}
}

// Load reads and checks a file. The error is a Problems where the content is at
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
// error is a Problems with everything that is wrong, not only the first.
func Parse(name string, data []byte) (*Config, error) {
	cfg := &Config{
		File:       name,
		Hook:       lb.HookAuto,
		Socket:     DefaultSocket,
		Flows:      defaultFlows(),
		Transition: Transition{TCP: DefaultTCPTransition, UDP: DefaultUDPTransition},
		FullNAT:    FullNAT{FirstPort: DefaultFirstPort, LastPort: DefaultLastPort},
		lines:      map[string]int{},
	}
	p := &parser{cfg: cfg}
	root, err := document(data)
	var problem Problem
	switch {
	case errors.As(err, &problem):
		problem.File = name
		return nil, Problems{problem}
	case err != nil:
		return nil, err
	}
	p.root(root)
	p.check()
	if len(p.problems) > 0 {
		p.problems.sortByLine()
		return nil, p.problems
	}
	cfg.Warnings.sortByLine()
	return cfg, nil
}
