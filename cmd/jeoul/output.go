// SPDX-License-Identifier: Apache-2.0

package main

// outputFlag is the form in which a command prints: for a person, or for a program. `get` has more
// forms, and `report` others; -o is a form everywhere.
type outputFlag struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"Output format: text or json (${default})."`
}

// json says whether a program reads what is printed.
func (o outputFlag) json() bool { return o.Output == "json" }
