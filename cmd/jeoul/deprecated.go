// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/jeoul/jeoul/internal/text/cli"
)

// deprecatedUntil is the release that no longer accepts the spellings below.
const deprecatedUntil = "0.6.0"

// deprecatedCommands maps commands to their new names.
var deprecatedCommands = map[string]string{"events": "get events"}

// deprecations returns the flags that have a new spelling.
func deprecations() []cli.Deprecated {
	getting := []string{"get services", "get backends", "get checks", "get flows", "get events", "get sources",
		"get members"}
	listing := append([]string{"status", "backend check", "backend list"}, getting...)
	measuring := []string{"bench packets", "bench distribution", "bench memory", "bench scale", "wire send"}
	virtual := []string{"bench run", "bench packets"}
	reporting := []string{"report show", "report compare"}
	return []cli.Deprecated{
		{Commands: measuring, Flag: "--json", New: "--output=json"},
		{Commands: listing, Flag: "--output", Takes: true, Value: "table", New: "--output=text"},
		{Commands: listing, Flag: "-o", Takes: true, Value: "table", New: "--output=text"},
		{Commands: []string{"bench run"}, Flag: "--output", Takes: true, New: "--to"},
		{Commands: []string{"bench run"}, Flag: "-o", Takes: true, New: "--to"},
		{Commands: []string{"report show"}, Flag: "--output", Takes: true, Old: namesFile, New: "--to"},
		{Commands: []string{"report show"}, Flag: "-o", Takes: true, Old: namesFile, New: "--to"},
		{Commands: reporting, Flag: "--format", Takes: true, Value: "terminal", New: "--output=text"},
		{Commands: reporting, Flag: "--format", Takes: true, Value: "auto", New: "--output="},
		{Commands: reporting, Flag: "--format", Takes: true, New: "--output"},
		{Commands: virtual, Flag: "--limit", Takes: true, New: "--time-limit"},
		{Commands: []string{"bench packets"}, Flag: "--only", Takes: true, New: "--match"},
		{Commands: []string{"apply", "diff"}, Flag: "--source", Takes: true, New: "--owner"},
		{Commands: []string{"agent"}, Flag: "--hook", Takes: true, New: "--attach"},
		{Commands: []string{"wire send", "wire serve"}, Flag: "--server", Takes: true, New: "--server-interface"},
		{Commands: []string{"wire send"}, Flag: "--client", Takes: true, New: "--client-interface"},
		{Commands: []string{"wire send"}, Flag: "--lab", Takes: true, New: "--self-test"},
	}
}

// namesFile reports whether a value of --output is a file, as in earlier releases, and no format.
func namesFile(value string) bool { return strings.ContainsAny(value, "./") }
